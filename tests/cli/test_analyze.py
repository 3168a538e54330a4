"""What `tailscope analyze` prints and counts, on pairs small enough to know."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import pytest
from command import COMMAND
from errors import code_of

import tailscope as package
from tailscope.words.figures import CAPTURE_FLOOR

if TYPE_CHECKING:
    from pathlib import Path

LATENCIES = list(range(1_001, 2_001))

Run = Callable[..., Any]
Figures = Callable[..., dict[str, Any]]

NAMES = [
    "count",
    "lost",
    "latency_ns_p50",
    "latency_ns_p90",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_ns_p9999",
    "latency_ns_p99999",
    "latency_ns_p999999",
    "latency_ns_min",
    "latency_ns_mean",
    "latency_ns_max",
    "transfer_rate",
]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return captures.pair(tmp_path, LATENCIES)


def test_figures_have_flat_names(figures: Figures, pair: tuple[Path, Path]) -> None:
    found = figures(*pair)
    assert set(NAMES) <= set(found)
    for name, value in found.items():
        assert value is None or isinstance(value, int | float | str | bool) or name == "warnings"


def test_figures_are_those_of_the_definitions(figures: Figures, pair: tuple[Path, Path]) -> None:
    found = figures(*pair)
    assert found["count"] == found["sent"] == found["pre_packets"] == found["post_packets"] == 1_000
    assert found["lost"] == found["late"] == found["ambiguous"] == found["duplicated"] == 0
    assert (found["latency_ns_min"], found["latency_ns_max"]) == (1_001, 2_000)
    assert found["latency_ns_mean"] == 1_500.5
    assert found["latency_ns_p50"] == 1_500
    assert found["latency_ns_p90"] == 1_900
    assert (found["latency_ns_p99"], found["latency_ns_p99_beyond"]) == (1_990, 10)
    assert found["latency_ns_p99_supported"] is True
    assert (found["latency_ns_p999"], found["latency_ns_p999_beyond"]) == (1_999, 1)
    assert found["latency_ns_p999_supported"] is False
    assert found["latency_ns_p999_ci_high"] is None
    assert found["latency_ns_p50_ci_low"] < 1_500 < found["latency_ns_p50_ci_high"]
    assert found["latency_ns_p50_ci_high"] - found["latency_ns_p50_ci_low"] == 64
    assert found["transfer_rate"] == 1.0
    assert (found["ipdv_ns_min"], found["ipdv_ns_max"]) == (0, 1)
    assert found["pre_gap_ns_min"] == found["pre_gap_ns_max"] == 100_000
    assert found["post_gap_ns_mean"] == 100_001


def test_every_fate_is_counted(figures: Figures, tmp_path: Path) -> None:
    """One packet of each fate, a millisecond apart, in a window of 1 ms."""
    base, ms = 1_600_000_000 * captures.SECOND, 1_000_000

    def at(time_ms: float, number: int) -> captures.Packet:
        return captures.Packet(base + int(time_ms * ms), 60, captures.udp(number))

    pre = [at(10, 0), at(11, 1), at(12, 2), at(12.5, 2), at(14, 4), at(15, 5), at(16, 6), at(17, 7)]
    post = [
        *(at(10.5, 0), at(10.6, 0)),  # a match and its copy
        at(12.2, 1),  # late: 1.2 ms
        at(12.7, 2),  # of one of two alike
        at(13.9, 4),  # before it was sent
        at(15.5, 99),  # never sent
        *(at(16.8, 6), at(17.2, 7)),
        at(18.5, 98),  # after the last packet before the device
    ]
    for name, packets in (("pre", pre), ("post", post)):
        (tmp_path / name).write_bytes(captures.pcap(packets))
    found = figures(tmp_path / "pre", tmp_path / "post", "--window", "1ms", "--clocks", "same")
    expected = {
        "pre_packets": 8, "sent": 6, "count": 3, "lost": 1, "late": 1, "ambiguous": 2,
        "negative": 1, "outside": 0, "post_packets": 9, "duplicated": 1, "post_negative": 1,
        "post_ambiguous": 1, "post_late": 1, "post_outside": 1, "post_unknown": 1, "reordered": 0,
        "pre_trimmed": 0, "post_trimmed": 0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert any("clock" in warning for warning in found["warnings"])


def test_reordering_is_counted(figures: Figures, tmp_path: Path) -> None:
    pair = captures.pair(tmp_path, [250_000, 1_000, 1_000, 1_000, 350_000, 1_000])
    found = figures(*pair)
    assert found["reordered"] == 2
    assert (found["ipdv_ns_min"], found["ipdv_ns_max"]) == (-349_000, 349_000)


@pytest.mark.parametrize(
    ("match_on", "change", "count"),
    [
        ("frame", {0: 0xAA, 11: 0xAA, 24: 0xAA, 25: 0xAA, 40: 0xAA, 41: 0xAA}, 10),
        ("frame", {22: 63}, 0),
        ("l3", {22: 63, 24: 0xAA}, 10),
        ("l3", {50: 0xAA}, 0),
        ("bytes:42+4", {22: 63, 12: 0xAA, 50: 0xAA}, 10),
        ("bytes:42+4,50+1", {50: 0xAA}, 0),
        ("bytes:59+1", {}, 10),
        ("bytes:60+1", {}, 0),
        ("probe", {}, 0),
    ],
)
def test_packets_are_recognised_by_what_was_asked(
    tailscope: Run,
    figures: Figures,
    tmp_path: Path,
    match_on: str,
    change: dict[int, int],
    count: int,
) -> None:
    pre = captures.stream([captures.SECOND + 1_000 * at for at in range(10)])
    post = []
    for ts, orig_len, data in pre:
        frame = bytearray(data)
        for offset, byte in change.items():
            frame[offset] = byte
        post.append(captures.Packet(ts + 10, orig_len, bytes(frame)))
    pair = tmp_path / "pre", tmp_path / "post"
    for path, packets in zip(pair, (pre, post), strict=True):
        path.write_bytes(captures.pcap(packets))
    if count == 0:
        done = tailscope("analyze", *pair, "--match-on", match_on)
        assert done.returncode == 1
        assert code_of(done) == "different-traffic"
        assert f"tried {match_on}" in done.stderr
        return
    if match_on == "bytes:59+1":
        # All have the last byte in common: nothing tells which is which.
        done = tailscope("analyze", *pair, "--match-on", match_on, "--json", "-")
        assert done.returncode == 3
        assert json.loads(done.stdout)["ambiguous"] == count
        return
    found = figures(*pair, "--match-on", match_on)
    assert found["count"] == count
    assert found["match_on"] == match_on


def test_json_to_standard_output_is_all_there_is(tailscope: Run, pair: tuple[Path, Path]) -> None:
    done = tailscope("analyze", *pair, "--json", "-")
    assert json.loads(done.stdout)["count"] == 1_000
    assert done.stderr == ""


def test_json_to_a_file_leaves_the_table(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    done = tailscope("analyze", *pair, "--json", tmp_path / "figures.json")
    assert json.loads((tmp_path / "figures.json").read_text())["count"] == 1_000
    assert "1,000" in done.stdout


def test_a_pipe_is_written_into_not_replaced(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """As `--json >(jq .)` asks; whoever is root would lose `/dev/null` otherwise."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert tailscope("analyze", *pair, "--json", pipe).returncode == 0
        assert pipe.is_fifo()
        assert json.loads(os.read(reader, 1 << 16))["count"] == 1_000
    finally:
        os.close(reader)


def test_a_link_is_followed(tailscope: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "figures.json")
    assert tailscope("analyze", *pair, "--json", tmp_path / "link.json").returncode == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "figures.json").read_text())["count"] == 1_000


def test_the_table_marks_what_the_samples_do_not_support(
    tailscope: Run, pair: tuple[Path, Path]
) -> None:
    done = tailscope("analyze", *pair)
    assert done.returncode == 0
    assert done.stderr == ""
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.split()}
    for name in ("p50", "p90", "p99", "p99.9", "max", "lost"):
        assert name in lines, done.stdout
    assert "p99.99" not in lines, "the same packets bound it"
    assert "≥" not in lines["p99"]
    assert "1.990" in lines["p99"]
    done = tailscope("analyze", *pair, "-v")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.split()}
    for name in ("p99.9", "p99.99", "p99.999", "p99.9999"):
        assert "≥" in lines[name], lines[name]
    assert re.search(r"clock.*capture", done.stdout)
    assert CAPTURE_FLOOR in done.stdout


def test_the_trim_drops_the_beginning(figures: Figures, pair: tuple[Path, Path]) -> None:
    """The first post packet is 1001 ns after the first pre packet; the cut lies 10 ms later."""
    found = figures(*pair, "--trim", "10ms")
    assert found["trim_ns"] == 10_000_000
    assert found["count"] == 1_000 - 100
    assert found["post_trimmed"] == found["pre_trimmed"] == 100
    assert found["latency_ns_min"] == 1_101


@pytest.mark.parametrize("text", ["5s", "5000ms", "5000000us", "5000000000ns"])
def test_durations_are_read(figures: Figures, pair: tuple[Path, Path], text: str) -> None:
    assert figures(*pair, "--window", text)["window_ns"] == 5_000_000_000


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_one_capture_may_come_from_standard_input(
    figures: Figures, tailscope: Run, pair: tuple[Path, Path], tmp_path: Path, kind: str
) -> None:
    expected = figures(*pair)
    pre, post = (path.read_bytes() for path in pair)
    for arguments, content in ((("-", pair[1]), pre), ((pair[0], "-"), post)):
        if kind == "pcapng":
            content = captures.pcapng(captures.packets(content))
        done = tailscope("analyze", *arguments, "--json", "-", input=content)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        same = [name for name in expected if name.startswith(("latency", "count", "lost"))]
        assert {name: found[name] for name in same} == {name: expected[name] for name in same}


def test_a_pipe_that_closes_is_no_crash(pair: tuple[Path, Path], tailscope: Run) -> None:
    with subprocess.Popen(
        [COMMAND, "analyze", *pair, "--json", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


HOSTILE = ["a\nb", "a\x1b[31mb", "[bold]b[red]", "<b>&'\"", "‮fdp", os.fsdecode(b"\xff\xfe")]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_names_are_only_names(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    pre, post = tmp_path / f"{name}-pre-", tmp_path / f"{name}-post-"
    pair[0].rename(pre)
    pair[1].rename(post)
    out = tmp_path / "run"
    done = tailscope("analyze", pre, post, "--out", out, "--csv", tmp_path / "csv")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "‮" not in done.stdout
    report = (out / "report.html").read_text()
    assert "<b>&" not in report
    json.loads((out / "run.json").read_text())
    (tmp_path / "gone").mkdir()
    failed = tailscope("analyze", tmp_path / "gone" / name, post)
    assert failed.returncode == 1
    assert "\x1b" not in failed.stderr
    assert len(failed.stderr.splitlines()) <= 2


def test_a_folder_is_all_its_pairs(tailscope: Run, tmp_path: Path) -> None:
    captures.pair(tmp_path / "a", LATENCIES)
    captures.pair(tmp_path / "b" / "c", LATENCIES[:10])
    broken = captures.pair(tmp_path / "bad", LATENCIES)
    broken[1].write_bytes(b"no capture")
    done = tailscope(
        "analyze", tmp_path, "--json", tmp_path / "all.json", "--out", tmp_path / "runs"
    )
    assert done.returncode == 1, "one of them failed"
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stdout
    error, hint = done.stderr.splitlines()
    assert "bad" in error and hint.startswith("hint: ")
    everything = json.loads((tmp_path / "all.json").read_text())
    assert sorted(found.get("count", 0) for found in everything) == [0, 10, 1_000]
    runs = sorted(path.parent for path in (tmp_path / "runs").rglob("run.json"))
    assert len(runs) == 2


def test_a_folder_of_good_pairs_is_a_success(tailscope: Run, tmp_path: Path) -> None:
    captures.pair(tmp_path, LATENCIES)
    done = tailscope("analyze", tmp_path, "--json", "-")
    assert done.returncode == 0
    (found,) = json.loads(done.stdout)
    assert found["count"] == 1_000


def test_a_folder_without_pairs_is_refused(tailscope: Run, tmp_path: Path) -> None:
    done = tailscope("analyze", tmp_path)
    assert (done.returncode, code_of(done)) == (1, "no-pairs")


def test_a_capture_without_its_other_half_is_named(tailscope: Run, tmp_path: Path) -> None:
    captures.pair(tmp_path, LATENCIES)[0].unlink()
    done = tailscope("analyze", tmp_path)
    assert done.returncode == 1
    assert "x-post-1.pcap" in done.stderr


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_help(tailscope: Run, option: str) -> None:
    for command in ([], ["analyze"], ["simulate"], ["report"]):
        done = tailscope(*command, option)
        assert done.returncode == 0
        assert "Usage" in done.stdout
        assert done.stderr == ""
    for name in (
        "--match-on",
        "--trim",
        "--window",
        "--bucket-size",
        "--worst",
        "--json",
        "--csv",
    ):
        assert name in tailscope("analyze", option).stdout


def test_the_python_face_says_what_the_command_says(
    figures: Figures, pair: tuple[Path, Path]
) -> None:
    result = package.analyze(*pair)
    assert {**result.summary, "warnings": list(result.warnings)} == figures(*pair)


def test_resolution_of_any_kind(figures: Figures, tmp_path: Path) -> None:
    """A pcapng in units of 2^-20 s: ticks are whole, so the latency is known exactly."""
    section = captures._block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    interface = struct.pack("<HHIHHB3xHH", 1, 0, 262_144, 9, 1, 0x80 | 20, 0, 0)
    for name, first in (("pre", 1_000 << 20), ("post", (1_000 << 20) + 512)):
        content = section + captures._block(1, interface)
        for number in range(100):
            ticks, frame = first + 1_024 * number, captures.udp(number)
            head = struct.pack("<IIIII", 0, ticks >> 32, ticks & 0xFFFF_FFFF, 60, 60)
            content += captures._block(6, head + frame)
        (tmp_path / name).write_bytes(content)
    found = figures(tmp_path / "pre", tmp_path / "post")
    assert found["count"] == 100
    assert found["latency_ns_min"] in (488_281, 488_282)
    assert found["latency_ns_max"] - found["latency_ns_min"] <= 1
