"""Figures of noise, which kept the device and the instrument from their work."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.engine.columns import values
from tailscope.host.cpus import parse_cpus
from tailscope.report.figures.common import NS_PER_US, TIME, dash_of, unless_empty
from tailscope.report.picture import Axis, Layer, Picture
from tailscope.report.reduce import extremes, longest
from tailscope.store import tables
from tailscope.units import percentile_name
from tailscope.words.figures import part_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tailscope.engine.columns import Texts
    from tailscope.report.material import Material
    from tailscope.report.picture import Mark

    Integers = NDArray[np.int64]

_SOURCES = {"dut": "DuT", "instrument": "instrument"}
_MOST_LANES = 12
_MOST_COUNTERS = 12
_MOST_BARS = 15
_PARTS = {
    "dut": "DuT",
    "queue": "queue",
    "instrument": "instrument (tainted)",
    "service": "service",
    "unexplained": "unexplained",
}
_TIME_COLUMNS = 600


def made_of(runs: Sequence[Material]) -> Picture | None:
    """Show what the tail is made of: shares of the excess over the usual service, by cause."""
    explanation = runs[0].run.explanation
    if len(runs) > 1 or explanation is None or not explanation.excess_ns:
        return None
    causes = sorted(explanation.causes, key=lambda cause: -cause.share)[:_MOST_BARS]
    lanes = [part_text(cause.part, cause.cause) for cause in causes]
    layers = []
    for colour, (part, label) in enumerate(_PARTS.items()):
        which = [at for at, cause in enumerate(causes) if cause.part == part]
        if which:
            # The largest on top.
            y = np.array([len(causes) - 1.0 - at for at in which])
            x = np.array([100 * causes[at].share for at in which])
            layers.append(Layer("bars", runs[0].label, part, {"x": x, "y": y}, label, colour))
    return unless_empty(
        Picture(
            "tail-made-of",
            "What the tail is made of",
            "Shares of the time that the packets beyond"
            f" {percentile_name(explanation.quantile)} took longer than a packet that finds the"
            f" device idle; the largest {len(causes)}.",
            Axis("share of the excess [%]", "share_percent", starts_at_zero=True),
            Axis("", "waited_for", names=tuple(reversed(lanes))),
            tuple(layers),
        )
    )


def stages(runs: Sequence[Material]) -> Picture | None:
    """Show the share of each stage of the device in the latency of all packets and of the tail."""
    explanation = runs[0].run.explanation
    if len(runs) > 1 or explanation is None or explanation.stages is None:
        return None
    found = explanation.stages
    shares = np.array([[each.tail_share or 0.0, each.share_p50 or 0.0] for each in found.stages])
    ends = 100 * np.cumsum(shares / np.maximum(shares.sum(axis=0), 1e-9), axis=0)
    layers = []
    for colour, each in enumerate(found.stages):
        begin = ends[colour - 1] if colour else np.zeros(2)
        columns = {"x": begin, "x_end": ends[colour], "y": np.array([0.0, 1.0])}
        layers.append(Layer("spans", runs[0].label, each.stage, columns, each.stage, colour))
    return Picture(
        "stages",
        "Stages of packets in the kernel" if found.way == "kernel" else "Stages of packets",
        "Of all packets the median share of each stage, scaled to sum to 100 %; of the tail the"
        " share of its total latency.",
        Axis("share of the latency [%]", "share_percent", starts_at_zero=True),
        Axis("", "packets", names=(f"beyond {percentile_name(explanation.quantile)}", "all")),
        tuple(layers),
    )


def stalls(runs: Sequence[Material]) -> Picture | None:
    """Show when polling loops did not run, and for how long."""
    found = _noise(runs)
    if found is None:
        return None
    layers = []
    for colour, (name, which) in enumerate(_cores(found, found.kind.are("stall"))):
        x = runs[0].since_s(found.start_ns[which])
        y = found.duration_ns[which] / NS_PER_US
        kept = extremes(x, y)
        columns = {"x": x[kept], "y": y[kept]}
        layers.append(Layer("points", runs[0].label, name, columns, name, colour))
    return unless_empty(
        Picture(
            "stalls",
            "Stalls of the polling loops, by core",
            "If several share a column of pixels, only the shortest and the longest are drawn.",
            TIME,
            Axis("duration [µs]", "duration_us", "log"),
            tuple(layers),
        )
    )


def events(runs: Sequence[Material]) -> Picture | None:
    """Show what cores did instead of polling, in a lane for each cause of each core."""
    found = _noise(runs)
    if found is None:
        return None
    causes = found.cause
    named = found.kind.are("cause") & ~causes.are("stall")
    spent: dict[tuple[str, str], float] = {}
    of_core = {}
    for name, which in _cores(found, named):
        of_core[name] = which
        spent_ns = np.bincount(
            causes.places[which], found.duration_ns[which], minlength=len(causes.names)
        )
        there = np.unique(causes.places[which]).tolist()
        spent |= {(name, str(causes.names[place])): float(spent_ns[place]) for place in there}
    most = sorted(sorted(spent), key=lambda lane: -spent[lane])[:_MOST_LANES]
    lanes = sorted(most, key=lambda lane: (lane[0], -spent[lane]), reverse=True)
    cores = sorted({core for core, _ in lanes})
    layers = []
    for height, (core, cause) in enumerate(lanes):
        here = of_core[core] & causes.are(cause)
        start = runs[0].since_s(found.start_ns[here])
        lasted = found.duration_ns[here] / 1e9
        kept = longest(start, lasted, np.zeros(len(start), np.int64), columns=_TIME_COLUMNS)
        columns = {
            "x": start[kept],
            "x_end": start[kept] + lasted[kept],
            "y": np.full(len(kept), float(height)),
        }
        layers.append(Layer("spans", runs[0].label, cause, columns, core, cores.index(core)))
    return unless_empty(
        Picture(
            "events",
            "What cores did instead of polling",
            f"The {len(lanes)} causes that took the most time. If several share a column of"
            " pixels, only the longest is drawn.",
            TIME,
            Axis("", "cause", names=tuple(f"{core}: {cause}" for core, cause in lanes)),
            tuple(layers),
        )
    )


def interrupt_counts(runs: Sequence[Material]) -> Picture | None:
    """Interrupts that were counted since the first reading."""
    layers = _counters(runs, per_second=False)
    return unless_empty(
        Picture(
            "interrupts",
            "Interrupts since the start",
            f"On the polling cores; at most {_MOST_COUNTERS} counters.",
            TIME,
            Axis("interrupts", "interrupts", starts_at_zero=True),
            layers,
        )
    )


def interrupt_rates(runs: Sequence[Material]) -> Picture | None:
    """Interrupts per second, between one reading and the next."""
    layers = _counters(runs, per_second=True)
    return unless_empty(
        Picture(
            "interrupt-rates",
            "Interrupts per second, over time",
            "Between one reading of the counters and the next.",
            TIME,
            Axis("interrupts per second", "interrupts_per_s", starts_at_zero=True),
            layers,
        )
    )


class _Noise(NamedTuple):
    """Columns of ``noise.parquet``; a run may have millions of rows."""

    source: Texts
    cpu: Integers
    kind: Texts
    cause: Texts
    start_ns: Integers
    duration_ns: Integers

    def only(self, which: NDArray[np.bool_]) -> _Noise:
        """Leave in some rows."""
        return _Noise(
            self.source[which],
            self.cpu[which],
            self.kind[which],
            self.cause[which],
            self.start_ns[which],
            self.duration_ns[which],
        )


def _noise(runs: Sequence[Material]) -> _Noise | None:
    """The intervals within the run; of one run, for those of several would hide each other."""
    if len(runs) > 1:
        return None
    columns = runs[0].table(tables.NOISE, _Noise._fields)
    if columns is None:
        return None
    found = _Noise(**columns)  # type: ignore[arg-type]
    since_ns = found.start_ns.astype(np.int64) - runs[0].begin_ns
    return found.only((since_ns >= 0) & (since_ns < runs[0].lasts_ns))


def _cores(found: _Noise, wanted: NDArray[np.bool_]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each core of each side that has any of what is wanted, by its name."""
    for source, side in _SOURCES.items():
        of_side = wanted & found.source.are(source)
        for cpu in np.unique(found.cpu[of_side]):
            yield f"{side}, CPU {cpu}", of_side & (found.cpu == cpu)


def _counters(runs: Sequence[Material], *, per_second: bool) -> tuple[Layer, ...]:
    names = ("unix_ns", "interrupt", "cpu", "count")
    table = runs[0].table(tables.INTERRUPTS, names) if len(runs) == 1 else None
    if table is None:
        return ()
    found = {name: values(column) for name, column in table.items()}
    instrument = runs[0].run.info.instrument
    polling = {} if instrument is None else instrument.cpus
    measured = {cpu for cpus in polling.values() for cpu in parse_cpus(cpus)}
    series: dict[tuple[int, str], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for cpu in np.unique(found["cpu"]):
        if measured and cpu not in measured:
            continue
        for name in sorted(set(found["interrupt"][found["cpu"] == cpu].tolist())):
            which = (found["cpu"] == cpu) & (found["interrupt"] == name)
            since_s = runs[0].since_s(found["unix_ns"][which])
            count = (found["count"][which] - found["count"][which][0]).astype(np.float64)
            if count[-1] > 0:
                series[int(cpu), name] = since_s, count
    most = sorted(series, key=lambda each: -series[each][1][-1])[:_MOST_COUNTERS]
    layers = []
    for at, (cpu, name) in enumerate(most):
        x, y = series[cpu, name]
        if per_second:
            # Each rate holds from its reading to the next.
            y = np.diff(y) / np.diff(x)
            y = np.append(y, y[-1:])
        kept = extremes(x, y)
        label = f"CPU {cpu}: {name}"
        mark: Mark = "steps" if per_second else "line"
        columns = {"x": x[kept], "y": y[kept]}
        layers.append(Layer(mark, runs[0].label, label, columns, label, at, dash_of(at)))
    return tuple(layers)
