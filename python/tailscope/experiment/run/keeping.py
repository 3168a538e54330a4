"""Recordings of a measurement, kept until they are analysed, whatever happens meanwhile."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from tailscope.exceptions import AnalysisError, RunUnfinishedError, said
from tailscope.signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tailscope.engine.analysis import Recording
    from tailscope.store.directory import RunWriter
    from tailscope.store.records.recorded import RecordedRun


@contextmanager
def kept(writer: RunWriter, run: RecordedRun, write: Callable[[RunWriter], None]) -> Iterator[None]:
    """Write down what was recorded beside the packets, and say that they are kept if a block fails.

    They are in the run directory since they were recorded, with what was known of them then. If
    there is no room for more, that is what `tailscope runs finish` makes a run of.
    """
    try:
        with uninterrupted():
            write(writer)
            writer.keep(run)
        yield
    except BaseException as error:
        if writer.is_whole:
            raise
        raise_kept(writer.path, error)


def replace_changed(recording: Recording, folder: Path) -> None:
    """Write the arrays of a recording that are not those that were mapped."""
    import numpy as np

    for name in recording._fields[1:]:
        array = getattr(recording, name)
        if not isinstance(array, np.memmap):
            new = folder / f"{name}.new.npy"
            np.save(new, array)
            new.replace(folder / f"{name}.npy")


def raise_kept(path: Path, error: BaseException) -> NoReturn:
    """Raise what ended a measurement or its analysis again, and say that nothing is lost."""
    if isinstance(error, AnalysisError):
        raise error.retold(f"{error}; {path} keeps what was recorded", AnalysisError) from error
    hint = f"`tailscope runs finish {path}` analyses it"
    if isinstance(error, KeyboardInterrupt):
        raise KeyboardInterrupt(f"{path}: what was recorded is kept; {hint}") from error
    if not isinstance(error, Exception):
        raise error
    why = f"{path}: recorded and kept, but not analysed: {said(error)}"
    hints = "; then ".join(filter(None, (getattr(error, "hint", None), hint)))
    raise RunUnfinishedError(why, code="not-analysed", hint=hints) from error
