"""What packets alone say: of simulated devices, of known captures, and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pattern_devices as devices
import pytest
from foreign.catalogue import CASES
from foreign.files import packet, pcap
from foreign.frames import CLIENT6, SERVER6, ethernet, ipv6, tcp, udp_frame
from pattern_grid import NOISE_NS, cases, outcome_of
from pattern_qdiscs import captured, kinds, wrong
from runs import AS_ROOT
from synthetic import info_of

from tailscope.extra.patterns import source
from tailscope.extra.patterns.explain import explain_packets, patterns_of
from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.bucket import policer
from tailscope.extra.patterns.models.detect import detect
from tailscope.extra.patterns.models.distances import distances
from tailscope.extra.patterns.models.levels import divided
from tailscope.extra.patterns.models.paths import ecmp
from tailscope.extra.patterns.models.retransmissions import Segments, retransmissions
from tailscope.extra.patterns.models.series import Losses, Series
from tailscope.extra.patterns.models.timer import timer
from tailscope.extra.patterns.source import Searched
from tailscope.extra.patterns.words import evidence_text, stalls_text

if TYPE_CHECKING:
    from pathlib import Path

    from pattern_grid import Case

    from tailscope.extra.patterns.records import PatternsRecord

Run = Callable[..., Any]

PACKETS = 3000
HEADERS = 42
"""Bytes of Ethernet, IP and UDP."""
PATTERNS = {
    "queue",
    "token bucket",
    "policer",
    "batching",
    "ECMP",
    "reordering",
    "periodic stall",
}


def one_of_each() -> list[Case]:
    """The first case of each kind."""
    first: dict[str, Case] = {}
    for case in cases(PACKETS):
        first.setdefault(case.kind, case)
    return [*first.values()]


@pytest.mark.parametrize("case", one_of_each(), ids=lambda case: case.kind)
def test_a_simulated_device_is_named_for_what_it_is(case: Case) -> None:
    outcome = outcome_of(case, 0, 0.0)
    assert outcome.named <= case.true
    assert not outcome.off
    # A bucket behind a link is hidden by the link's own queue at times.
    assert outcome.named >= case.wanted or case.kind.startswith(("stall", "link, then"))


@pytest.mark.long
def test_of_many_devices_nearly_none_is_named_wrongly() -> None:
    outcomes = [
        outcome_of(case, seed, noise_ns)
        for seed, noise_ns in enumerate(NOISE_NS, 100)
        for case in cases(12_000)
    ]
    verdicts = [each.verdict for each in outcomes]
    assert verdicts.count("wrong") <= 0.01 * len(verdicts)
    assert verdicts.count("right") >= 0.97 * len(verdicts)


@AS_ROOT
@pytest.mark.long
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", [*kinds()], ids=lambda kind: kind.name)
def test_a_device_of_the_kernel_is_named_by_its_command(kind: Any, tmp_path: Path) -> None:
    detected = detect(captured(kind, tmp_path))
    assert not wrong(kind, detected)
    named = {each.pattern for each in detected.answers if isinstance(each, Finding)}
    assert named >= kind.wanted


def test_every_pattern_is_named_or_refused() -> None:
    one = Series(np.zeros(1, np.int64), np.full(1, 1000))
    answers = detect(one).answers
    assert {each.pattern for each in answers} == PATTERNS
    assert not any(isinstance(each, Finding) for each in answers)


@pytest.mark.filterwarnings("error")
def test_no_series_is_too_odd_to_be_searched() -> None:
    rng = np.random.default_rng(5)
    for packets in (1, 2, 3, 30, 300):
        for spread_ns in (1, 1000, 10**7):
            came = np.sort(rng.integers(0, packets * rng.choice([1, 100, 10**6]), packets))
            lost = np.sort(rng.integers(0, came[-1] + 1, rng.choice([0, 1, 25, 60])))
            series = Series(
                came - came[0],
                rng.integers(0, spread_ns, packets),
                rng.choice([0, 64, 1500], packets),
                rng.integers(0, 3, packets),
                Losses(lost, np.full(len(lost), 64)),
            )
            assert {each.pattern for each in detect(series).answers} >= PATTERNS - {"queue"}


def stalling(period_ns: float, seed: int) -> Series:
    """A device of 20 µs that stalls for 2 ms, once in a time on average or exactly."""
    rng = np.random.default_rng(seed)
    sent_ns = np.sort(rng.integers(0, 20 * 10**9, 200_000))
    latency_ns = rng.normal(20_000, 500, len(sent_ns))
    for begin_ns in rng.uniform(0, 20e9, round(20e9 / period_ns)):
        within = (sent_ns >= begin_ns) & (sent_ns < begin_ns + 2_000_000)
        latency_ns[within] += begin_ns + 2_000_000 - sent_ns[within]
    return Series(sent_ns - sent_ns[0], latency_ns.astype(np.int64))


@pytest.mark.parametrize("stalls", [1, 7, 20])
def test_irregular_stalls_are_told_though_nothing_names_them(stalls: int) -> None:
    series = stalling(20e9 / stalls, stalls)
    found = patterns_of(Searched(series, 200_000, 0, 199_999), 0.9999)
    told = found.unnamed_stalls
    assert told is not None
    assert not found.named
    assert 0 <= stalls - told.stalls <= 1
    assert 1_500_000 < told.duration_ns_p50 <= told.duration_ns_max < 2_050_000
    assert told.observed_s == pytest.approx(20, rel=0.01)
    assert told.slow_share > 0.7


def waits_ns(came_ns: np.ndarray, begin_ns: np.ndarray, held_ns: int) -> np.ndarray:
    """How long packets wait for the end of stalls, which begin in order of time."""
    last = np.searchsorted(begin_ns, came_ns, "right") - 1
    return np.where(last < 0, 0, np.maximum(begin_ns[last] + held_ns - came_ns, 0))


def every(period_ns: float, first: float = 0.3) -> np.ndarray:
    """Moments within 10 s."""
    return np.arange(first * period_ns, 10e9, period_ns)


def jittering(rng: np.random.Generator, *stalls: tuple[np.ndarray, int], jitter_ns: int) -> Series:
    """A FIFO device of 5 µs that stalls at some moments of 10 s, each time for so long."""
    came_ns = np.cumsum(rng.exponential(25_000, 400_000))
    took_ns = 5_000 + np.abs(rng.normal(0, 200, len(came_ns)))
    took_ns += rng.exponential(jitter_ns, len(came_ns))
    took_ns += np.max([waits_ns(came_ns, *each) for each in stalls], axis=0)
    left_ns = came_ns + took_ns
    if jitter_ns:
        in_turn_ns = 1_000 * np.arange(len(came_ns))
        left_ns = np.maximum.accumulate(left_ns - in_turn_ns) + in_turn_ns
    came_ns, left_ns = came_ns.astype(np.int64), left_ns.astype(np.int64)
    return Series(came_ns - came_ns[0], left_ns - came_ns)


def searched(series: Series) -> PatternsRecord:
    count = len(series.arrival_ns)
    return patterns_of(Searched(series, count, 0, count - 1), None)


@pytest.mark.parametrize(("jitter_ns", "missing"), [(0, []), (5_000, []), (5_000, [4, 9])])
def test_stalls_slower_than_any_rate_searched_tell_their_period(
    jitter_ns: int, missing: list[int]
) -> None:
    begin_ns = np.delete(every(0.7e9, 0.5), missing)
    series = jittering(np.random.default_rng(7), (begin_ns, 3_000_000), jitter_ns=jitter_ns)
    found = searched(series)
    told = found.unnamed_stalls
    assert told is not None
    assert told.distances is not None
    assert (told.stalls, told.distances.on_time) == (len(begin_ns), len(begin_ns) - 1)
    assert told.duration_ns_min > 2_500_000
    assert told.distances.period_ns == pytest.approx(0.7e9, rel=1e-3)
    assert told.distances.distance_ns_mean == pytest.approx(np.diff(begin_ns).mean(), rel=1e-3)
    assert f"every 0.700 s (all {len(begin_ns) - 1} distances" in stalls_text(told)
    [refused] = [each.reason for each in found.refused if each.pattern == "periodic stall"]
    assert "follow no rate from 1.5 to 2,000 Hz" in refused


def test_stalls_at_random_have_no_period() -> None:
    rng = np.random.default_rng(8)
    series = jittering(rng, (np.sort(rng.uniform(0, 10e9, 14)), 3_000_000), jitter_ns=5_000)
    told = searched(series).unnamed_stalls
    assert told is not None
    assert "at no period that can be told" in stalls_text(told)


def test_random_moments_are_hardly_ever_taken_for_a_period() -> None:
    rng = np.random.default_rng(3)
    came_ns = np.arange(0, 10**10, 10**6)
    moments = (np.sort(rng.uniform(0, 1e10, 5 + number % 46)) for number in range(200))
    told = [distances(each.astype(np.int64), came_ns) for each in moments]
    assert sum(each is not None and each.period_ns is not None for each in told) <= 1


@pytest.mark.parametrize("is_burst", [False, True])
def test_packets_that_come_in_a_rhythm_tell_no_period(is_burst: bool) -> None:
    moments_ns = np.arange(1, 12) * 700_000_000
    bursts_ns = (moments_ns[:, None] + np.arange(20) * 1_000).ravel()
    told = distances(moments_ns, bursts_ns if is_burst else np.arange(0, 8 * 10**9, 10**6))
    assert told is not None
    assert told.period_ns == (None if is_burst else 700_000_000)


def test_the_clock_that_makes_the_tail_comes_first() -> None:
    rng = np.random.default_rng(4)
    clocks = ((every(1e9 / 250), 6_000), (every(1e9 / 97, 0.6), 12_000))
    [stall] = searched(jittering(rng, *clocks, jitter_ns=0)).named
    assert stall.pattern == "periodic stall"
    assert stall.figures["rate_hz"] == pytest.approx(97, rel=1e-4)
    assert stall.figures["other_rates_hz"] == pytest.approx((250,), rel=1e-4)
    text = evidence_text(stall)
    assert text.index("(97 Hz)") < text.index("others by 250 Hz (up to 6.")


def test_rare_stalls_are_told_beside_a_clock() -> None:
    clocks = ((every(1e9 / 250), 6_000), (every(0.7e9, 0.5), 3_000_000))
    told = searched(jittering(np.random.default_rng(5), *clocks, jitter_ns=0)).unnamed_stalls
    assert told is not None
    assert "every 0.700 s" in stalls_text(told)


def test_a_device_that_queues_has_no_stalls() -> None:
    rng = np.random.default_rng(8)
    sent_ns = np.cumsum(rng.exponential(30_000, 40_000)).astype(np.int64)
    left_ns = np.zeros(len(sent_ns), np.int64)
    before = 0
    for at, came in enumerate(sent_ns.tolist()):
        before = left_ns[at] = max(before, came) + 20_000
    series = Series(sent_ns - sent_ns[0], left_ns - sent_ns)
    assert patterns_of(Searched(series, 40_000, 0, 39_999), 0.999).unnamed_stalls is None


@pytest.mark.parametrize("noise_ns", [0.0, 300.0])
@pytest.mark.parametrize("kind", ["random", "bursts"])
def test_a_full_queue_holds_the_packet_in_work_too(kind: str, noise_ns: float) -> None:
    rng = np.random.default_rng(11)
    sent = devices.traffic(kind, rng, packets=8000, pps=5e4)
    left = [*devices.fifo(sent, rate=5e4 / 1.5, limit=100, unit="packets")]
    (queue,) = (
        each
        for each in detect(devices.series_of(sent, left, rng, noise_ns)).answers
        if each.pattern == "full queue"
    )
    assert isinstance(queue, Finding) and queue.figures["limit_packets"] == 100


def test_where_a_queue_never_empties_nothing_is_without_a_delay() -> None:
    rng = np.random.default_rng(12)
    sent = devices.traffic("random", rng, packets=8000, pps=5e4)
    left = [*devices.fifo(sent, rate=4e4, limit=100, unit="packets")]
    series = devices.series_of(sent, left, rng)
    found = patterns_of(Searched(series, 8000, 0, 7999), None)
    assert found.undelayed_ns is None
    assert found.fastest_ns == series.latency_ns.min() == 45_000


def test_a_policer_of_a_long_capture_is_named() -> None:
    """It is never full, so that what a rate is off by adds up over all packets."""
    rng = np.random.default_rng(13)
    sent = devices.traffic("random", rng, packets=100_000, pps=1e4)
    left = [*devices.police(sent, rate=8e6, burst=30_000)]
    found = policer(devices.series_of(sent, left, rng))
    assert isinstance(found, Finding)
    assert found.figures["exceeding_share"] > 0.99
    assert found.figures["rate_bytes_per_s"] == pytest.approx(8e6, rel=1e-5)
    assert found.figures["burst_bytes"] == pytest.approx(30_000, rel=1e-3)


@pytest.mark.parametrize("paths", [1, 2])
def test_flows_that_are_more_work_take_no_path_of_their_own(paths: int) -> None:
    """Odd flows take 25 µs, the others 15: one behind the other, or beside each other."""
    rng = np.random.default_rng(7)
    arrival_ns = np.cumsum(rng.exponential(100_000, 10_000)).astype(np.int64)
    flow = rng.integers(0, 8, len(arrival_ns))
    latency_ns = 15_000 + 10_000 * (flow % 2) + rng.integers(0, 100, len(arrival_ns))
    if paths == 1:
        free_ns = 0
        for at, (came_ns, takes_ns) in enumerate(zip(arrival_ns, latency_ns.copy(), strict=True)):
            free_ns = max(free_ns, came_ns) + takes_ns
            latency_ns[at] = free_ns - came_ns
    answer = ecmp(Series(arrival_ns, latency_ns, flow=flow)).answer
    assert isinstance(answer, Finding) == (paths == 2)
    if isinstance(answer, Refusal):
        assert "on one path" in answer.reason


def test_levels_have_next_to_nothing_between_them() -> None:
    rng = np.random.default_rng(1)
    near, far = rng.normal(0, 1, 900), rng.normal(100, 1, 100)
    (bound,) = divided(np.append(near, far), 0.02)
    assert 5 < bound < 95
    assert not len(divided(np.append(near, rng.uniform(0, 100, 300)), 0.02))
    assert not len(divided(rng.pareto(1, 5000), 0.02))


def test_a_timer_is_found_though_it_misses_a_turn() -> None:
    turns = np.delete(np.arange(100), [20, 21, 60])
    found = timer((turns * 1000 + np.arange(len(turns)) % 3).astype(np.int64))
    assert found.period_ns == pytest.approx(1000, rel=1e-3)
    assert found.on_time == 1
    rng = np.random.default_rng(1)
    assert timer(np.cumsum(rng.exponential(1000, 500)).astype(np.int64)).on_time < 0.5


def run_of(sent: list[Any], left: list[int | None], folder: Path, tailscope: Run) -> Path:
    """A run directory of captures before and behind a device."""
    start = 1_700_000_000_000_000_000
    frames = [udp_frame(number, size=each.size - HEADERS) for number, each in enumerate(sent)]
    before = [(start + each.at_ns, frame) for each, frame in zip(sent, frames, strict=True)]
    behind = sorted(
        (start + gone, frame) for gone, frame in zip(left, frames, strict=True) if gone is not None
    )
    paths = []
    for name, packets in (("pre", before), ("post", behind)):
        paths.append(folder / f"{name}.pcap")
        paths[-1].write_bytes(pcap([packet(*each) for each in packets]))
    done = tailscope("analyze", *paths, "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_explain_names_a_shaper_and_its_queue(tailscope: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    sent = devices.traffic("bursts", rng, packets=2500, pps=2000, sizes=(100,))
    left = [*devices.token_bucket(sent, rate=2e5, burst=2_000, limit_bytes=8_000)]
    run = run_of(sent, left, tmp_path, tailscope)
    done = tailscope("explain", run, "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tail"] is None and found["packet"] is None
    named = {each["pattern"]: each for each in found["patterns"]["named"]}
    assert named.keys() == {"full queue", "token bucket"}
    bucket, queue = named["token bucket"]["figures"], named["full queue"]["figures"]
    assert bucket["burst_bytes"] == pytest.approx(2_000, rel=0.1)
    assert queue["rate_bytes_per_s"] == pytest.approx(2e5, rel=0.01)
    assert queue["limit_packets"] == pytest.approx(81, abs=2)
    assert queue["lost_packets"] == left.count(None)
    assert named["full queue"]["slow_share"] == 1
    words = tailscope("explain", run)
    assert words.returncode == 0 and not words.stderr
    assert "full queue " in words.stdout and "token bucket " in words.stdout
    story = tailscope("explain", run, "--packet", "0")
    assert story.returncode == 0 and story.stdout.startswith("packet 0, ")


def test_without_a_match_there_is_nothing_to_say() -> None:
    nothing = np.zeros(0, np.int64)
    found = patterns_of(Searched(Series(nothing, nothing), 0, 0, 0), None)
    assert found.slow == 0 and found.threshold_ns is None
    assert not found.named and not found.refused


@pytest.mark.parametrize("packets", [1, 40])
def test_explain_of_captures_never_ends_in_an_error(
    packets: int, tailscope: Run, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    sent = devices.traffic("even", rng, packets=60, pps=1000)
    left = [packet.at_ns + 1000 if at < packets else None for at, packet in enumerate(sent)]
    run = run_of(sent, left, tmp_path, tailscope)
    done = tailscope("explain", run, "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["patterns"]
    assert found["packets"] == packets and not found["named"]
    assert tailscope("explain", run).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("pair", "named"),
    [
        ("noms2020/dpdk-l2fwd/hw", {"periodic stall"}),
        ("noms2020-vm/dpdk-l2fwd", {"periodic stall"}),
        ("noms2020/snort-filter/hw", set()),
        ("noms2020/motivation", set()),
        ("hipnet21/snort-filter-tlbshootdown/vm", set()),
    ],
)
def test_captures_of_known_kinds(
    pair: str, named: set[str], data: Path, tailscope: Run, tmp_path: Path
) -> None:
    """A forwarder under a 250 Hz tick; Snort, whose rare delays follow no clock."""
    sides = (next((data / pair).glob(f"*-{side}-*.pcap.zst")) for side in ("pre", "post"))
    assert tailscope("analyze", *sides, "--out", tmp_path / "run").returncode == 0
    found = json.loads(tailscope("explain", tmp_path / "run", "--json", "-").stdout)
    assert {each["pattern"] for each in found["patterns"]["named"]} == named


def segments(rows: list[tuple[int, ...]]) -> Segments:
    """Segments of (time in ms, flow, sequence number, bytes, identification, lost)."""
    columns = np.array(rows, np.int64).T
    return Segments(columns[0] * 1_000_000, *columns[1:5], columns[5].astype(bool))


def test_retransmissions_are_told_from_copies_and_probes() -> None:
    sent = [(at, at % 2, 1000 + 100 * at, 100, at, at % 5 == 0) for at in range(60)]
    again = [(at + 70, at % 2, 1000 + 100 * at, 100, 100 + at, 0) for at in range(0, 60, 5)]
    copies = [(at, flow, sequence, size, ident, 0) for at, flow, sequence, size, ident, _ in sent]
    probes = [(300 + at, 0, 1000 + 100 * at, 1, 900 + at, 0) for at in range(0, 40, 2)]
    other = [(400 + at, 7, 1000 + 100 * at, 100, at, 0) for at in range(60)]
    found = retransmissions(segments(sorted(sent + copies) + again + probes + other))
    assert isinstance(found, Finding)
    assert found.figures == {
        "retransmitted_segments": 12,
        "tcp_segments": 212,
        "retransmitted_share": 12 / 212,
        "retransmitting_flows": 2,
        "lost_between_captures": 12,
        "repeated_after_ns_p50": 70_000_000,
    }
    few = retransmissions(segments(sent + again[:9]))
    assert isinstance(few, Refusal)
    assert "9 of 69" in few.reason


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("TCP retransmissions, lost in the device", 10),
        ("TCP retransmissions, lost before both taps", None),
    ],
)
def test_retransmissions_of_captures(
    tailscope: Run, tmp_path: Path, kind: str, lost: int | None
) -> None:
    """What was lost before both captures is seen once: nothing there was sent twice."""
    made = CASES[kind].make(tmp_path)
    run = tmp_path / "run"
    assert tailscope("analyze", *made.arguments, "--out", run).returncode == 0
    done = tailscope("explain", run, "--json", "-")
    assert done.returncode == 0, done.stderr
    patterns = json.loads(done.stdout)["patterns"]
    named = {each["pattern"]: each["figures"] for each in patterns["named"]}
    if lost is None:
        assert "retransmissions" not in named
    else:
        found = named["retransmissions"]
        assert (found["retransmitted_segments"], found["lost_between_captures"]) == (lost, lost)
        assert found["tcp_segments"] == 4000 + lost
        assert abs(found["repeated_after_ns_p50"] - 30_050_000) < 10_000
    made.arguments[0].unlink()
    done = tailscope("explain", run, "--json", "-")
    patterns = json.loads(done.stdout)["patterns"]
    refused = {each["pattern"]: each["reason"] for each in patterns["refused"]}
    assert "cannot be read again" in refused["retransmissions"]


def test_segments_of_ipv6_are_read(tailscope: Run, tmp_path: Path) -> None:
    def frame(number: int) -> bytes:
        at = number if number < 40 else number - 20
        segment = tcp(bytes(100), 1000 + at * 100, src=CLIENT6, dst=SERVER6)
        return ethernet(ipv6(6, segment), 0x86DD)

    times = [1_700_000_000 * 10**9 + number * 10_000_000 for number in range(60)]
    for name, later in (("pre", 0), ("post", 5_000)):
        packets = [packet(ts + later, frame(number)) for number, ts in enumerate(times)]
        (tmp_path / f"{name}.pcap").write_bytes(pcap(packets))
    tailscope("analyze", tmp_path / "pre.pcap", tmp_path / "post.pcap", "--out", tmp_path / "run")
    done = tailscope("explain", tmp_path / "run", "--json", "-")
    patterns = json.loads(done.stdout)["patterns"]
    named = {each["pattern"]: each["figures"] for each in patterns["named"]}
    assert named["retransmissions"]["retransmitted_segments"] == 20


def test_of_a_path_each_direction_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came_ns = np.arange(4_000, dtype=np.int64) * 1_000_000
    rng = np.random.default_rng(1)
    usual_ns = 20_000 + rng.integers(0, 1_000, 4_000)
    slow_ns = np.where(rng.random(4_000) < 0.02, 4_500_000, 0)
    flow, nothing = np.zeros(4_000, np.int64), np.zeros(0, np.int64)
    ways = {
        "there": {"pre_ns": came_ns, "latency_ns": usual_ns + slow_ns, "flow": flow},
        "back": {"pre_ns": came_ns, "latency_ns": usual_ns, "flow": flow},
        "unused": {"pre_ns": nothing, "latency_ns": nothing, "flow": nothing, "lost_ns": nothing},
    }
    monkeypatch.setattr(source, "offered", lambda _: [lambda _: None, lambda _: ways])
    records, _ = explain_packets(tmp_path, info_of(), None)
    there, back, unused = records.values()
    assert [*records] == ["patterns_there", "patterns_back", "patterns_unused"]
    reasons = [{each.pattern: each.reason for each in way.refused} for way in (there, back)]
    assert "7.7% of the packets overtake others" in reasons[0]["reordering"]
    assert "no packet overtakes another" in reasons[1]["reordering"]
    assert (there.searched, unused.searched) == (4_000, 0)


def test_a_stall_within_a_queue_is_not_the_queues() -> None:
    """Bursts of 128 at 20 us each, and every twentieth meets a stall of 2 ms in its middle."""
    bursts = np.arange(400, dtype=np.int64)
    came_ns = np.repeat(bursts * 12_800_000, 128)
    left_ns = came_ns + np.tile(np.arange(1, 129) * 20_000, len(bursts)) + 3_000
    is_later = np.tile(np.arange(128) >= 64, len(bursts))
    is_stalled = np.repeat(bursts % 20 == 7, 128)
    left_ns += np.where(is_stalled & is_later, 2_000_000, 0)
    found = patterns_of(Searched(Series(came_ns, left_ns - came_ns), len(came_ns), 0, 0, 0), 0.99)
    [queue] = found.named
    assert (queue.pattern, queue.slow_share) == ("queue", 0)
    assert found.unnamed_stalls is not None
    stalls = found.unnamed_stalls
    assert (stalls.stalls, stalls.slow_share) == (20, 1)
    assert (stalls.duration_ns_min, stalls.duration_ns_max) == (2_020_000, 2_020_000)


def test_a_queue_that_never_stalls_has_no_stalls() -> None:
    bursts = np.arange(400, dtype=np.int64)
    came_ns = np.repeat(bursts * 12_800_000, 128)
    left_ns = came_ns + np.tile(np.arange(1, 129) * 20_000, len(bursts)) + 3_000
    found = patterns_of(Searched(Series(came_ns, left_ns - came_ns), len(came_ns), 0, 0, 0), 0.99)
    assert [(each.pattern, each.slow_share) for each in found.named] == [("queue", 1)]
    assert found.unnamed_stalls is None
