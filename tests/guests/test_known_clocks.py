"""Cards whose clocks are known: what is recorded of them, against the truth of their driver.

The driver is ours (`driver/clocked.c`), built for the guest's kernel. Its log has when each frame
arrived by the machine's clock, and the time that the card gave it.
"""

from __future__ import annotations

import base64
import json
import shutil
import struct
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from booted_guest import booted, vanilla
from captures import Packet, pcapng_packets, udp, unzstd

from tailscope import analyze

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
PROBES = b"\xf5ts\xa1"
OFFSET_NS, DRIFT_PPB = 3_000_000, 30_000
PRE, POST = 1, 3
APART = (f"offset_ns=0,-700,0,{OFFSET_NS}", f"drift_ppb=0,-2000,0,{DRIFT_PPB}")
AHEAD_S = 37
SCENARIOS: dict[str, tuple[tuple[str, ...], str, int, float]] = {
    "all": (APART, "as_it_comes", 20, 0.01),
    "far": ((f"offset_ns=0,0,0,{AHEAD_S * 10**9}",), "as_it_comes", 20, 0.01),
    "lossy": (("lose_every=0,0,0,4",), "as_it_comes", 20, 0.01),
    "some": (("stamp_every=1,1,1,2",), "as_it_comes", 20, 0.01),
    "ptp": (("only_ptp=0,0,0,1",), "as_it_comes", 20, 0.01),
    "sent": (APART, "as_it_leaves", 20, 0.0),
    "one clock": (APART, "on_one_clock", 300, 0.02),
    "ptp chosen": (("only_ptp=0,0,0,1",), "on_one_clock", 20, 0.01),
    "none chosen": (("stamp_every=1,1,1,1000",), "on_one_clock", 20, 0.01),
    "tap": (("one_clock=1", f"offset_ns={AHEAD_S * 10**9}"), "as_a_tap", 200, 0.01),
    "tap, two clocks": ((), "as_a_tap", 0, 0.01),
    "path": (("offset_ns=5000000,-3000000", "drift_ppb=20000,-30000"), "as_a_path", 400, 0.02),
    "two sessions": ((), "as_two_sessions", 0, 0.0),
}
"""Options of the driver, what is done, and with how many frames at which distance in s."""


def frame(number: int) -> bytes:
    return udp(number, payload=PROBES + struct.pack(">Q", number) + bytes(6))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the driver for the guest's kernel."""
    headers = Path("/lib/modules", vanilla().release, "build")
    if not headers.exists():
        pytest.skip(f"no {headers}: make setup-ci installs it")
    folder = tmp_path_factory.mktemp("driver")
    shutil.copytree(HERE / "driver", folder, dirs_exist_ok=True)
    command = ["make", "-s", "-C", headers, f"M={folder}", "modules"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    subprocess.run(["strip", "--strip-debug", folder / "clocked.ko"], check=True)
    return folder / "clocked.ko"


@pytest.fixture(scope="module")
def found(
    driver: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, dict[str, Any]]]:
    """Boot a guest once, and play all scenarios."""
    folder = tmp_path_factory.mktemp("clocks")
    devices = ["-nic", "none"]
    # The module of PHCs comes with a driver that depends on it.
    modules = ["e1000e"]
    with booted(
        folder, devices, qemu="qemu-system-x86_64", modules=modules, cpus=2, files=[driver]
    ) as inside:
        inside.shell("mount -t debugfs none /sys/kernel/debug")
        most = max(number for _, _, number, _ in SCENARIOS.values())
        lines = "\n".join(frame(number).hex() for number in range(most))
        frames = inside.guest.write("frames", lines)
        scenarios = inside.guest.write("scenarios", json.dumps(SCENARIOS))
        output = inside.python(HERE / "clocked_inside.py", driver, frames, scenarios)
        assert inside.shell("lsmod").count("clocked") == 0
    lines_found = [line for line in output.splitlines() if line.startswith("found ")]
    contents = [json.loads(line.removeprefix("found ")) for line in lines_found]
    yield {content["name"]: content for content in contents}


def truths(content: dict[str, Any]) -> dict[int, list[tuple[int, int, int]]]:
    """Return the driver's log by port: whether a frame was lost, when it arrived, its stamp."""
    ports = defaultdict(list)
    for port, lost, arrived_ns, stamp_ns, _ in content["log"]:
        ports[port].append((lost, arrived_ns, stamp_ns))
    return ports


def capture(content: dict[str, Any], side: str, folder: Path) -> tuple[Path, list[Packet]]:
    path = folder / f"{side}.pcapng.zst"
    path.write_bytes(base64.b64decode(content["captures"][side]))
    return path, pcapng_packets(unzstd(path))


@pytest.mark.parametrize("name", ["all", "far"])
def test_every_frame_has_the_time_that_the_card_gave_it(
    found: dict[str, Any], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the nanosecond, in the order of arrival, whatever the card's clock shows."""
    content = found[name]
    log = truths(content)
    errors = []
    for side, port, counts in zip(("pre", "post"), (PRE, POST), content["counts"], strict=True):
        _, packets = capture(content, side, tmp_path)
        expected = {"received": 20, "written": 20, "unstamped": 0, "dropped": 0, "foreign": 0}
        assert counts == expected
        assert [packet.data for packet in packets] == [frame(number) for number in range(20)]
        stamps = [stamp_ns for _, _, stamp_ns in log[port]]
        errors += [packet.ts - stamp_ns for packet, stamp_ns in zip(packets, stamps, strict=True)]
    assert content["during"] == [[0, 0, 1]] * 2
    assert errors == [0] * 40
    with capsys.disabled():
        print(f"\n{name}: 20 of 20 frames stamped on both sides, error of every stamp 0 ns")


def test_frames_lost_on_the_way_are_not_recorded(found: dict[str, Any], tmp_path: Path) -> None:
    content = found["lossy"]
    log = truths(content)[POST]
    left = [number for number, (lost, *_) in enumerate(log) if not lost]
    assert len(log) == 20 and len(left) == 15
    _, packets = capture(content, "post", tmp_path)
    assert [packet.data for packet in packets] == [frame(number) for number in left]
    assert content["counts"][1]["received"] == content["counts"][1]["written"] == 15


def test_frames_without_a_time_are_counted_and_not_written(
    found: dict[str, Any], tmp_path: Path
) -> None:
    """A card that promises times for all frames may keep some of them back."""
    content = found["some"]
    stamps = [stamp_ns for *_, stamp_ns in truths(content)[POST]]
    counts = content["counts"][1]
    assert (counts["received"], counts["written"], counts["unstamped"]) == (20, 10, 10)
    _, packets = capture(content, "post", tmp_path)
    assert [packet.ts for packet in packets] == [stamp_ns for stamp_ns in stamps if stamp_ns]


def test_a_card_for_ptp_only_is_refused_by_name(found: dict[str, Any], tmp_path: Path) -> None:
    """It gives ordinary frames no times, and the laboratory takes the kernel's instead."""
    counts = found["ptp"]["counts"][1]
    assert (counts["received"], counts["written"], counts["unstamped"]) == (20, 0, 20)
    assert found["ptp"]["during"][1][2] != 1
    content = found["ptp chosen"]
    assert [offer["stamps_all"] for offer in content["offers"]] == [True, False]
    assert content["by_cards"] is False and content["type"] == "software"
    assert "clocked3" in content["warnings"][0] and "clocked1" not in content["warnings"][0]
    _, packets = capture(content, "post", tmp_path)
    arrived = [arrived_ns for _, arrived_ns, _ in truths(content)[POST]]
    assert len(packets) == 20
    assert all(packet.ts >= arrived_ns for packet, arrived_ns in zip(packets, arrived, strict=True))


def test_a_card_that_breaks_its_promise_is_an_error(found: dict[str, Any]) -> None:
    content = found["none chosen"]
    assert content["by_cards"] is True
    assert content["code"] == "no-timestamps"


def test_two_clocks_become_one_within_the_error(
    found: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Offset, drift and latencies, of clocks that are 3 ms and 32 ppm apart."""
    content = found["one clock"]
    assert content["by_cards"] and content["type"] == "hardware"
    assert content["after"] == [[0, 0, 0]] * 2
    clocks, log = content["clocks"], truths(content)
    paths, times = {}, {}
    for side in ("pre", "post"):
        paths[side], packets = capture(content, side, tmp_path)
        times[side] = [packet.ts for packet in packets]
        assert [packet.data for packet in packets] == [frame(number) for number in range(300)]
    assert times["pre"] == [stamp_ns for *_, stamp_ns in log[PRE]]
    # The law of both clocks, at the first frame and over all of them.
    pre, post = log[PRE], log[POST]
    leads = [
        (after[2] - after[1]) - (before[2] - before[1])
        for before, after in zip(pre, post, strict=True)
    ]
    passed_s = (post[-1][1] - post[0][1]) / 1e9
    drift_ppb = (leads[-1] - leads[0]) / passed_s
    assert drift_ppb == pytest.approx(DRIFT_PPB + 2000, abs=5)
    # The first readings are taken before the recorder starts.
    lead_ns = [
        leads[0] + drift_ppb * (moment_ns - post[0][1]) / 1e9
        for moment_ns in (content["began_ns"], content["entered_ns"])
    ]
    offset_ns, residual_ns, error_ns = (
        clocks[name] for name in ("offset_ns", "residual_ns", "error_ns")
    )
    drift_error_ns = abs(clocks["drift_ppb"] - drift_ppb) * passed_s
    analysis = analyze(paths["pre"], paths["post"], match_on="probe", clocks="same")
    assert analysis.series is not None and analysis.summary["count"] == 300
    latencies = [after[1] - before[1] for before, after in zip(pre, post, strict=True)]
    errors = [
        int(got) - true for got, true in zip(analysis.series.latency_ns, latencies, strict=True)
    ]
    with capsys.disabled():
        print(
            f"\ntwo clocks: offset {offset_ns:,} ns of {lead_ns[0]:,.0f} to {lead_ns[1]:,.0f} ns;"
            f" drift off by {drift_error_ns:,.0f} ns over {passed_s:.1f} s; latencies off by"
            f" {min(errors):,} to {max(errors):,} ns; residual {residual_ns:,} ns, error"
            f" {error_ns:,} ns of {clocks['readings']} readings"
        )
    assert lead_ns[0] - error_ns <= offset_ns <= lead_ns[1] + error_ns
    assert drift_error_ns <= residual_ns
    assert max(map(abs, errors)) <= error_ns


def test_a_card_says_when_it_sent(found: dict[str, Any]) -> None:
    """Between two readings of its clock, and before the frame arrives."""
    content = found["sent"]
    log = truths(content)[PRE]
    assert len(content["sent"]) == len(log) == 20
    for (before_ns, sent_ns, after_ns), (_, arrived_ns, _) in zip(
        content["sent"], log, strict=True
    ):
        assert before_ns <= sent_ns <= after_ns
        assert arrived_ns <= after_ns


def test_a_tap_takes_the_times_of_cards_on_one_clock(found: dict[str, Any]) -> None:
    """Latencies to the nanosecond, on a clock that is half a minute ahead of the machine's."""
    content = found["tap"]
    log = truths(content)
    stamps = {port: [stamp_ns for *_, stamp_ns in log[port]] for port in (PRE, POST)}
    took = sorted(post - pre for pre, post in zip(stamps[PRE], stamps[POST], strict=True))
    assert content["status"] == 0, content["text"]
    summary, tap = content["last"]["summary"], content["last"]["tap"]
    assert (summary["count"], summary["lost"]) == (200, 0)
    figures = ("latency_ns_min", "latency_ns_p50", "latency_ns_max")
    assert [summary[name] for name in figures] == [took[0], took[99], took[-1]]
    assert [tap[side]["unstamped"] for side in ("pre", "post")] == [0, 0]
    assert content["during"] == [[0, 0, 1]] * 2
    assert content["after"] == [[0, 0, 0]] * 2


def test_a_tap_of_two_clocks_is_refused(found: dict[str, Any]) -> None:
    content = found["tap, two clocks"]
    assert content["status"] == 1
    assert "[tap-stamps-clocks]" in content["text"]


def test_a_path_takes_the_times_of_cards(
    found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """By two clocks that are 8 ms and 50 ppm apart, which are brought to that of the machine."""
    content = found["path"]
    ends = content["record"]["ends"]
    # The first of each asked whether anybody answers, the last ones when other answers left.
    ways: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    for port, _, arrived_ns, _, sent_ns in content["log"]:
        ways[port].append((sent_ns, arrived_ns))
    (_, *forth), (_, *back) = ways[1], ways[0]
    assert min(len(forth), len(back)) >= ends["sent"] == len(content["seq"]) > 300
    assert content["seq"] == sorted(content["seq"])
    times = [content[name] for name in ("departed_ns", "received_ns", "answered_ns", "arrived_ns")]
    true = [[forth[seq] for seq in content["seq"]], [back[seq] for seq in content["seq"]]]
    exact = content["exact"]
    latency_errors, time_errors, way_errors, latencies = [], [], [], []
    for number, (one, two, three, four) in enumerate(zip(*times, strict=True)):
        if not exact[number]:
            continue
        (left, came), (answered, arrived) = true[0][number], true[1][number]
        latencies.append(came - left + arrived - answered)
        latency_errors.append((four - one) - (three - two) - latencies[-1])
        time_errors += [one - left, four - arrived]
        way_errors += [two - one - (came - left), four - three - (arrived - answered)]
    card, one_way = ends["card"], content["record"]["one_way"]
    with capsys.disabled():
        print(
            f"\na path: {len(latencies)} of {len(exact)} packets by cards alone; latencies of"
            f" {min(latencies):,} to {max(latencies):,} ns off by {min(latency_errors):,} to"
            f" {max(latency_errors):,} ns; times of the sender off by {min(time_errors):,} to"
            f" {max(time_errors):,} ns; its card gains {card['rate_ppb']:,} ppb, residual"
            f" {card['residual_ns']:,} ns, a reading took {card['width_ns']:,} ns at most,"
            f" {card['readings']} readings; one way off by {min(way_errors):,} to"
            f" {max(way_errors):,} ns, printed error {one_way['error_ns']:,} ns, of which the"
            f" reflector's card {ends['reflector']['card_error_ns']:,} ns"
        )
    assert len(latencies) > 0.9 * len(exact)
    assert max(map(abs, latency_errors)) < 1_000
    assert abs(card["rate_ppb"] - 20_000) < 2_000
    assert max(map(abs, way_errors)) <= one_way["error_ns"]
    assert content["during"] == [0, 1, 1]
    assert content["after"] == [0, 0, 0]


def test_two_sessions_share_a_card(found: dict[str, Any]) -> None:
    """The first one that ends leaves it on for the second."""
    assert found["two sessions"]["settings"] == [[0, 1, 1], [0, 1, 1], [0, 0, 0]]
