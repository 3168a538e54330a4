"""What packets a run sends, and what is said of it before anything starts and afterwards."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailscope.exceptions import UsageError
from tailscope.experiment.campaign.spec import load_experiment, schema
from tailscope.experiment.fields import plan_of
from tailscope.experiment.notice import rate_notice
from tailscope.experiment.packets import flow_count, mean_size_bytes
from tailscope.experiment.run.instance import lost_unrecorded, never_came
from tailscope.experiment.run.sent import sent_traffic
from tailscope.store.records.messages import GeneratedTraffic
from tailscope.testbed import wires

if TYPE_CHECKING:
    from pathlib import Path

NS = 1_000_000_000
"""Ticks a second: one is 1 ns."""
NOTHING = dict.fromkeys(
    (
        *("unsent", "duplicated", "corrupt", "foreign", "ambiguous", "unrecorded"),
        *("warm_up_sent", "warm_up_received"),
    ),
    0,
)


def plan(**fields: object) -> Any:
    return plan_of({"dut": "l2fwd", **fields})


def test_losses_of_packets_that_no_figure_has_are_counted_apart() -> None:
    """Counters of ports and devices have them, too."""
    warm_up = {"warm_up_sent": 100, "warm_up_received": 90}
    behind = {"unrecorded_sent": 50, "unrecorded_received": 20}
    counts = GeneratedTraffic(sent=1_000, matched=995, sent_bytes=64_000, **{**NOTHING, **warm_up})
    assert (lost_unrecorded(counts), never_came(counts)) == (10, 15)
    counts = replace(counts, **behind)
    assert (lost_unrecorded(counts), never_came(counts)) == (40, 45)


@pytest.mark.parametrize(
    ("fields", "flows"),
    [
        ({}, 1),
        ({"flows": 7}, 7),
        ({"src_port": "1024..1123"}, 100),
        ({"src_port": 53}, 1),
        ({"src_ip": "10.0.0.1..10.0.0.4", "dst_port": "1..6"}, 12),
        ({"src_ip": "fd00::1..fd00::ff,fd01::1", "dst_ip": "fd00::9", "size": 100}, 256),
        ({"src_port": "1..4", "flows": 4}, 4),
    ],
)
def test_lists_and_ranges_make_flows(fields: dict[str, object], flows: int) -> None:
    found = plan(**fields)
    assert found.flows == flows
    assert f"--flows={flows}" in found.generator_options()


@given(st.tuples(*[st.integers(1, 12)] * 4))
def test_every_combination_of_the_turns_is_one_flow(counts: tuple[int, ...]) -> None:
    hosts = [f"10.0.{at}.1..10.0.{at}.{count}" for at, count in enumerate(counts[:2])]
    ports = [f"1..{count}" for count in counts[2:]]
    turns = {tuple(at % count for count in counts) for at in range(2 * math.lcm(*counts))}
    assert flow_count(*hosts, *ports) == len(turns)


def test_there_are_not_more_flows_than_a_generator_keeps() -> None:
    assert flow_count("10.0.0.1..10.0.0.255", "10.0.1.1", "1..257", "53") == 65_535
    with raises(UsageError, "too-many-flows") as refused:
        flow_count("10.0.0.0..10.0.0.255", "10.0.1.1", "1..257", "53")
    assert "65792" in str(refused.value)


def test_a_mix_stands_in_the_same_field_as_a_size() -> None:
    single, mix = plan(size=128), plan(size="imix")
    assert (single.size_bytes, single.size_mix) == (128, None)
    assert (mix.size_bytes, mix.size_mix) == (None, "64:7,594:4,1518:1")
    assert mean_size_bytes(mix) == (64 * 7 + 594 * 4 + 1518) / 12
    assert plan(size="64:7,594:4,1518:1") == mix
    assert plan(size="128:3") == single


@pytest.mark.parametrize(
    ("fields", "named", "code"),
    [
        ({"size": "64,128"}, "--size: got '64,128'", "frame-size"),
        ({"size": "64:0"}, "--size: got '64:0'", "frame-size"),
        (
            {"size": "64:1,2000:1"},
            "--size: got 2000 of 64:1,2000:1, expected 64 to 1518",
            "frame-size",
        ),
        ({"vlan": 7}, "--size: got 64, expected 68 to 1518", "frame-size"),
        ({"protocol": "tcp"}, "--size: got 64, expected 76 to 1518", "frame-size"),
        ({"protocol": "tcp", "size": "imix"}, "--size: got 64 of 64:7", "frame-size"),
        (
            {"src_ip": "fd00::1", "dst_ip": "fd00::2"},
            "--size: got 64, expected 84 to 1518",
            "frame-size",
        ),
        ({"src_ip": "fd00::1"}, "--dst-ip: got 10.0.1.1", "address-family"),
        ({"src_ip": "10.0.0.5..10.0.0.1"}, "--src-ip: got '10.0.0.5..10.0.0.1'", "value-range"),
        ({"src_ip": "10.0.0.1..fd00::1"}, "--src-ip: got '10.0.0.1..fd00::1'", "value-range"),
        ({"dst_port": "1..70000"}, "--dst-port: got '1..70000'", "value-range"),
        (
            {"src_ip": "10.0.0.1,fd00::1"},
            "--dst-ip: got 10.0.1.1",
            "address-family",
        ),
        ({"src_mac": "here"}, "--src-mac: got 'here'", "mac-address"),
        ({"vlan": 4095}, "--vlan: got 4095, expected 1 to 4094", "out-of-range"),
        ({"flows": 3, "src_port": "1..4"}, "--flows: got 3, expected 4", "flow-count"),
        ({"burst_gap": "1us"}, "--burst-gap: got 1us", "requires-burst"),
        ({"burst": 11, "burst_gap": "1ms", "rate": 1000}, None, None),
        (
            {"burst": 11, "burst_gap": "1ms", "rate": 1100},
            "--burst-gap: a burst of 11",
            "burst-gap",
        ),
        ({"pattern": "captured"}, "--pattern: got captured", "requires-replay"),
        ({"replay": "a.pcap", "vlan": 3}, "--vlan: got 3", "option-beside-replay"),
        ({"replay": "a.pcap", "size": "imix"}, "--size: got imix, ", "option-beside-replay"),
        ({"replay": "a.pcap", "rate": "1Gbps"}, "--rate: got '1Gbps', ", "rate"),
        ({"replay": "a.pcap", "warm_up": "1s"}, "--warm-up: got 1s, expected 0s", "replay-warm-up"),
        ({"replay": "a.pcap", "pattern": "poisson"}, "--pattern: got poisson", "replay-pattern"),
        (
            {"dut": "router", "wire": "veth", "vlan": 3, "size": 68},
            "--vlan: got 3, expected none",
            "dut-vlan",
        ),
        ({"encap": "l2tp"}, "--encap: ", "tunnel"),
        ({"encap": "gre", "size": 80}, "--size: got 80, expected 88 to 1518", "frame-size"),
        ({"encap": "gre", "size": 88}, None, None),
        (
            {"encap": "gre:src=fd00::1", "size": 200},
            "--encap: got gre:src=fd00::1",
            "address-family",
        ),
        (
            {"dut": "router", "wire": "veth", "encap": "gre", "size": 100},
            "--encap: got gre, expected none",
            "dut-encap",
        ),
        (
            {"dut": "router", "wire": "veth", "dst_ip": "10.0.1.9"},
            "--dst-ip: got 10.0.1.9",
            "dut-address",
        ),
        ({"dut": "wireguard", "dst_ip": "10.0.1.9"}, "--dst-ip: got 10.0.1.9", "dut-address"),
        (
            {"dut": "xdp", "wire": "veth", "direction": "both"},
            "--direction: got both, expected one",
            "dut-direction",
        ),
    ],
)
def test_what_cannot_be_sent_is_said_before_anything_starts(
    fields: dict[str, object], named: str | None, code: str | None
) -> None:
    if named is None or code is None:
        plan(**fields)
        return
    with raises(UsageError, code) as refused:
        plan(**fields)
    assert str(refused.value).startswith(named)


def test_a_replay_has_its_own_times_unless_there_is_a_rate() -> None:
    own, rated = plan(replay="a.pcap"), plan(replay="a.pcap", rate="20k")
    assert (own.pattern, own.warm_up_ns) == ("captured", 0)
    assert rated.pattern == "cbr"
    assert not any(option.startswith("--rate") for option in own.generator_options())
    assert "--rate=20000" in rated.generator_options()


def test_two_directions_have_a_directory_each(tmp_path: Path) -> None:
    both = plan(direction="both")
    assert both.folders(tmp_path) == [tmp_path / "forth", tmp_path / "back"]
    several = plan(direction="both", instances=2)
    assert [str(path.relative_to(tmp_path)) for path in several.folders(tmp_path)] == [
        "instance-1/forth",
        "instance-1/back",
        "instance-2/forth",
        "instance-2/back",
    ]


def write_experiment(folder: Path, text: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(f"name: t\n{text}")
    return path


def test_a_block_of_traffic_says_what_fields_outside_of_it_do(tmp_path: Path) -> None:
    block = "fixed:\n  dut: l2fwd\n  traffic:\n    rate: 20k\n    size: imix\n    vlan: 7\n"
    flat = "fixed: {dut: l2fwd, rate: 20k, size: imix, vlan: 7}\n"
    vary = "vary:\n  kind:\n    plain: {}\n    bursts: {traffic: {burst: 8, burst_gap: 1us}}\n"
    found = [load_experiment(write_experiment(tmp_path, each + vary))[0] for each in (block, flat)]
    assert found[0].fixed.given() == found[1].fixed.given()
    assert found[0].fixed.given()["size"] == "imix"
    labels = found[0].vary["kind"]
    assert isinstance(labels, dict)
    assert labels["bursts"].given() == {"burst": 8, "burst_gap": "1us"}
    properties = schema()["$defs"]["Traffic"]["properties"]
    assert {"rate", "size", "flows", "direction", "replay"} <= set(properties)
    assert not {"wire", "dut", "duration"} & set(properties)


@pytest.mark.parametrize(
    ("text", "named", "code"),
    [
        ("fixed:\n  traffic:\n    duration: 1s\n", ":4: fixed.traffic.duration: ", "unknown-field"),
        ("fixed:\n  traffic:\n    sise: 64\n", " size?", "unknown-field"),
        ("fixed:\n  rate: 1k\n  traffic: {rate: 2k}\n", ":4: fixed.traffic.rate: ", "field-twice"),
        ("fixed:\n  traffic: 5\n", ":3: fixed.traffic: got 5", "field-value"),
        (
            "fixed:\n  dut: l2fwd\n  traffic:\n    burst: 600\n",
            ":5: fixed.traffic.burst: got 600",
            "field-value",
        ),
        (
            "fixed:\n  traffic:\n    size: 64,128\n",
            ":4: fixed.traffic.size: got '64,128'",
            "frame-size",
        ),
        (
            "fixed:\n  traffic:\n    size: 12\n",
            ":4: fixed.traffic.size: got 12, expected 64 to 1518",
            "out-of-range",
        ),
    ],
)
def test_a_block_of_traffic_is_checked(tmp_path: Path, text: str, named: str, code: str) -> None:
    with raises(UsageError, code) as refused:
        load_experiment(write_experiment(tmp_path, text))
    assert named in str(refused.value)


@given(
    size=st.integers(2, 5),
    gap_ns=st.integers(0, 50),
    skipped=st.sets(st.integers(0, 59)),
    late_ns=st.lists(st.integers(0, 30), min_size=60, max_size=60),
)
def test_what_left_is_compared_with_what_was_asked(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    gap_ns: int,
    skipped: set[int],
    late_ns: list[int],
) -> None:
    """Against bursts that are looked at one by one."""
    folder = tmp_path_factory.mktemp("recording")
    rate_pps = 1_000_000
    intended = [slot // size * size * 1000 + slot % size * gap_ns for slot in range(60)]
    departed = list(np.maximum.accumulate([a + b for a, b in zip(intended, late_ns, strict=True)]))
    # Of a burst whose packets were due together, the first are the ones that did not leave.
    left = [slot for slot in range(60) if slot not in skipped]
    if gap_ns == 0:
        left = [
            slot
            for slot in range(60)
            if slot % size >= sum(1 for each in skipped if each // size == slot // size)
        ]
    if not left:
        return
    lost = [slot for slot in range(60) if slot not in left]
    for name, values in {
        "intended_tsc": [intended[slot] for slot in left],
        "departure_tsc": [departed[slot] for slot in left],
        "unsent_tsc": [intended[slot] for slot in lost],
    }.items():
        np.save(folder / f"{name}.npy", np.array(values, np.uint64))
    counts = GeneratedTraffic(sent=len(left), matched=0, sent_bytes=64 * len(left), **NOTHING)
    asked = plan(rate=rate_pps, burst=size, burst_gap=f"{gap_ns}ns")
    found = sent_traffic(asked, counts, folder, NS)
    unrecorded = replace(counts, unrecorded_sent=1)
    assert sent_traffic(asked, unrecorded, folder, NS).burst_gap_ns_mean is None
    pairs = [(a, b) for a, b in pairwise(left) if b == a + 1 and b % size]
    gaps = [int(departed[b] - departed[a]) for a, b in pairs]
    assert (found.asked_burst_gap_ns, found.frame_bytes_mean) == (gap_ns, 64)
    if gaps:
        assert (found.burst_gap_ns_min, found.burst_gap_ns_max) == (min(gaps), max(gaps))
        assert found.burst_gap_ns_mean == pytest.approx(sum(gaps) / len(gaps))
    starts = [slot for slot in left if slot % size == 0]
    if len(starts) > 1:
        lasted = int(departed[starts[-1]] - departed[starts[0]])
        bursts = (starts[-1] - starts[0]) // size
        assert found.burst_period_ns_mean == pytest.approx(lasted / bursts)


@pytest.mark.parametrize(
    ("fields", "expected_pps"),
    [
        ({}, 1_488_095),
        ({"size": 1518}, 81_274),
        # A mean of 361.83 bytes.
        ({"size": "imix"}, 327_367),
    ],
)
def test_a_rate_in_bits_is_that_of_the_frames_that_are_sent(
    fields: dict[str, object], expected_pps: int
) -> None:
    assert plan(rate="1Gbps", **fields).rate_pps == expected_pps


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"rate": "100M"}, True),
        ({"rate": "1M"}, False),
        ({"replay": "a.pcap"}, False),
        ({"rate": "100M", "wire": "pci"}, False),
    ],
)
def test_a_rate_that_the_wire_does_not_carry_is_said_before(
    fields: dict[str, object], says: bool
) -> None:
    notice = rate_notice(plan(**fields))
    assert (notice is not None) == says
    assert notice is None or notice.startswith("--rate: ")


def test_a_link_carries_its_line_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text("1000\n")
    monkeypatch.setattr(wires, "_LINKS", tmp_path)
    cards = {"generator": "a+b", "dut": "c+d"}
    sent = {"wire": "pci", "wire_options": cards, "size": 1518}
    assert rate_notice(plan(rate="81274", **sent)) is None
    assert rate_notice(plan(rate="81275", **sent)) is not None
