"""Queries that wait in a queue of the system until their time, in a guest that has such a queue.

In the guest time passes by instructions: what else this machine does delays nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from between import analysed
from guests import booted, fetch, kernel
from runs import needed

from tailscope.testbed.process import find_binary
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from between import Found

    from tailscope.platforms.guest import Guest

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("dataplane")]

NEAR, FAR = "10.96.0.1", "10.96.0.2"
PATIENCE_S = 240.0
NETWORK = f"""
set -e
ip() {{ /bin/env ip "$@"; }}
mkdir -p /run
echo root:x:0:0:root:/:/bin/sh >/etc/passwd
for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done
ip netns add far
ip link add near0 type veth peer name far0 netns far
ip link set near0 up
ip address add {NEAR}/24 dev near0
ip -n far link set far0 up
ip -n far link set lo up
ip link set lo up
ip -n far address add {FAR}/24 dev far0
"""
TRAFFIC = ("--rate=200", "--duration=3s")
BURSTS = ("--rate=2000", "--duration=1s", "--pattern=burst:150,0ns")
RECORD = ("departures", "stamps", "arrivals", "follow_ups", "stalls")
EARLY_NS = 100_000


class Inside(NamedTuple):
    """A guest with two hosts, of which the far one reflects."""

    guest: Guest
    folder: Path

    def queue(self, *words: str) -> None:
        """Give the near host's interface a queue."""
        self.guest.run(["tc", "qdisc", "replace", "dev", "near0", "root", *words])

    def last_line(self, name: str, *options: str) -> tuple[str, str]:
        """Measure; return where it recorded, and the last line."""
        inside = f"/tmp/{name}"
        self.guest.run(["mkdir", inside])
        words = [str(find_binary()[0]), "sender", "--", f"--to={FAR}:862", f"--record={inside}"]
        process = self.guest.start("sender", [*words, *options], merged=True)
        lines = []
        while (line := process.next_line(PATIENCE_S)) is not None:
            lines.append(line)
        return inside, lines[-1]

    def ask(self, name: str, *options: str, traffic: Sequence[str] = TRAFFIC) -> Found:
        """Measure, and analyse what was recorded."""
        inside, line = self.last_line(name, *traffic, *options)
        folder = self.folder / name
        folder.mkdir()
        for each in RECORD:
            (folder / f"{each}.npy").write_bytes(fetch(self.guest, f"{inside}/{each}.npy"))
        return analysed(folder, FAR, line)


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """Boot a guest, and start a reflector in it."""
    needed("tc", "nsenter")
    folder = tmp_path_factory.mktemp("guest")
    tools = [tool for name in ("tc", "nsenter") if (tool := which(name))]
    with booted(
        kernel("vanilla"),
        folder,
        modules=["veth", "sch_fq", "sch_fq_codel", "sch_netem"],
        programs=[find_binary()[0], *tools],
        counted=True,
    ) as guest:
        guest.run(["sh", "-c", NETWORK], timeout_s=PATIENCE_S)
        words = ["nsenter", "--net=/run/netns/far", str(find_binary()[0]), "reflect", "--"]
        reflector = guest.start("reflect", words, merged=True)
        assert '"ready"' in (reflector.next_line(PATIENCE_S) or "")
        yield Inside(guest, folder)


def test_a_queue_lets_queries_wait_until_their_time(
    inside: Inside, capsys: pytest.CaptureFixture[str]
) -> None:
    inside.queue("fq_codel")
    without = inside.ask("without").record
    inside.queue("fq")
    off, on = inside.ask("off", "--txtime=off").record, inside.ask("on", "--txtime=on").record
    bursts = inside.ask("bursts", traffic=BURSTS).record
    for name, record in (("fq_codel", without), ("fq, off", off), ("fq, on", on)):
        with capsys.disabled():
            print(f"\n{name}: by the {record.ends.departed_by}; late {record.late}")
    assert without.ends.departed_by == off.ends.departed_by == "program"
    assert on.ends.departed_by == bursts.ends.departed_by == "queue"
    assert on.late is not None
    assert off.late is not None
    assert on.late.ns_min >= -EARLY_NS
    assert on.late.ns_p99 < off.late.ns_p99
    for record in (without, off, on):
        assert (record.loss.lost, record.ends.unsent) == (0, 0)
        assert record.ends.stamped == record.ends.sent
    # No more of them wait than the queue has room for.
    assert (bursts.loss.lost, bursts.ends.unsent_refused) == (0, 0)


def test_a_queue_that_delays_all_packets_lets_none_wait(inside: Inside) -> None:
    """It says nothing of their times, although they leave later than they are to."""
    inside.queue("netem", "delay", "20ms")
    delayed = inside.ask("delayed").record
    assert delayed.ends.departed_by == "program"
    assert delayed.loss.lost == 0


def test_a_queue_without_times_is_refused_by_name(inside: Inside) -> None:
    inside.queue("fq_codel")
    _, line = inside.last_line("refused", *TRAFFIC, "--txtime=on")
    assert "no-txtime" in line
