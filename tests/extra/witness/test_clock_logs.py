"""What logs say of a clock: real ones, what is refused, and when a clock is in doubt."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import captures
import pyarrow.parquet as pq
import pytest
from clock_faults import BEGIN_NS, BOOT_NS, MS, Fault, S, capture, log
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

from tailscope.exceptions import TailscopeError, UsageError
from tailscope.extra.witness.doubts import clock_doubts, read_log
from tailscope.extra.witness.samples import FOREVER_NS, Doubt, Sample, doubts_of, limit_of
from tailscope.extra.witness.times import Stamp, stamp_at_start

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., Any]

LOGS = Path(__file__).parent / "logs"
LIMIT_NS = 100_000
NEAR_NS = 1_795_659_900 * S
"""26 November 2026, 02:25:00 UTC."""


@pytest.mark.parametrize(
    ("name", "kind", "count", "last"),
    [
        ("ptp4l.log", "ptp4l", 10, Sample(24_951_713 * MS, -7, 65, is_kept=False)),
        ("ptp4l_summary.log", "ptp4l", 4, Sample(24_963_713 * MS, 861, 35)),
        ("tracking.log", "tracking.log of chronyd", 9, Sample(NEAR_NS + 23 * S, 379, 122)),
        ("statistics.log", "statistics.log of chronyd", 9, Sample(NEAR_NS + 23 * S, -87)),
        ("tracking.txt", "output of chronyc tracking", 2, Sample(NEAR_NS + 27 * S, 1495, -64)),
        ("sourcestats.txt", "output of chronyc sourcestats", 5, Sample(NEAR_NS + 43 * S, 0)),
    ],
)
def test_logs_of_the_programs_themselves_are_read(
    name: str, kind: str, count: int, last: Sample
) -> None:
    found = read_log(LOGS / name, None)
    assert found.kind == kind
    [samples] = found.clocks.values()
    assert len(samples) == count
    assert samples[-1] == pytest.approx(last)
    assert found.zero_ns == (None if kind == "ptp4l" else 0)


def test_what_chronyc_prints_with_commas_is_read(tmp_path: Path) -> None:
    line = (
        "C0000201,192.0.2.1,2,{}.5,-0.000001,0.000030000,0.0001,-3.225,0.0,0.1,0.01,0.001,64.2,{}\n"
    )
    (tmp_path / "csv").write_text(
        line.format(BEGIN_NS // S, "Normal") + line.format(BEGIN_NS // S + 64, "Not synchronised")
    )
    [samples] = read_log(tmp_path / "csv", None).clocks.values()
    assert samples == [
        Sample(BEGIN_NS + S // 2, 30_000, -3225),
        Sample(BEGIN_NS + 64 * S + S // 2, 30_000, -3225, is_kept=False),
    ]


PREFIXES = {
    "journal": "Nov 26 02:25:{:02d} probe1 ptp4l[812]: [{}] ",
    "syslog with a fraction": "Nov 26 02:25:{:02d}.250000 probe1 ptp4l: [{}] ",
    "short-iso": "2026-11-26T02:25:{:02d}+0000 probe1 ptp4l[812]: [{}] ",
    "another zone": "2026-11-26T03:25:{:02d}.250000+01:00 probe1 ptp4l[812]: [{}] ",
    "short-unix": "17956599{:02d}.250000 probe1 ptp4l[812]: [{}] ",
    "a terminal through ts": "2026-11-26 02:25:{:02d}.250 ptp4l[{}]: ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_a_prefix_relates_seconds_since_boot_to_unix_time(tmp_path: Path, prefix: str) -> None:
    lines = [
        prefix.format(s, f"{1000 + s}.{ms:03d}") + "master offset 5 s2 freq -20000 path delay 9\n"
        for s, ms in ((1, 250), (2, 260), (3, 240), (4, 250))
    ]
    (tmp_path / "log").write_text("".join(lines))
    found = read_log(tmp_path / "log", NEAR_NS)
    assert found.zero_ns is not None
    # 02:25:01 was 1001.25 s behind the boot, and with whole seconds up to a second later.
    zero_ns = NEAR_NS - 1000 * S
    assert zero_ns - S // 4 <= found.zero_ns <= zero_ns
    assert zero_ns <= found.zero_ns + found.resolution_ns


@pytest.mark.parametrize(
    ("text", "near_ns", "expected"),
    [
        ("Dec 31 23:59:59 host x", NEAR_NS, Stamp(1_798_761_599 * S, S)),
        ("Jan  1 00:00:01 host x", NEAR_NS, Stamp(1_798_761_601 * S, S)),
        ("Feb 29 00:00:00 host x", 1_709_251_200 * S, Stamp(1_709_164_800 * S, S)),
        ("Thu Nov 26 02:25:40 UTC 2026", None, Stamp(NEAR_NS + 40 * S, S)),
        ("Thu Nov 26 02:25:40 AM UTC 2026", None, Stamp(NEAR_NS + 40 * S, S)),
        ("2026-11-26 02:25:00,123 x", None, Stamp(NEAR_NS + 123 * MS, MS)),
        ("1795659900 x", None, Stamp(NEAR_NS, S)),
        ("ptp4l[1.000]: x", NEAR_NS, None),
    ],
)
def test_times_of_lines(text: str, near_ns: int | None, expected: Stamp | None) -> None:
    assert stamp_at_start(text, near_ns) == expected


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


MASTER = "master offset 5 s2 freq -20000 path delay 9"
REFUSED = {
    "clock-log-side": "ptp4l.log",
    "clock-log-absent": "pre=nowhere.log",
    "clock-log-kind": "pre=measurements.log",
    "clock-log-boot": "pre=ptp4l_summary.log",
    "clock-log-empty": f"ptp4l[1.000]: {MASTER}\n",
    "clock-log-programs": f"ptp4l[1.0]: {MASTER}\nphc2sys[1.0]: CLOCK_REALTIME phc offset 5 s2\n",
    "clock-log-back": f"ptp4l[9.000]: {MASTER}\nptp4l[1.000]: {MASTER}\n",
    "clock-log-undated": "192.0.2.1 28 15 16 +0.000 0.026 +0ns 176ns\n",
    "clock-log-zone": "Thu Nov 26 02:25:40 CET 2026\n192.0.2.1 28 15 16 +0.000 0.026 +0ns 176ns\n",
    "clock-log-time": f"Xyz 26 02:25:40 host ptp4l[8]: [1.000] {MASTER}\n",
    "clock-log-block": "Stratum : 4\nLeap status     : Normal\n",
}


@pytest.mark.parametrize(("code", "given_text"), REFUSED.items(), ids=REFUSED)
def test_what_says_too_little_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, given_text: str
) -> None:
    monkeypatch.chdir(LOGS)
    pre = tmp_path / "pre.pcap"
    pre.write_bytes(captures.pcap([captures.Packet(NEAR_NS, 64, captures.udp(1))]))
    is_text = "\n" in given_text
    spec = f"pre={written(tmp_path / 'log', given_text)}" if is_text else given_text
    with raises(UsageError, code):
        clock_doubts([spec], LIMIT_NS, {"pre": str(pre), "post": str(pre)})


def test_a_year_cannot_be_told_of_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"Nov 26 02:25:40 host ptp4l[8]: [1.000] {MASTER}\n")
    with raises(UsageError, "clock-log-year"):
        clock_doubts([f"pre={tmp_path / 'log'}"], LIMIT_NS, {"pre": "-", "post": "-"})


def ticks(**others: Sample) -> list[Sample]:
    """Ten quiet lines, a second apart, but for some of them."""
    return [others.get(f"at{s}", Sample(s * S, 50, -20_000.0)) for s in range(10)]


BEGIN = Doubt(-FOREVER_NS, MS, None, "silence")
END = Doubt(9 * S, FOREVER_NS, None, "silence")


def test_what_is_unusual_in_a_log_is_a_fault_however_small() -> None:
    """Of a clock that is kept within 50 ns, 3 us are none, unless most of the log is as far off."""
    few = ticks(at4=Sample(4 * S, 3_000, -20_000.0))
    most = [Sample(s * S, 50 if s < 1 else 30_000, -20_000.0) for s in range(10)]
    assert (limit_of(few, 100_000), limit_of(few, 500)) == (1_000, 500)
    assert limit_of(most, 100_000) == 100_000
    assert limit_of([Sample(s * S, None) for s in range(10)], 100_000) == 100_000
    inside = [doubt for doubt in doubts_of(few, 100_000, 1) if doubt.reason == "offset"]
    assert [(doubt.start_ns, doubt.offset_ns) for doubt in inside] == [(3 * S - 3_000, 3_000)]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (ticks(), []),
        (
            ticks(at4=Sample(4 * S, -30 * MS, -20_000.0)),
            [Doubt(3 * S - 30 * MS, 5 * S + MS + 30 * MS, 30 * MS, "offset")],
        ),
        (
            ticks(at4=Sample(4 * S, 50, -20_000.0, is_kept=False)),
            [Doubt(3 * S - 50, 5 * S + MS + 50, 50, "state")],
        ),
        (
            # Rates that differ by 800 ppm for a second: up to 200 µs in between.
            ticks(at4=Sample(4 * S, 50, 780_000.0)),
            [Doubt(3 * S - 200_050, 5 * S + MS + 200_050, 200_050, "frequency")],
        ),
        (ticks(at4=Sample(4 * S, 50, -17_000.0)), []),
        (
            [each for each in ticks() if not 2 * S < each.at_ns < 7 * S],
            [Doubt(2 * S, 7 * S + MS, None, "silence")],
        ),
    ],
    ids=["quiet", "offset", "state", "frequency", "not enough", "silence"],
)
def test_when_a_clock_is_in_doubt(samples: list[Sample], expected: list[Doubt]) -> None:
    assert doubts_of(samples, LIMIT_NS, MS) == [BEGIN, *expected, END]


@given(
    st.text(
        alphabet=st.sampled_from("ptp4lhc2sys[]:. 0123456789-+se\nNovrmaxoffset,"), max_size=400
    )
)
def test_any_text_is_a_log_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.log"
    path.write_text(text)
    try:
        found = read_log(path, NEAR_NS)
    except TailscopeError:
        return
    assert any(len(samples) > 1 for samples in found.clocks.values())


FAULT = Fault(1, "slip", "post", 30 * MS, 2 * S)


def test_a_run_sets_apart_what_a_clock_stamped_in_doubt(tmp_path: Path, tailscope: Run) -> None:
    made = capture(tmp_path, FAULT, is_clock=True)
    spec = log(tmp_path, FAULT, "phc2sys", is_clock=True)
    out = tmp_path / "run"
    ended = tailscope(
        *("analyze", made.pre, made.post, "--clock-log", spec),
        *("--json", tmp_path / "figures.json", "--out", out),
    )
    assert ended.returncode == 0, ended.stderr
    assert "the clock behind the device was in doubt for 2.1" in ended.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    [doubt] = figures["clock_doubts"]
    assert (doubt["side"], doubt["reason"]) == ("post", "offset")
    assert doubt["offset_ns"] == pytest.approx(30 * MS, abs=1000)
    assert figures["count"] + figures["untimed"] == len(made.true_ns)
    assert figures["latency_ns_max"] < MS
    rows = [*csv.DictReader((out / "clock_doubts.csv").open())]
    assert rows == [{name: str(value) for name, value in doubt.items()}]
    untimed = pq.read_table(out / "untimed.parquet").to_pydict()
    assert len(untimed["seq"]) == figures["untimed"] == figures["post_untimed"]
    assert max(untimed["latency_ns"]) > 30 * MS
    seen = pq.read_table(out / "latency.parquet", columns=["seq"]).to_pydict()["seq"]
    assert sorted([*seen, *untimed["seq"]]) == [*range(len(made.true_ns))]
    for level, status in (("p50<1ms", 0), ("p99<1ms", 3), ("p50<10us", 2), ("loss<1%", 0)):
        assert tailscope("verify", out, "--slo", level).returncode == status, level


def test_without_a_log_a_slip_is_named_and_doubts_a_verdict(tmp_path: Path, tailscope: Run) -> None:
    made = capture(tmp_path, FAULT, is_clock=True)
    out = tmp_path / "run"
    ended = tailscope("analyze", made.pre, made.post, "--out", out)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["clock_slips"] == 1
    assert summary["latency_ns_max"] > 30 * MS
    assert any("a clock that is set" in warning for warning in summary["warnings"])
    assert tailscope("verify", out, "--slo", "p99<1ms").returncode == 3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--clock-log", "post={log}@-3600"], "clock-log-elsewhere"),
        (["--clock-log", "post={log}", "--clock-limit", "0s"], "duration"),
        (["--clock-log", "post={log}", "--pre", "{log}", "--post", "{log}"], "clock-log-pairs"),
    ],
    ids=["another hour", "no limit", "two pairs"],
)
def test_what_is_asked_amiss_is_refused(
    tmp_path: Path, tailscope: Run, words: list[str], code: str
) -> None:
    made = capture(tmp_path, FAULT, is_clock=True)
    log(tmp_path, FAULT, "phc2sys", is_clock=True)
    named = {"log": tmp_path / "phc2sys.log", "pre": made.pre, "post": made.post}
    given_words = [word.format(**named) for word in words]
    ended = tailscope(*("analyze", "--pre", made.pre, "--post", made.post), *given_words)
    assert ended.returncode == 1
    assert f"[{code}]" in ended.stderr, ended.stderr


def test_seconds_are_added_to_times(tmp_path: Path) -> None:
    pre = tmp_path / "pre.pcap"
    pre.write_bytes(captures.pcap([captures.Packet(NEAR_NS, 64, captures.udp(1))]))
    both = {"pre": str(pre), "post": str(pre)}
    [first, _] = clock_doubts([f"pre={LOGS / 'ptp4l_summary.log'}@1000.5"], LIMIT_NS, both)
    assert first.end_ns == 24_939_709 * MS + 1000 * S + S // 2
    assert BOOT_NS < BEGIN_NS
