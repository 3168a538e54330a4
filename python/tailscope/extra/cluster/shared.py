"""Files that workers write into folders they share with the command.

The command has a temporary folder in each of them, which tells workers that they see the same. A
worker writes there what a result shall be, and puts it in place when it is whole: a worker that is
killed leaves nothing in the way of the one that repeats its work, and two that do the same, because
one of them was taken for lost, do not meet.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import NotSharedError, RunExistsError
from tailscope.experiment.run.pair import files_of
from tailscope.store.atomic import temporary_folder
from tailscope.store.directory import refuse_foreign
from tailscope.store.owner import owned
from tailscope.store.reader import read_info, read_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tailscope.experiment.run.pair import PairPlan
    from tailscope.store.records.run import FileEntry


class Shared(NamedTuple):
    """Folders that the command shares with its workers."""

    places: tuple[Path, ...]
    """The command's own folder in each of them; absolute."""

    def check(self) -> None:
        """See that this worker sees the folders."""
        for place in self.places:
            if not place.exists():
                raise NotSharedError(
                    f"{place.parent}: not shared with the worker on {os.uname().nodename}",
                    hint="use a folder on storage that all workers see under the same path; "
                    "without --out, --csv and --pages, workers write nothing",
                )

    @contextmanager
    def beside(self, target: Path) -> Iterator[Path]:
        """Have a folder on the file system of a target, until the block or the command ends."""
        [place] = (each for each in self.places if target.is_relative_to(each.parent))
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = place / secrets.token_hex(4)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def shared_folders(*folders: Path) -> Iterator[Shared]:
    """Make folders and share them for a block, at whose end nothing unfinished is left in them."""
    folders = tuple(dict.fromkeys(folders))
    made = [folder for folder in folders if not folder.exists()]
    with ExitStack() as stack:
        for folder in made:
            stack.callback(_remove_empty, folder)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        yield Shared(
            tuple(stack.enter_context(temporary_folder(folder / "shared")) for folder in folders)
        )


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def aside(plan: PairPlan, shared: Shared) -> Iterator[PairPlan]:
    """Plan the same pair with results elsewhere; they are put in place when the block succeeds."""
    with ExitStack() as stack:
        out = csv_folder = None
        if plan.out is not None:
            # The same name: it is what the run is called in its report.
            out = stack.enter_context(shared.beside(plan.out)) / plan.out.name
        if plan.csv_folder is not None:
            capture = plan.csv_folder / files_of(plan.pre)[0].name
            csv_folder = stack.enter_context(shared.beside(capture))
        yield replace(plan, out=out, csv_folder=csv_folder)
        if csv_folder is not None and plan.csv_folder is not None:
            for path in sorted(csv_folder.iterdir()):
                path.replace(plan.csv_folder / path.name)
        if out is not None and plan.out is not None:
            _put_in_place(out, plan.out)


def _put_in_place(run: Path, target: Path) -> None:
    """Rename a complete run; what another worker has finished meanwhile is the same, and stays."""
    if _files(target) == _files(run):
        return
    refuse_foreign(target)
    if target.exists():
        with owned(target):
            target.rename(run.with_name("unfinished"))
    try:
        run.rename(target)
    except OSError:
        if _files(target) != _files(run):
            raise RunExistsError(f"{target}: another run was written there meanwhile") from None


def _files(run: Path) -> Mapping[str, FileEntry] | None:
    """Checksums of a complete run."""
    mark = read_mark(run)
    return None if mark is None or not mark.complete else read_info(run).files
