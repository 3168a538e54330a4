"""Who is blamed for packets that were not sent or never came back."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from wording import assert_wording

from tailscope.experiment.run.blame import (
    GIVE_UP_NS,
    HeldBack,
    full_rings,
    held_back_by_generator,
    losses_of,
    none_came_text,
    unsent_texts,
)
from tailscope.store.records import dataplane as records
from tailscope.store.records.dataplane import (
    KernelCounts,
    L2fwdCounts,
    LinkCounts,
    NftablesCounts,
    NoCounts,
    OvsCounts,
    SuricataCounts,
)
from tailscope.store.records.messages import ForwardedPairs, LcoreCounts, PortCounts

MS = 1_000_000


def forwarder(*, sent: int = 0, full: int = 0, on_purpose: int = 0, missed: int = 0) -> L2fwdCounts:
    lcore = LcoreCounts(
        lcore=0,
        cpu=1,
        tid=7,
        iterations=1,
        rx_packets=sent + full + on_purpose,
        tx_packets=sent,
        tx_dropped=full,
        dropped={"no_route": on_purpose},
        stalls=0,
        stall_ns_total=0,
        stall_ns_max=0,
        stalls_unrecorded=0,
    )
    port = PortCounts(
        port=0,
        name="p",
        driver="d",
        rx_packets=0,
        tx_packets=0,
        rx_missed=missed,
        rx_errors=0,
        rx_nombuf=0,
        tx_errors=0,
        link_down_count=0,
        xstats={},
    )
    return L2fwdCounts(
        complete=True,
        hugepages=False,
        started_tsc=0,
        duration_ns=1,
        lcores=[lcore],
        ports=[port],
        l2fwd=ForwardedPairs(pairs=[]),
    )


def links(**counts: int) -> KernelCounts:
    none = dict.fromkeys(LinkCounts.__struct_fields__, 0)
    return KernelCounts(links={"in": LinkCounts(**{**none, **counts})})


def nftables(*, dropped: int | None, **counts: int) -> NftablesCounts:
    return NftablesCounts(links=links(**counts).links, rules_loaded=1, rules=[], dropped=dropped)


def wireguard(*, overflows: int, **counts: int) -> records.WireguardCounts:
    near, far = (
        records.WireguardEndCounts(
            rx_bytes=0, tx_bytes=0, rx_overflows=number, last_handshake_unix_s=1
        )
        for number in (0, overflows)
    )
    return records.WireguardCounts(links=links(**counts).links, near=near, far=far)


def ipsec(**refused: int) -> records.IpsecCounts:
    whole = records.EspCounts(packets=9, bytes=900, replayed=0, failed=0)
    rx = replace(whole, **refused)
    near = records.IpsecEndCounts(rx=whole, tx=whole)
    far = records.IpsecEndCounts(rx=rx, tx=whole)
    return records.IpsecCounts(links=links(tx_dropped=1).links, near=near, far=far)


def pmd(**counts: int) -> records.TestpmdCounts:
    none = dict.fromkeys(records.TestpmdPortCounts.__struct_fields__, 0)
    return records.TestpmdCounts(ports=[records.TestpmdPortCounts(**{**none, **counts})])


def ovs(*, dropped: int = 0, lost: int = 0, **counts: int) -> OvsCounts:
    ports = links(**counts).links
    return OvsCounts(ports=ports, threads={}, flows=2, dropped=dropped, lost=lost)


def suricata(capture: dict[str, Any], dropped: int = 0) -> SuricataCounts:
    return SuricataCounts(dropped=dropped, accepted=0, alerts=0, capture=capture, drop_reasons={})


def test_a_device_is_blamed_by_its_own_counters_alone() -> None:
    nobody = losses_of(10, 0, NoCounts(), "memif")
    assert (nobody.in_dut, nobody.where_unknown, nobody.dropped_by_dut) == (0, 10, None)
    assert losses_of(10, 0, None, "memif").where_unknown == 10
    assert losses_of(10, 0, forwarder(), "memif") == (0, 0, 10, 0)
    assert losses_of(10, 0, forwarder(on_purpose=4), "memif") == (4, 0, 6, 4)
    assert losses_of(10, 0, forwarder(missed=3), "veth") == (3, 0, 7, 0)
    assert losses_of(10, 0, links(rx_dropped=2, tx_errors=1), "veth") == (3, 0, 7, None)
    drops = {"dpdk": {"imissed": 5, "packets": 90}, "kernel_drops": 1}
    assert losses_of(10, 0, suricata(drops, dropped=2), "memif") == (8, 0, 2, 2)


def test_tunnels_are_blamed_for_what_either_end_refused() -> None:
    assert losses_of(9, 0, wireguard(overflows=3, rx_dropped=1), "veth") == (4, 0, 5, None)
    assert losses_of(9, 0, ipsec(replayed=2, failed=3), "veth") == (6, 0, 3, None)


def test_switches_and_rules_are_blamed_by_their_own_counters() -> None:
    assert losses_of(9, 0, nftables(dropped=4, rx_dropped=2), "veth") == (6, 0, 3, 4)
    assert losses_of(9, 0, nftables(dropped=None, tx_errors=2), "veth") == (2, 0, 7, None)
    assert losses_of(9, 0, pmd(rx_dropped=1, rx_nombuf=2), "memif") == (3, 0, 6, None)
    assert losses_of(9, 0, ovs(dropped=3, lost=1, rx_dropped=1), "memif") == (5, 0, 4, 3)
    for counts in (pmd(tx_dropped=5), ovs(tx_dropped=5)):
        assert full_rings(counts, "memif") == 5
        assert losses_of(9, 0, counts, "memif").in_dut == 0
        assert losses_of(9, 0, counts, "veth").in_dut == 5


def test_a_full_ring_is_blamed_on_who_empties_it() -> None:
    """Through shared memory the generator does; a card or link is the device's."""
    assert losses_of(10, 0, forwarder(full=6), "veth").in_dut == 6
    assert losses_of(10, 6, forwarder(full=6), "memif") == (0, 6, 4, 0)


@given(
    lost=st.integers(0, 100),
    in_instrument=st.integers(0, 100),
    on_purpose=st.integers(0, 100),
    missed=st.integers(0, 100),
    uncounted=st.integers(0, 100),
)
def test_parts_of_the_loss_sum_to_it(
    lost: int, in_instrument: int, on_purpose: int, missed: int, uncounted: int
) -> None:
    counts = forwarder(on_purpose=on_purpose, missed=missed)
    found = losses_of(lost, in_instrument, counts, "veth", uncounted)
    assert found.in_dut + found.in_instrument + found.where_unknown == lost
    assert min(found[:3]) >= 0
    assert found.in_dut <= max(0, on_purpose + missed - uncounted)
    assert found.dropped_by_dut is not None and 0 <= found.dropped_by_dut <= found.in_dut


def slowly(
    unsent: list[int], refused: list[bool], stalls: list[tuple[int, int]]
) -> tuple[int, int]:
    """The same a packet and a stall at a time."""
    stalled = slow = 0
    for at, was_refused in zip(unsent, refused, strict=True):
        until = at + GIVE_UP_NS
        held = sum(max(0, min(end, until) - max(start, at)) for start, end in stalls)
        stalled += held > GIVE_UP_NS / 2
        slow += held <= GIVE_UP_NS / 2 and not was_refused
    return stalled, slow


@given(
    unsent=st.lists(st.tuples(st.integers(0, 60 * MS), st.booleans()), max_size=10),
    gaps=st.lists(st.tuples(st.integers(0, 8 * MS), st.integers(1, 12 * MS)), max_size=8),
)
def test_the_generator_comes_first(
    unsent: list[tuple[int, bool]], gaps: list[tuple[int, int]]
) -> None:
    stalls, at = [], 0
    for gap, lasts in gaps:
        stalls.append((at + gap, at + gap + lasts))
        at = stalls[-1][1]
    unsent.sort()
    times, refused = [time for time, _ in unsent], [refused for _, refused in unsent]
    found = held_back_by_generator(
        np.array(times, np.int64),
        np.array(refused, bool),
        np.array([start for start, _ in stalls], np.int64),
        np.array([end for _, end in stalls], np.int64),
    )
    assert found == slowly(times, refused, stalls)


def test_each_reason_has_its_words() -> None:
    assert_wording("blame/unsent", "\n".join(unsent_texts(9, HeldBack(3, 3))))
    assert unsent_texts(0, HeldBack(0, 0)) == []


def none_came(counts: Any, in_instrument: int = 0, foreign: int = 0, **more: Any) -> str:
    losses = losses_of(1000, in_instrument, counts, "memif")
    return none_came_text(1000, losses, counts, **{"has_device": True, "foreign": foreign, **more})


def test_a_device_that_hands_on_nothing_is_told_by_what_it_counts() -> None:
    texts = [
        none_came(NoCounts()),
        none_came(forwarder(on_purpose=900)),
        none_came(forwarder(sent=1000)),
        none_came(forwarder(full=1000), 1000),
        none_came(None, has_device=False),
        none_came(NoCounts(), foreign=7),
    ]
    assert_wording("blame/none-came", "\n".join(texts))
