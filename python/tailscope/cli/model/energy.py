"""``tailscope model energy``: Table III of noms2020, of runs side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tailscope.cli.model.conclusion import conclude
from tailscope.cli.options import JsonFile, argument
from tailscope.cli.status import UNDECIDED
from tailscope.cli.table import print_table
from tailscope.cli.terminal import say
from tailscope.exceptions import RunError, UsageError
from tailscope.units import quantity_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tailscope.models.estimate import Estimate
    from tailscope.store.records.run import PowerRecord, RunInfo

    Change = Callable[[Estimate, Estimate], Estimate]

EXAMPLE = "tailscope model energy runs/asleep runs/awake"

_NOTHING = "-"
_PACKETS = {
    "energy_j_per_packet": "a packet",
    "energy_j_per_packet_above_idle": "above idle",
    "energy_j_per_million_packets": "a million packets",
    "energy_j_per_million_packets_above_idle": "above idle",
}


def command(
    runs: Annotated[
        list[Path], argument("RUN...", "Run directories; all are compared with the first.")
    ],
    json_file: JsonFile = None,
) -> int:
    """Exit status 3: the power of a phase is not known."""
    from tailscope.store.reader import read_run

    drawn = []
    for path in runs:
        run = read_run(path, label=str(path))
        drawn.append(_Drawn(run.label, _recorded(path, run.info)))
    first = drawn[0]
    for other in drawn[1:]:
        if _meter(other.power) != _meter(first.power):
            raise UsageError(
                f"{other.label}: got power of {_meter(other.power)},"
                f" expected of {_meter(first.power)}, as of {first.label}",
                code="power-differs",
            )
    more = [other.more_than(first) for other in drawn[1:]]
    content = {"runs": [run_drawn.record() for run_drawn in drawn], "differences": more}
    conclude(json_file, content, runs, partial(_print, drawn))
    return UNDECIDED if any(None in run_drawn.watts.values() for run_drawn in drawn) else 0


def _meter(power: PowerRecord) -> str:
    """Say what measured, and what that includes."""
    return f"{power.includes}, by {power.source}"


@dataclass(frozen=True)
class _Drawn:
    """The power that a run drew."""

    label: str
    power: PowerRecord
    """The power record of ``run.json``."""

    @property
    def figures(self) -> Mapping[str, Any]:
        """Figures of the run, by name."""
        return self.power.figures or {}

    @property
    def watts(self) -> dict[str, Estimate | None]:
        """The power of each phase, where it is known."""
        from tailscope.models.energy import PHASES

        return {phase: self._estimate(phase) for phase in PHASES}

    def _estimate(self, phase: str) -> Estimate | None:
        from tailscope.models.energy import METHOD
        from tailscope.models.estimate import Estimate

        name = f"power_w_{phase}"
        if self.figures[name] is None:
            return None
        return Estimate(
            estimate=self.figures[name],
            ci_low=self.figures[f"{name}_ci_low"],
            ci_high=self.figures[f"{name}_ci_high"],
            n=(self.power.phases or {})[phase].stretches,
            method=METHOD,
        )

    def above(self, phase: str) -> Estimate | None:
        """Return the power of processing above that of another phase, in watts."""
        from tailscope.models.energy import difference

        return _changed(difference, self.watts["processing"], self.watts[phase])

    def record(self) -> dict[str, object]:
        """Return the record as JSON has it."""
        flat = {"run": self.label, "power_source": self.power.source, **self.figures}
        for phase in ("idle", "running"):
            flat |= _record(f"power_w_processing_above_{phase}", self.above(phase))
        return {**flat, "reasons": self.power.reasons}

    def more_than(self, first: _Drawn) -> dict[str, object]:
        """Return the additional power of each phase as JSON has it."""
        from tailscope.models.energy import difference, relative_change

        flat: dict[str, object] = {"run": self.label, "compared_with": first.label}
        for phase, watts in self.watts.items():
            before = first.watts[phase]
            flat |= _record(f"more_w_{phase}", _changed(difference, watts, before))
            flat |= _record(f"more_share_{phase}", _changed(relative_change, watts, before))
        return flat


def _recorded(path: Path, info: RunInfo) -> PowerRecord:
    power = info.power
    if power is None or power.source is None:
        why = "it is not a measurement" if power is None else power.missing_because
        raise RunError(
            f"{path}: no power was recorded: {why}",
            code="no-power",
            hint="`tailscope run --power SOURCE` records it",
        )
    return power


def _changed(by: Change, after: Estimate | None, before: Estimate | None) -> Estimate | None:
    return None if after is None or before is None else by(after, before)


def _record(name: str, estimate: Estimate | None) -> Mapping[str, float | None]:
    if estimate is None:
        return {name: None, f"{name}_ci_low": None, f"{name}_ci_high": None}
    return estimate.record(name)


def _print(drawn: Sequence[_Drawn]) -> None:
    from tailscope.models.energy import PHASES

    first = drawn[0]
    sections = [list(_phase_rows(run)) for run in drawn]
    sections += [list(_more_rows(other, first)) for other in drawn[1:]]
    print_table(("power", *PHASES), sections)
    rows = [(run.label, *(_joules(run.figures[name]) for name in _PACKETS)) for run in drawn]
    print_table(("energy", *_PACKETS.values()), [rows])
    for run in drawn:
        say(_above_text(run))
    say(
        f"power of {first.power.includes}; processing includes the generator, which runs on the"
        " same machine"
    )
    for run in drawn:
        for name, reason in (run.power.reasons or {}).items():
            if name.startswith("power_w_"):
                say(f"{run.label}: {name}: {reason}")


def _phase_rows(run: _Drawn) -> Iterator[tuple[str, ...]]:
    watts = run.watts.values()
    yield (run.label, *(_watts(watt) for watt in watts))
    yield ("  95 % interval", *(_interval(power, "{:.2f}", 1) for power in watts))


def _more_rows(other: _Drawn, first: _Drawn) -> Iterator[tuple[str, ...]]:
    from tailscope.models.energy import difference, relative_change

    pairs = [(watts, first.watts[phase]) for phase, watts in other.watts.items()]
    more = [_changed(difference, *pair) for pair in pairs]
    shares = [_changed(relative_change, *pair) for pair in pairs]
    yield (f"{other.label}, more", *(_watts(estimate, "+") for estimate in more))
    yield ("  95 % interval", *(_interval(estimate, "{:+.2f}", 1) for estimate in more))
    texts = (_NOTHING if share is None else f"{100 * share.estimate:+.0f} %" for share in shares)
    yield ("  in percent", *texts)
    yield ("  95 % interval", *(_interval(estimate, "{:+.0f}", 100) for estimate in shares))


def _above_text(run: _Drawn) -> str:
    idle, running = run.above("idle"), run.above("running")
    return (
        f"{run.label}: processing takes {_watts(idle)} more than idling"
        f" ({_interval(idle, '{:.2f}', 1)}), {_watts(running)} more than running"
        f" ({_interval(running, '{:.2f}', 1)})"
    )


def _watts(estimate: Estimate | None, sign: str = "") -> str:
    return _NOTHING if estimate is None else f"{estimate.estimate:{sign}.2f} W"


def _interval(estimate: Estimate | None, form: str, scale: float) -> str:
    if estimate is None:
        return _NOTHING
    ends = (estimate.ci_low, estimate.ci_high)
    return " to ".join(form.format(scale * end) for end in ends)


def _joules(value: float | None) -> str:
    return _NOTHING if value is None else quantity_text(value, "J")
