"""Packets replayed closer together: against a simulated device, and up to which rate tails hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from docs.calibration import replay as simulated
from docs.calibration.devices import Noise, Setting, fixed, served
from errors import raises

from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.models.replay import (
    Limit,
    Reading,
    Seen,
    Stalls,
    Work,
    highest_rate_within,
    work_of,
)
from tailscope.models.overload.queued import Queues, queues_of

WORK_NS, TRANSFER_NS, APART_NS = 20_000.0, 3_000, 100_000
PACKETS = 4_000
LIMIT = Limit(200_000.0, 0.01)
NEVER = Stalls(np.zeros(0), np.zeros(0))


@pytest.mark.parametrize("batch", [1, 4, 32])
def test_a_replay_is_what_a_device_does(batch: int) -> None:
    """Packet by packet, in batches and with stalls, as one that goes from packet to packet."""
    rng = np.random.default_rng(batch)
    came_ns = np.cumsum(rng.exponential(15_000, 2_000))
    work_ns = rng.uniform(5_000, 25_000, len(came_ns))
    noise = Noise.drawn(rng, 2 * came_ns[-1])
    lasted_ns = noise.end - noise.start
    stalls = Stalls(noise.start - np.cumsum(lasted_ns) + lasted_ns, lasted_ns)
    device = Setting("", fixed(0), 0, batch=batch)
    expected_ns = served(device, came_ns, work_ns, noise) - came_ns
    replayed_ns = Reading(work_ns, stalls, batch).latency_ns(came_ns)
    assert replayed_ns == pytest.approx(expected_ns, abs=1e-3)
    assert expected_ns.max() > 1e6


@pytest.mark.parametrize("batch", [1, 4, 32])
def test_queues_show_the_work_on_each_packet_and_the_batch(batch: int) -> None:
    bursts, size = 30, 128
    sent_ns = (np.arange(bursts)[:, None] * 10_000_000 + np.arange(size) * 100).ravel()
    took_ns = Reading(np.full(len(sent_ns), WORK_NS), NEVER, batch).latency_ns(
        sent_ns.astype(float)
    )
    latency_ns = (took_ns + TRANSFER_NS).astype(np.int64)
    queues = queues_of(np.arange(len(sent_ns)), sent_ns, latency_ns, TRANSFER_NS)
    work = work_of(np.maximum.accumulate(sent_ns + latency_ns), queues)
    assert work.batch == batch
    assert len(work.first) == bursts + 1
    assert work.took_ns == pytest.approx(WORK_NS, abs=2)


def seen(late: slice | None = None, late_ns: float = 0.0) -> Seen:
    """A device without noise, some of whose packets are late in the run at low load."""
    pre_ns = np.arange(PACKETS) * APART_NS
    latency_ns = np.full(PACKETS, WORK_NS + TRANSFER_NS)
    if late is not None:
        latency_ns[late] += late_ns
    work = Work(np.full(2_000, WORK_NS), np.ones(2_000, bool), np.arange(0, 2_001, 100), 1)
    is_clean = np.ones(PACKETS, bool)
    return Seen.of(work, TRANSFER_NS, pre_ns, latency_ns.astype(np.int64), is_clean)


def highest(found: Seen, limit: Limit = LIMIT) -> tuple[float, float, float]:
    rate = highest_rate_within(found, [limit], 51_000.0, np.random.default_rng(1)).rate_pps
    return rate.ci_low, rate.estimate, rate.ci_high


def test_even_work_on_even_packets_holds_up_to_the_capacity() -> None:
    assert highest(seen()) == pytest.approx((1e9 / WORK_NS,) * 3, rel=0.01)


def test_what_holds_up_the_device_lowers_the_rate_long_before() -> None:
    """0.3 ms ten times in 0.4 s: the closer the packets, the longer it takes to catch up."""
    low, rate, high = highest(seen(slice(0, None, 400), 300_000.0))
    assert low < rate <= high
    assert low < 0.6 * 1e9 / WORK_NS


def test_a_limit_that_fails_already_holds_at_no_rate() -> None:
    _, rate, _ = highest(seen(), Limit(WORK_NS, 0.01))
    assert rate == 0


def test_what_held_up_a_batch_belongs_to_one_packet_of_it() -> None:
    """2 ms in one batch of 32 in 25: spread over all 32, they would delay no packet."""
    device = seen(slice(0, None, 3_200), 2e6)
    took_ns = np.full((40, 32 * 25), WORK_NS)
    took_ns[:, :32] += 2e6 / 32
    took_ns = took_ns.ravel()
    begins = np.arange(len(took_ns)) % 32 == 0
    first = np.arange(0, len(took_ns) + 1, 64)
    found = replace(device, work=Work(took_ns, begins, first, 32))
    rates = highest_rate_within(found, [LIMIT], 51_000.0, np.random.default_rng(1))
    alone = highest_rate_within(device, [LIMIT], 51_000.0, np.random.default_rng(1))
    assert alone.by_packet_pps[0] == pytest.approx(1e9 / WORK_NS, rel=0.01)
    assert rates.by_packet_pps[1] < 40_000
    assert rates.by_time_pps[0] <= rates.rate_pps.estimate <= rates.by_time_pps[1]


def test_gaps_that_came_by_chance_may_come_otherwise() -> None:
    """How packets came decides the rate; one sequence of them gave intervals of half a percent."""
    pre_ns = np.cumsum(np.random.default_rng(2).exponential(APART_NS, 20_000)).astype(np.int64)
    latency_ns = np.full(len(pre_ns), int(WORK_NS) + TRANSFER_NS)
    device = Seen.of(seen().work, TRANSFER_NS, pre_ns, latency_ns, np.ones(len(pre_ns), bool))
    low, rate, high = highest(device, Limit(230_000.0, 0.001))
    # Random packets, constant work: by a simulation of 4,000,000 packets.
    assert low <= 35_671 <= high
    assert 0.05 * rate < high - low < 0.5 * rate


def test_few_queues_say_less_than_many() -> None:
    """All queues are drawn as often as they were seen, however many packets are replayed."""
    rng = np.random.default_rng(3)
    took_ns, few = rng.uniform(WORK_NS / 2, WORK_NS * 3 / 2, 200_000), 1_000
    widths = []
    for count in (few, len(took_ns)):
        first = np.arange(0, count + 1, 100)
        work = Work(took_ns[:count], np.ones(count, bool), first, 1)
        low, _, high = highest(replace(seen(), work=work), Limit(1e6, 0.01))
        widths.append(high - low)
    assert widths[0] > 1.5 * widths[1]


def test_too_few_packets_or_queues_are_refused() -> None:
    with raises(EvidenceError, "tail-packets-few"):
        highest(seen(), Limit(200_000.0, 1e-4))
    nothing = np.zeros(0, np.int64)
    with raises(EvidenceError, "tail-queues-few"):
        work_of(np.arange(10), Queues(nothing, nothing, nothing))


@pytest.mark.long
def test_intervals_hold_what_simulated_devices_do() -> None:
    device = simulated.DEVICES[0]
    truth = simulated.true_rate(device)
    found = [simulated.answer(device, seed).ends_pps for seed in range(10)]
    assert sum(low <= truth <= high for low, high in found) >= 9
