"""The runs of a campaign, read on workers."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

from tailscope.exceptions import NotSharedError, RunError
from tailscope.extra.cluster.cluster import open_cluster
from tailscope.extra.cluster.shared import shared_folders
from tailscope.extra.cluster.tasks import map_tasks
from tailscope.report.campaign.material import CampaignReading
from tailscope.store.files import MOST_RECORD_BYTES, read_file
from tailscope.store.layout import RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tailscope.cli.progress import TasksDone
    from tailscope.extra.cluster.shared import Shared


def read_runs(
    scheduler: str,
    path: Path,
    names: Sequence[str],
    take: Callable[[str], CampaignReading],
    *,
    is_written: bool,
    progress: Callable[[TasksDone], None] | None = None,
) -> Iterator[CampaignReading]:
    """Read runs of a campaign."""
    with ExitStack() as stack:
        # A copy of a run can be read as well as the run; what is written has to come here.
        shared = stack.enter_context(shared_folders(*([path] if is_written else [])))
        client = stack.enter_context(open_cluster(scheduler))
        items = [(name, _checksum(path / name)) for name in names]
        outcomes = map_tasks(client, partial(_read, take, shared, path), items, progress=progress)
        stack.enter_context(closing(outcomes))
        for name, outcome in zip(names, outcomes, strict=True):
            failed = outcome.error
            if isinstance(failed, NotSharedError):
                raise failed
            if failed is not None:
                yield CampaignReading(name, None, str(failed), False)
            else:
                assert outcome.result is not None, "a reading is returned"
                yield outcome.result


def _read(
    take: Callable[[str], CampaignReading], shared: Shared, path: Path, item: tuple[str, str | None]
) -> CampaignReading:
    """Read a run, which has to be the one that was meant; called on a worker."""
    name, expected = item
    shared.check()
    if expected is not None and _checksum(path / name) != expected:
        raise NotSharedError(
            f"{path / name / RUN}: the worker on {os.uname().nodename} sees another file",
            code="file-differs",
            hint="put the campaign on storage that all workers see under the same path",
        )
    return take(name)


def _checksum(run: Path) -> str | None:
    """Hash the file that says that a run is complete (SHA-256); return None if it is unreadable."""
    try:
        content = read_file(run, RUN, most_bytes=MOST_RECORD_BYTES)
    except (OSError, RunError):
        return None
    return hashlib.sha256(content).hexdigest()
