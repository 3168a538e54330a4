"""Files that workers write into folders they share with the command.

A worker writes beside the place where the result shall be, and puts it there when it is whole: a
worker that is killed leaves nothing in the way of the one that repeats its work, and two that do
the same, because one of them was taken for lost, do not meet.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import NotSharedError, RunExistsError
from tailscope.store.atomic import TEMPORARY_SUFFIX
from tailscope.store.directory import refuse_foreign
from tailscope.store.owner import owned
from tailscope.store.reader import read_info, read_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.experiment.run.pair import PairPlan
    from tailscope.store.records.run import FileEntry

_TOKEN_BYTES = 8


class Shared(NamedTuple):
    """Folders that the command shares with its workers."""

    folders: tuple[Path, ...]
    """Absolute."""
    token: str
    """Names what is written for this command, and marks that it has made in each folder."""

    def check(self) -> None:
        """See that this worker sees the folders."""
        for folder in self.folders:
            if not _mark(folder, self.token).exists():
                raise NotSharedError(
                    f"{folder}: not shared with the worker on {os.uname().nodename}",
                    hint="use a folder on storage that all workers see under the same path; "
                    "without --out, --csv and --pages, workers write nothing",
                )


@contextmanager
def shared_folders(*folders: Path) -> Iterator[Shared]:
    """Make folders and mark them for a block, at whose end nothing unfinished is left in them."""
    shared = Shared(tuple(dict.fromkeys(folders)), secrets.token_hex(_TOKEN_BYTES))
    made = [folder for folder in shared.folders if not folder.exists()]
    try:
        for folder in shared.folders:
            folder.mkdir(parents=True, exist_ok=True)
            _mark(folder, shared.token).touch(mode=0o600)
        yield shared
    finally:
        for folder in shared.folders:
            for left in sorted(folder.rglob(f".*{shared.token}*{TEMPORARY_SUFFIX}")):
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def _mark(folder: Path, token: str) -> Path:
    return folder / f".shared.{token}{TEMPORARY_SUFFIX}"


@contextmanager
def aside(plan: PairPlan, token: str) -> Iterator[PairPlan]:
    """Plan the same pair with results elsewhere; they are put in place when the block succeeds."""
    with ExitStack() as stack:
        out = csv_folder = None
        if plan.out is not None:
            # The same name: it is what the run is called in its report.
            out = stack.enter_context(_private(plan.out, token)) / plan.out.name
        if plan.csv_folder is not None:
            capture = plan.csv_folder / Path(plan.pre).name
            csv_folder = stack.enter_context(_private(capture, token))
        yield replace(plan, out=out, csv_folder=csv_folder)
        if csv_folder is not None and plan.csv_folder is not None:
            for path in sorted(csv_folder.iterdir()):
                path.replace(plan.csv_folder / path.name)
        if out is not None and plan.out is not None:
            _put_in_place(out, plan.out)


@contextmanager
def _private(target: Path, token: str) -> Iterator[Path]:
    """A folder beside a target, on the same file system."""
    folder = target.with_name(f".{token}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
