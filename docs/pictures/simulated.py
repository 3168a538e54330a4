"""Pictures of what the pages of concepts explain, simulated with a known truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import Clock, Recording, analyze_recording
from tailscope.report.figures.latency import ODDS
from tailscope.report.picture import Axis, Layer, Picture

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.report.picture import Dash

    Integers = NDArray[np.int64]

__all__ = ["overload", "taint"]

_NS_PER_US, _NS_PER_S = 1e3, 1_000_000_000
_GAP_NS = 100_000
_CLOCK = Clock(tsc_hz=_NS_PER_S, tsc=0, unix_ns=1_700_000_000 * _NS_PER_S)


def taint() -> Picture:
    """What a device took, and the two ends between which an instrument that stalls finds it."""
    chance, count = np.random.default_rng(1), 200_000
    took_ns = 2_000 + chance.exponential(150, count).astype(np.int64)
    is_slow = chance.random(count) < 2e-3
    took_ns += is_slow * chance.integers(5_000, 60_000, count)
    # What stops the device may stop the instrument meanwhile, which delays nothing more.
    delays = ~is_slow
    is_stalled = chance.random(count) < np.where(is_slow, 0.6, 1e-2)
    longest_ns = np.where(is_slow, took_ns, 40_000)
    stall_ns = is_stalled * (chance.random(count) * longest_ns).astype(np.int64)
    most_ns = took_ns + np.where(delays, stall_ns, 0)
    least_ns = most_ns - stall_ns
    found = analyze_recording(_recording(most_ns, stall_ns)).summary
    assert found["latency_ns_p999"] == _quantiles(most_ns, np.array([1e3]))[0]
    assert found["least_latency_ns_p999"] == _quantiles(least_ns, np.array([1e3]))[0]
    odds = np.geomspace(1.2, count / 10, 200)
    lines: tuple[tuple[str, Integers, Dash], ...] = (
        ("the device, at least", least_ns, "dashdot"),
        ("the device, at most: as measured", most_ns, "dashed"),
        ("the device", took_ns, "solid"),
    )
    layers = [
        Layer("line", "", "", {"x": odds, "y": _quantiles(each, odds) / _NS_PER_US}, name, at, dash)
        for at, (name, each, dash) in enumerate(lines)
    ]
    axis = Axis("latency [µs]", "latency_us", "log")
    return Picture("taint", "A device, and what is found of it", "", ODDS, axis, tuple(layers))


def _quantiles(values: Integers, odds: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.quantile(values, 1 - 1 / odds, method="inverted_cdf")
    return found


def _recording(latency_ns: Integers, stall_ns: Integers) -> Recording:
    """Packets that meet stalls of the generator, which end when they come back."""
    sent = 1_000_000 + np.arange(len(latency_ns)) * _GAP_NS
    which = np.flatnonzero(stall_ns)
    back = sent + latency_ns
    columns = (sent, sent, np.arange(len(sent)), back, np.zeros(0), (back - stall_ns)[which])
    return Recording(_CLOCK, *(each.astype(np.uint64) for each in (*columns, stall_ns[which])))


def overload() -> Picture:
    """Latency by rate: a function takes 11.4 µs for a packet, interrupts 3 ms of a second."""
    service_ns, interrupt_ns, interrupts = 11_400, 12_000, 250
    left = 1 - interrupts * interrupt_ns / _NS_PER_S
    rates = np.concatenate([np.arange(10, 85, 5), np.arange(85, 101)]) * 1_000.0
    lines = {"median": 0.5, "p99.9": 0.999}
    found = np.array(
        [
            np.quantile(_queued_ns(rate, service_ns, interrupt_ns, interrupts), [*lines.values()])
            for rate in rates
        ]
    )
    y = found.T / _NS_PER_US
    layers = [
        Layer("line", "", "", {"x": rates, "y": each}, name, at)
        for at, (name, each) in enumerate(zip(lines, y, strict=True))
    ]
    highest = left * _NS_PER_S / service_ns
    ends = {"x": np.full(2, highest), "y": np.array([y.min(), y.max()])}
    layers.append(Layer("line", "", "", ends, "R_max", 2, "dashed"))
    return Picture(
        "overload",
        "Latency by rate",
        "",
        Axis("packets per second", "packets_per_s", starts_at_zero=True),
        Axis("latency after 10 s [µs]", "latency_us", "log"),
        tuple(layers),
    )


def _queued_ns(
    rate: float, service_ns: int, interrupt_ns: int, interrupts: int
) -> NDArray[np.float64]:
    """How long packets wait and are served in the tenth second."""
    came = np.arange(int(10 * rate)) * (_NS_PER_S / rate)
    stolen = np.searchsorted(np.arange(10 * interrupts) * (_NS_PER_S / interrupts), came)
    work = service_ns + interrupt_ns * np.diff(stolen, append=stolen[-1:])
    # Lindley: each waits for what those in front of it have left to do.
    ahead = np.concatenate([[0.0], np.cumsum(work[:-1] - np.diff(came))])
    waited = ahead - np.minimum.accumulate(ahead)
    return (waited + work)[came >= 9 * _NS_PER_S]
