"""Captures of a timestamper, kept until they are analysed, whatever happens meanwhile."""

from __future__ import annotations

import errno
import shutil
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from tailscope.experiment.run.keeping import raise_kept
from tailscope.signals import uninterrupted
from tailscope.store import layout
from tailscope.store.directory import RunWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
                folder = _keep(writer, run, move)
            except OSError as error:
                refusal = error
                place = stack.enter_context(RunWriter(spare, has_packets=False))
                write(place)
                folder = _keep(place, run, move)
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
            raise_kept(place.path, error)
        finally:
            if place is not writer and writer.is_whole:
                place.withdraw()


def _keep(place: RunWriter, run: RecordedRun, move: Callable[[Path], None]) -> Path:
    folder = place.record()
    try:
        place.keep(run)
        move(folder)
    except BaseException:
        (place.path / layout.RECORDED).unlink(missing_ok=True)
        raise
    return folder


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
        _keep(writer, run, copy)
        return True
    return False
