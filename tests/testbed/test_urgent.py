"""Processes of a measurement run before those of others, whatever session these are in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailscope.testbed.places import Here


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
@pytest.mark.parametrize(("urgent", "nice"), [(True, -20), (False, 0)])
def test_urgent_is_so_among_all_sessions(tmp_path: Path, urgent: bool, nice: int) -> None:
    """The scheduler groups sessions, so that a nice value alone counts within its own."""
    with Here(tmp_path).start("waits", ["sleep", "60"], urgent=urgent) as process:
        pid = getattr(process, "pid", 0)
        assert os.getpriority(os.PRIO_PROCESS, pid) == nice
        assert process.urgent == urgent
        group = Path(f"/proc/{pid}/autogroup")
        if not group.exists():
            pytest.skip("this kernel has no groups of sessions")
        assert group.read_text().split()[-1] == str(nice)
