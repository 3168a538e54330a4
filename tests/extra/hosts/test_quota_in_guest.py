"""A quota of cgroup v2, in a guest whose kernel has it: it is of the end that it throttles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from one_guest import one_guest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from one_guest import Inside

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("dataplane")]

TRAFFIC = ("--rate=200", "--duration=3s", "--drain=2s", "--txtime=off")
ENDS = ("reflector", "sender")
LEAST_NS = 100_000_000
"""What a quota of 1 ms in 400 ms must show as, at least."""
GROUPS = """
mount -t cgroup2 none /sys/fs/cgroup
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/reflector /sys/fs/cgroup/sender
"""


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """Boot a guest with a control group for each end."""
    with one_guest("osnoise", tmp_path_factory.mktemp("guest")) as inside:
        inside.shell(GROUPS)
        inside.reflect(*_in_group("reflector"))
        yield inside


def _in_group(end: str) -> list[str]:
    """Return what starts a program in the group of an end."""
    enter = f'echo $$ >/sys/fs/cgroup/{end}/cgroup.procs; exec "$@"'
    return ["sh", "-ec", enter, "sh"]


@pytest.mark.parametrize("end", ENDS)
def test_a_quota_of_an_end_is_named_and_never_the_network(inside: Inside, end: str) -> None:
    process = inside.start(end, *TRAFFIC, before=_in_group("sender"))
    limit = f"/sys/fs/cgroup/{end}/cpu.max"
    inside.shell(f"sleep 0.5; echo '1000 400000' >{limit}; sleep 1; echo max >{limit}")
    summary, hosts, _ = inside.end(end, process)
    stalls = {"reflector": hosts.reflector_stalls, "sender": hosts.ends.stalls}
    longest = {
        name: max((each.stall_ns_max for each in found if each.cause == "throttled"), default=0)
        for name, found in stalls.items()
    }
    print(longest, summary["latency_ns_max"], hosts.loss, stalls)
    [other] = {*ENDS} - {end}
    assert longest[end] >= LEAST_NS
    assert longest[other] == 0
    assert summary["latency_ns_max"] < longest[end] / 2
    assert hosts.loss.lost == 0
