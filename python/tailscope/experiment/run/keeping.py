"""Recordings of a measurement, kept until they are analysed, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from tailscope.exceptions import AnalysisError, RunUnfinishedError, said
from tailscope.signals import uninterrupted
from tailscope.store.directory import RunWriter, move_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tailscope.engine.analysis import Recording
    from tailscope.store.records.recorded import RecordedRun


@contextmanager
def kept(
    writer: RunWriter,
    run: RecordedRun,
    *,
    spare: Path,
    write: Callable[[RunWriter], None],
    move: Callable[[Path], None],
) -> Iterator[Path]:
    """Keep what was recorded while a block analyses it, and for good if the block fails.

    It is kept where nothing can be made of it, too: people may see in it why. Where the run
    directory is on another disk than the recording, or has no room for it, it is kept in a
    directory of its own beside the measurement's private folder.
    """
    with ExitStack() as stack:
        place, refusal = writer, None
        with uninterrupted():
            try:
                write(writer)
                folder = writer.keep(run, move)
            except OSError as error:
                refusal = error
                place = stack.enter_context(RunWriter(spare, has_packets=False))
                write(place)
                folder = place.keep(run, move)
        is_elsewhere = refusal is not None and refusal.errno == errno.EXDEV
        try:
            if refusal is not None and not is_elsewhere:
                raise refusal
            yield folder
        except BaseException as error:
            if writer.is_whole:
                raise
            if is_elsewhere and _copied(writer, run, folder):
                place.withdraw()
                place = writer
            _say_kept(place.path, error)
        finally:
            if place is not writer and writer.is_whole:
                place.withdraw()


def move_recording(recording: Recording, source: Path, folder: Path) -> None:
    """Move the arrays of a recording within a disk: all of them, or none."""
    import numpy as np

    arrays = {name: getattr(recording, name) for name in recording._fields[1:]}
    mapped = [name for name, array in arrays.items() if isinstance(array, np.memmap)]
    with ExitStack() as undo:
        for name in arrays.keys() - mapped:
            undo.callback((folder / f"{name}.npy").unlink)
            np.save(folder / f"{name}.npy", arrays[name])
        move_all([source / f"{name}.npy" for name in mapped], folder, move=os.rename)
        undo.pop_all()


def _copied(writer: RunWriter, run: RecordedRun, source: Path) -> bool:
    """Copy what was recorded into the run directory; whether it is there."""

    def copy(folder: Path) -> None:
        with ExitStack() as undo:
            for path in sorted(source.glob("*.*")):
                if not (folder / path.name).exists():
                    undo.callback((folder / path.name).unlink, missing_ok=True)
                    shutil.copyfile(path, folder / path.name)
            undo.pop_all()

    # Whatever ends this, it is still where it was.
    with suppress(OSError, KeyboardInterrupt):
        writer.keep(run, copy)
        return True
    return False


def _say_kept(path: Path, error: BaseException) -> NoReturn:
    """Raise what ended an analysis again, and say that nothing is lost."""
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
