"""Captures through which a clock slipped, logs of what keeps it, and devices that stalled."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import captures
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Times = NDArray[np.float64]

MS = 1_000_000
S = 1_000_000_000
BEGIN_NS = 1_795_659_900 * S
BOOT_NS = BEGIN_NS - 1000 * S - 123_456_789
"""When the machine of the log was booted."""
GAP_NS = 2 * MS
"""Between two packets."""
LEAD_NS = 2 * S
"""Before and behind what happens."""
LINES_PER_S = 16
FORMATS = ("ptp4l", "phc2sys", "chrony")
KINDS = ("slip", "step", "slew", "holdover")


@dataclass(frozen=True)
class Fault:
    """A clock that is off by up to `by_ns` from `LEAD_NS` on, for `lasts_ns`; or a device."""

    seed: int
    kind: Literal["slip", "step", "slew", "holdover"]
    side: Literal["pre", "post"]
    by_ns: int
    lasts_ns: int

    @property
    def ends_ns(self) -> int:
        """When everything is over."""
        return 2 * LEAD_NS + self.lasts_ns

    def error_ns(self, at_ns: Times) -> Times:
        """How far the clock is off at some times since `BEGIN_NS`."""
        passed = (at_ns - LEAD_NS) / self.lasts_ns
        shape = {
            "slip": np.ones_like(passed),
            "step": 1 - passed,
            "slew": 1 - np.abs(2 * passed - 1),
            "holdover": passed,
        }[self.kind]
        return np.where((passed >= 0) & (passed < 1), shape * self.by_ns, 0.0)

    def held_ns(self, sent_ns: Times) -> Times:
        """How long a device holds packets up that is slow when the clock was off."""
        left = LEAD_NS + self.lasts_ns - sent_ns
        during = (sent_ns >= LEAD_NS) & (left > 0)
        if self.kind in ("slip", "holdover"):
            # One stall: what came meanwhile leaves at its end.
            end_ns = sent_ns[sent_ns >= LEAD_NS].min() + abs(self.by_ns)
            return np.where(during & (sent_ns < end_ns), end_ns - sent_ns, 0.0)
        # A queue that stays full.
        return np.where(during, np.minimum(abs(self.by_ns), left), 0.0)


def faults(count: int, *, least_ms: float = 10, most_ms: float = 50) -> list[Fault]:
    """Faults so large, for 0.1 to 5 s, of each kind in turn, on either side."""
    chance = random.Random(35)
    found = []
    for seed in range(count):
        by_ns = round(chance.uniform(least_ms, most_ms) * MS) * chance.choice((1, -1))
        lasts_ns = round(10 ** chance.uniform(-1, np.log10(5)) * S)
        side = "pre" if seed // len(KINDS) % 2 else "post"
        found.append(Fault(seed, KINDS[seed % len(KINDS)], side, by_ns, lasts_ns))
    return found


@dataclass(frozen=True)
class Made:
    """A pair of captures, and the truth."""

    pre: Path
    post: Path
    true_ns: dict[int, int]
    """The latency of each packet, by its place in the file before the device."""


def capture(folder: Path, fault: Fault, *, is_clock: bool) -> Made:
    """Write captures of a clock that is off, or of a device that holds packets."""
    chance = np.random.default_rng(fault.seed)
    sent = np.arange(0, fault.ends_ns, GAP_NS, dtype=np.float64)
    sent += chance.uniform(0, GAP_NS / 4, len(sent))
    latency = 20_000 + chance.exponential(5_000, len(sent))
    if not is_clock:
        latency += fault.held_ns(sent)
    came = np.maximum.accumulate(sent + latency)
    stamps = {"pre": sent, "post": came}
    if is_clock:
        stamps[fault.side] = stamps[fault.side] + fault.error_ns(stamps[fault.side])
    frames = [captures.udp(number, payload=chance.bytes(16)) for number in range(len(sent))]
    paths = {}
    for side, times in stamps.items():
        packets = [
            captures.Packet(BEGIN_NS + int(at), len(frame), frame)
            for at, frame in zip(times, frames, strict=True)
        ]
        paths[side] = folder / f"{side}.pcap"
        paths[side].write_bytes(captures.pcap(packets))
    # Places count in order of time, files are in the order of arrival.
    places = np.argsort(np.trunc(stamps["pre"]), kind="stable")
    true = {place: int(came[at] - sent[at]) for place, at in enumerate(places.tolist())}
    return Made(paths["pre"], paths["post"], true)


def log(folder: Path, fault: Fault, form: str, *, is_clock: bool) -> str:
    """Write the log of what keeps the clock; return what ``--clock-log`` says of it."""
    quiet = Fault(fault.seed, "slip", fault.side, 0, fault.lasts_ns)
    lines = _LOGS[form](fault if is_clock else quiet)
    path = folder / f"{form}.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    added = f"@{BOOT_NS // S}.{BOOT_NS % S:09d}" if form == "ptp4l" else ""
    return f"{fault.side}={path}{added}"


@dataclass(frozen=True)
class _Line:
    at_ns: int
    offset_ns: int
    ppb: int
    state: int


def _lines(fault: Fault) -> Iterator[_Line]:
    """What the servo says; of a clock that nobody keeps, only when somebody does so again."""
    chance = random.Random(fault.seed)
    step_ns = S // LINES_PER_S
    first_ns = -2 * S + chance.randrange(step_ns)
    for at_ns in range(first_ns, fault.ends_ns + 2 * S, step_ns):
        error = int(fault.error_ns(np.array([at_ns], float))[0])
        offset_ns = error + chance.randint(-200, 200)
        ppb = -20_000 + chance.randint(-100, 100) - max(-900_000, min(900_000, offset_ns * 7 // 10))
        state = 2
        if fault.kind == "holdover" and fault.by_ns:
            end_ns = LEAD_NS + fault.lasts_ns
            if LEAD_NS <= at_ns < end_ns:
                continue
            if end_ns <= at_ns < end_ns + step_ns:
                offset_ns, state = fault.by_ns, 0
            elif end_ns + step_ns <= at_ns < end_ns + 2 * step_ns:
                state = 1
        yield _Line(at_ns, offset_ns, ppb, state)


def _boot_text(at_ns: int) -> str:
    ms = (BEGIN_NS + at_ns - BOOT_NS) // MS
    return f"{ms // 1000}.{ms % 1000:03d}"


def _ptp4l(fault: Fault) -> Iterator[str]:
    lost = False
    for line in _lines(fault):
        head = f"ptp4l[{_boot_text(line.at_ns)}]:"
        if line.state == 0:
            fail = f"ptp4l[{_boot_text(LEAD_NS)}]:"
            yield f"{fail} port 1 (eth0): SLAVE to FAULTY on FAULT_DETECTED (FT_UNSPECIFIED)"
            yield f"{head} port 1 (eth0): FAULTY to LISTENING on INIT_COMPLETE"
            yield f"{head} port 1 (eth0): LISTENING to UNCALIBRATED on RS_SLAVE"
            lost = True
        elif lost and line.state == 2:
            yield f"{head} port 1 (eth0): UNCALIBRATED to SLAVE on MASTER_CLOCK_SELECTED"
            lost = False
        yield (
            f"{head} master offset {line.offset_ns:10d} s{line.state} freq {line.ppb:+7d}"
            f" path delay {2200:9d}"
        )


def _phc2sys(fault: Fault) -> Iterator[str]:
    for line in _lines(fault):
        at = datetime.fromtimestamp((BEGIN_NS + line.at_ns) // 1000 / 1e6, UTC)
        yield (
            f"{at.isoformat(timespec='microseconds')} probe1 phc2sys[812]:"
            f" [{_boot_text(line.at_ns)}] CLOCK_REALTIME phc offset {line.offset_ns:9d}"
            f" s{line.state} freq {line.ppb:+7d} delay {500:6d}"
        )


def _chrony(fault: Fault) -> Iterator[str]:
    for line in _lines(fault):
        at = datetime.fromtimestamp((BEGIN_NS + line.at_ns) // S, UTC)
        yield (
            f"{at:%Y-%m-%d %H:%M:%S} 192.0.2.1       2 {line.ppb / 1000:10.3f} {0.075:10.3f}"
            f" {line.offset_ns / S:10.3e} N  1  2.940e-08 -2.084e-07  1.534e-05  3.472e-06"
            "  8.304e-06"
        )


_LOGS: dict[str, Callable[[Fault], Iterator[str]]] = {
    "ptp4l": _ptp4l,
    "phc2sys": _phc2sys,
    "chrony": _chrony,
}
