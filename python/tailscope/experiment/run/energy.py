"""The power of a run: its readings, and the figures that follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.models.energy import PHASES, Power, Span, account
from tailscope.store.records.run import PowerPhase, PowerRecord

if TYPE_CHECKING:
    from tailscope.engine.analysis import Recording
    from tailscope.store.run import NewColumns
    from tailscope.testbed.power import Meter, PowerReading, RecordedPower


class RunEnergy:
    """The energy of a run."""

    def __init__(
        self, recorded: RecordedPower, processing_ns: tuple[int, int] | None, packets: int
    ) -> None:
        self._recorded, self._power, self._energy = recorded, None, None
        self._phases = {name: Span(*span) for name, span in recorded.phases.items()}
        if processing_ns is not None:
            self._phases[PHASES[-1]] = Span(*processing_ns)
        if recorded.source is not None:
            self._power = _power(recorded.source, recorded.readings)
            self._energy = account(self._power, self._phases, packets)

    def record(self) -> PowerRecord:
        """Return the record of it that ``run.json`` keeps."""
        source = self._recorded.source
        if source is None or self._energy is None:
            return PowerRecord(source=None, missing_because=self._recorded.why_not)
        took_ns = [reading.took_ns for reading in self._recorded.readings]
        return PowerRecord(
            source=source.name,
            includes=source.includes,
            readings=len(took_ns),
            readings_failed=len(self._recorded.failures),
            reading_ns_p50=int(np.median(took_ns)),
            reading_ns_max=max(took_ns),
            phases={
                name: PowerPhase(**span._asdict(), stretches=self._stretches(name))
                for name, span in self._phases.items()
            },
            figures={"power_includes": source.includes, **self._energy.record()},
            reasons=dict(self._energy.reasons),
        )

    def _stretches(self, phase: str) -> int:
        assert self._energy is not None
        estimate = self._energy.estimates[f"power_w_{phase}"]
        return 0 if estimate is None else estimate.n

    def warnings(self) -> list[str]:
        """Return the warnings that a reader of results must know."""
        if self._energy is None:
            return []
        failures, readings = self._recorded.failures, self._recorded.readings
        found = []
        if failures:
            total = len(readings) + len(failures)
            found.append(f"{len(failures)} of {total} power readings failed: {failures[0]}")
        for phase in PHASES:
            reason = self._energy.reasons.get(f"power_w_{phase}")
            if reason is not None:
                found.append(f"power while {phase} is not known: {reason}")
        return found

    def columns(self) -> NewColumns | None:
        """Power over time as ``power.parquet`` has it, a row for each stretch and domain."""
        power, source = self._power, self._recorded.source
        if power is None or source is None:
            return None
        count = len(source.domains)
        return {
            "domain": list(source.domains) * len(power.start_ns),
            "start_ns": power.start_ns.repeat(count),
            "end_ns": power.end_ns.repeat(count),
            "watts": power.watts.ravel(),
        }


def sending_ns(recording: Recording) -> tuple[int, int] | None:
    """Return the times of a generator's first and last departure; None where nothing left."""
    if not len(recording.departure_tsc):
        return None
    first, last = (int(recording.departure_tsc[at]) for at in (0, -1))
    return recording.clock.at_ns(first), recording.clock.at_ns(last)


def _power(source: Meter, readings: list[PowerReading]) -> Power:
    times = [reading.unix_ns for reading in readings]
    if source.range_uj:
        counts = [[int(value) for value in reading.values] for reading in readings]
        return Power.from_counters(times, counts, source.range_uj)
    values = [value for reading in readings for value in reading.values]
    digits = [int(value.as_tuple().exponent) for value in values]
    return Power.from_readings(
        times, [float(value) for value in values], resolution_w=10.0 ** min(digits)
    )
