"""Which processes of a measurement go before other programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from runs import AS_ROOT

from tailscope.testbed.places import Here

AUTOGROUP = Path("/proc/self/autogroup")


@AS_ROOT
@pytest.mark.skipif(not AUTOGROUP.exists(), reason="the kernel has no groups of sessions")
def test_an_urgent_process_goes_before_those_of_other_sessions(tmp_path: Path) -> None:
    """A priority counts within a session alone, unless the session has one, too."""
    own = AUTOGROUP.read_text()
    with Here(tmp_path).start("dut", ["sleep", "60"], urgent=True) as process:
        [pid] = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        assert process.urgent
        assert os.getpriority(os.PRIO_PROCESS, int(pid)) == -20
        assert Path(f"/proc/{pid}/autogroup").read_text().endswith("nice -20\n")
    assert AUTOGROUP.read_text() == own
