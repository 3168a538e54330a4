"""Queries that wait in a queue of the system until their time, in a guest that has such a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from one_guest import last_line, one_guest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from between import Found
    from one_guest import Inside

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("dataplane")]

TRAFFIC = ("--rate=200", "--duration=3s")
BURSTS = ("--rate=2000", "--duration=1s", "--pattern=burst:150,0ns")
EARLY_NS = 100_000


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """Boot a guest, and start a reflector in it."""
    modules = ("sch_fq", "sch_fq_codel", "sch_netem", "sch_etf")
    with one_guest("vanilla", tmp_path_factory.mktemp("guest"), *modules) as inside:
        inside.reflect()
        yield inside


def asked(inside: Inside, name: str, *options: str, traffic: Sequence[str] = TRAFFIC) -> Found:
    """Measure, and analyse what was recorded."""
    return inside.end(name, inside.start(name, *traffic, *options))


def test_a_queue_lets_queries_wait_until_their_time(
    inside: Inside, capsys: pytest.CaptureFixture[str]
) -> None:
    inside.queue("fq_codel")
    without = asked(inside, "without").record
    inside.queue("fq")
    off = asked(inside, "off", "--txtime=off").record
    on = asked(inside, "on", "--txtime=on").record
    bursts = asked(inside, "bursts", traffic=BURSTS).record
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
    delayed = asked(inside, "delayed").record
    assert delayed.ends.departed_by == "program"
    assert delayed.loss.lost == 0


@pytest.mark.parametrize(
    ("name", "queue", "code"),
    [
        # No `etf` takes the place of another one.
        ("etf", ["etf", "clockid", "CLOCK_TAI", "delta", "200000"], "other-txtime"),
        ("none", ["fq_codel"], "no-txtime"),
        ("unchecked", ["etf", "clockid", "CLOCK_TAI", "skip_sock_check"], "other-txtime"),
    ],
)
def test_a_queue_without_such_times_is_refused_by_name(
    inside: Inside, name: str, queue: list[str], code: str
) -> None:
    inside.queue(*queue)
    line = last_line(inside.start(name, *TRAFFIC, "--txtime=on"))
    assert code in line
