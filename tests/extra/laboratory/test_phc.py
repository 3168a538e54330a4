"""Clocks of two ports that drift: their comparison, correction and description."""

from __future__ import annotations

import random
import re
import struct
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from captures import Packet, pcap, pcapng, pcapng_packets, udp, unzstd
from errors import raises
from fake_cards import START_NS, FakeClock, System
from msgspec.structs import replace
from synthetic import info_of, instrument

from tailscope import analyze
from tailscope.engine.analysis import retime
from tailscope.exceptions import CaptureError, TestbedError, UsageError
from tailscope.extra.laboratory.stamps import phc
from tailscope.extra.laboratory.stamps.links import on_one_clock
from tailscope.extra.laboratory.stamps.phc import (
    ClockReading,
    Comparison,
    KernelClock,
    compare,
    comparing,
)
from tailscope.store.records.base import as_content
from tailscope.store.records.run import (
    CapturedFiles,
    ClockRecord,
    PortClocks,
    SideCounts,
    TimestampedFile,
    TimestamperRecord,
)
from tailscope.units import duration_text
from tailscope.words.figures import provenance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OFFSET_NS, DRIFT_PPM = 5_000_000, 30
PROBES = b"\xf5ts\xa1"


def drifting(system: System, offset_ns: int, drift_ppm: float, name: str = "ptp1") -> FakeClock:
    return FakeClock(name, system, lambda ns: offset_ns + round(ns * drift_ppm / 1e6))


def compared(first: FakeClock, second: FakeClock, *, seconds: int, rate: int = 10) -> Comparison:
    """Compare clocks as `comparing` does, in simulated time."""
    comparison = Comparison()
    system = first.system
    for _ in range(seconds * rate + 1):
        comparison.add(compare(first, second))
        system.pass_by(10**9 // rate)
    return comparison


def test_what_both_show_is_within_what_the_reading_may_be_off_by() -> None:
    system = System()
    first, second = drifting(system, 700, -20, "ptp0"), drifting(system, OFFSET_NS, DRIFT_PPM)
    for _ in range(1000):
        readings = compare(first, second)
        assert readings is not None
        first_ns, second_ns, error_ns = readings
        # The moment of the second reading.
        passed_ns = (second_ns - START_NS - OFFSET_NS) / (1 + DRIFT_PPM / 1e6)
        ahead = (OFFSET_NS - 700) + passed_ns * (DRIFT_PPM + 20) / 1e6
        assert abs(second_ns - first_ns - ahead) <= error_ns <= 2100, readings
        system.pass_by(10**8)


@pytest.mark.parametrize("step_ns", [-(10**9), 10**6, 50_000])
def test_a_clock_that_is_set_meanwhile_says_nothing(step_ns: int) -> None:
    readings = [ClockReading(1000, 5000, 10), ClockReading(2000, 9, 10)]
    readings.append(ClockReading(3000 + step_ns, 7000, 10))
    listed = iter(readings)

    class Listed:
        name = "ptp0"

        def read(self) -> ClockReading:
            return next(listed)

    assert compare(Listed(), Listed()) is None


def test_comparing_goes_on_throughout_a_block() -> None:
    system = System()
    first, second = drifting(system, 0, 0, "ptp0"), drifting(system, OFFSET_NS, DRIFT_PPM)
    some = threading.Event()

    class Counted:
        name, reads = "ptp1", 0

        def read(self) -> ClockReading:
            self.reads += 1
            if self.reads == 5:
                some.set()
            return second.read()

    with comparing(first, Counted(), interval_s=0.001) as found:
        assert some.wait(60)
    # There is one at the beginning, some in between, and one after the end.
    assert len(found.first_ns) >= 6
    assert list(found.first_ns) == sorted(found.first_ns)


def test_a_clock_that_cannot_be_read_is_named() -> None:
    system = System()
    broken = drifting(system, 0, 0, "ptp0")
    broken.broken = True
    with (
        raises(TestbedError, "clock-unreadable") as error,
        comparing(broken, drifting(system, 0, 0)),
    ):
        raise AssertionError("not reached")
    assert {"ptp0", "ptp1", "Operation"} <= {*re.findall(r"\w+", str(error.value))}


def stamped(folder: Path, second: Callable[[int], int], latencies: list[int]) -> tuple[Path, Path]:
    """Make captures of a card with two clocks, of which the first shows the machine's time."""
    pre, post = folder / "pre.pcap", folder / "post.pcapng.zst"
    sent = [START_NS + 10**8 + at * 10**7 for at in range(len(latencies))]
    frames = [udp(at, payload=PROBES + struct.pack(">Q", at) + bytes(6)) for at in range(len(sent))]
    pre.write_bytes(pcap([Packet(ts, 60, frame) for ts, frame in zip(sent, frames, strict=True)]))
    seen = [
        Packet(second(ts + latency), 60, frame)
        for ts, latency, frame in zip(sent, latencies, frames, strict=True)
    ]
    with pyarrow.CompressedOutputStream(str(post), "zstd") as out:
        out.write(pcapng(seen))
    return pre, post


@pytest.mark.parametrize("wander_ppb", [0, 40])
def test_offset_and_drift_of_two_clocks_are_taken_out(
    wander_ppb: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Latencies are true within the residual, at 5 ms and 30 ppm, which in 30 s make 0.9 ms."""
    system, chance = System(), random.Random(3)
    first = drifting(system, 0, 0, "ptp0")
    second = FakeClock(
        "ptp1",
        system,
        lambda ns: OFFSET_NS + ns * DRIFT_PPM // 10**6 + ns * ns // 10**9 * wander_ppb // 10**11,
    )
    latencies = [chance.randint(5_000, 50_000) for _ in range(3000)]
    found = compared(first, second, seconds=31)
    pre, post = stamped(tmp_path, second.at, latencies)
    clocks, warning = on_one_clock(post, found, ("ptp0", "ptp1"))
    description = description_of(clocks)
    with capsys.disabled():
        print(f"\nclock     {description}")
    assert warning is None
    assert re.findall(r"\bptp\d", description)[:2] == ["ptp1", "ptp0"]
    assert f"residual of {duration_text(clocks.residual_ns)}; " in description
    assert clocks.offset_ns == pytest.approx(OFFSET_NS, abs=clocks.residual_ns)
    wandered_ppb = wander_ppb * 31 / 100
    assert clocks.drift_ppb == pytest.approx(DRIFT_PPM * 1000 + wandered_ppb, abs=20)
    assert clocks.readings + clocks.left_out == 311
    assert clocks.residual_ns <= clocks.error_ns <= 5000
    assert list(tmp_path.iterdir()) in ([pre, post], [post, pre])
    analysis = analyze(pre, post, match_on="probe", clocks="same")
    series = analysis.series
    assert series is not None and analysis.summary["count"] == len(latencies)
    wrong = [abs(int(a) - b) for a, b in zip(series.latency_ns, latencies, strict=True)]
    assert max(wrong) <= clocks.residual_ns


def description_of(clocks: PortClocks) -> str:
    """Return the description of the times in table and report."""
    file = TimestampedFile(path="pre.pcapng.zst", size_bytes=1, sha256="")
    watched = TimestamperRecord(
        method="socket",
        dropped=SideCounts(pre=0, post=0),
        files=CapturedFiles(pre=file, post=file),
        port_clocks=clocks,
    )
    clock = ClockRecord(source="kernel-hardware", timestamp_type="hardware")
    info = info_of(
        clock=as_content(clock), instrument=as_content(replace(instrument(), timestamper=watched))
    )
    return provenance({"match_on": "probe", "window_ns": 0, "trim_ns": 0}, info)["clock"]


def test_a_clock_that_is_adjusted_during_a_run_is_found_out(tmp_path: Path) -> None:
    system = System()
    first = drifting(system, 0, 0, "ptp0")
    second = FakeClock("ptp1", system, lambda ns: 20_000 if ns > 10**10 else 0)
    found = compared(first, second, seconds=20)
    _, post = stamped(tmp_path, second.at, [1000] * 10)
    clocks, warning = on_one_clock(post, found, ("ptp0", "ptp1"))
    assert warning is not None
    assert {"ptp0", "ptp1"} <= {*re.findall(r"\w+", warning)}
    assert f"{clocks.error_ns:,} ns" in warning and clocks.error_ns > 5000


def test_clocks_that_were_not_compared_give_no_times(tmp_path: Path) -> None:
    _, post = stamped(tmp_path, lambda ns: ns, [1000] * 10)
    before = post.read_bytes()
    with raises(TestbedError, "clocks-not-compared") as error:
        on_one_clock(post, Comparison(), ("ptp0", "ptp1"))
    assert "0 times" in str(error.value)
    assert post.read_bytes() == before


def test_a_capture_keeps_all_but_its_times(tmp_path: Path) -> None:
    rng = random.Random(5)
    frames = [
        Packet(10**9 + at * 1000, 60 + at, rng.randbytes(rng.randint(14, 60))) for at in range(500)
    ]
    source, target = tmp_path / "a.pcapng", tmp_path / "b.pcapng.zst"
    source.write_bytes(pcapng(frames))
    knots = [(10**9 + 1000, -70), (10**9 + 300_000, 900), (10**9 + 400_000, 400)]
    assert retime(source, target, knots) == len(frames)
    for before, after in zip(frames, pcapng_packets(unzstd(target)), strict=True):
        assert (after.orig_len, after.data) == (before.orig_len, before.data)
        assert after.ts == before.ts - slowly(knots, before.ts)


def slowly(knots: list[tuple[int, int]], ts: int) -> int:
    """Return the correction by its definition, in whole numbers."""
    pieces = list(pairwise(knots))
    (t0, a0), (t1, a1) = next((piece for piece in pieces if ts < piece[1][0]), pieces[-1])
    return a0 + (ts - t0) * (a1 - a0) // (t1 - t0)


@pytest.mark.parametrize("knots", [[], [(5, 0), (5, 1)], [(5, 0), (4, 1)]])
def test_knots_are_in_order(knots: list[tuple[int, int]], tmp_path: Path) -> None:
    source = tmp_path / "a.pcap"
    source.write_bytes(pcap([]))
    with pytest.raises(UsageError) as error:
        retime(source, tmp_path / "b.pcapng.zst", knots)
    assert "knots: " in str(error.value)
    with pytest.raises(CaptureError) as missing:
        retime(tmp_path / "nothing.pcap", tmp_path / "b.pcapng.zst", [(0, 0)])
    assert "nothing.pcap" in str(missing.value)


TIMES = struct.Struct("@qII")


def kernel(supported: int, samples: Callable[[int], list[int]]) -> Callable[..., int]:
    """Return a driver for one request of ``linux/ptp_clock.h``; `samples` are its times in ns."""

    def ioctl(_device: int, request: int, words: bytearray) -> int:
        if request != supported:
            raise OSError(25, "Inappropriate ioctl for device")
        assert len(words) == request >> 16 & 0x3FFF
        number, at = (3, 0) if len(words) == 64 else (struct.unpack_from("@I", words)[0], 16)
        for index, ns in enumerate(samples(number)):
            TIMES.pack_into(words, at + index * TIMES.size, ns // 10**9, ns % 10**9, 0)
        return 0

    return ioctl


@pytest.mark.parametrize(
    ("request_", "samples", "expected"),
    [
        (0xC0403D08, lambda _: [7, 10**9 + 5, 99], ClockReading(10**9 + 5, 7, 0)),
        (
            0xC4C03D09,
            lambda n: [x for at in range(n) for x in (100 * at, 5 * 10**9 + at, 100 * at + n - at)],
            ClockReading(900, 5 * 10**9 + 9, 1),
        ),
        (
            0x43403D05,
            lambda n: (
                [x for at in range(n) for x in (at * (at + 1), 3 * 10**9 + at)] + [n * (n + 1)]
            ),
            ClockReading(1, 3 * 10**9, 2),
        ),
    ],
)
def test_what_a_driver_offers_is_read(
    request_: int,
    samples: Callable[[int], list[int]],
    expected: ClockReading,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock is read by the most precise request that the driver supports."""
    real = open

    def opened(path: Any, *more: Any, **named: Any) -> Any:
        return (
            real("/dev/null", *more, **named) if path == "/dev/ptp7" else real(path, *more, **named)
        )

    monkeypatch.setattr(phc, "open", opened, raising=False)
    monkeypatch.setattr(phc.fcntl, "ioctl", kernel(request_, samples))
    assert KernelClock(7).read() == expected
