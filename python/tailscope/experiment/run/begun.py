"""Measurements when their packets begin to be recorded: what is known of them by then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec.structs import asdict

from tailscope.experiment.run.cut_off import result_of
from tailscope.store import floor
from tailscope.store.provenance import MeasurementRecord
from tailscope.store.records.recorded import RecordedRun
from tailscope.store.records.run import ClockRecord, Instrument, Stalls, StallsOfSides
from tailscope.testbed.messages import generator_counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.experiment.run.instance import Instance
    from tailscope.store.records.messages import ReadyEvent
    from tailscope.store.records.run import RunInfo
    from tailscope.testbed.cores import Cores

_ENDED = (
    "tailscope ended before the measurement did: packets and stalls of the generator are recorded;"
    " causes, counters of the device and power are missing"
)
_NO_STALLS = Stalls(count=0, stall_ns_total=0, stall_ns_max=0, unrecorded=0)


def begun_run(
    describe: Callable[[MeasurementRecord], RunInfo],
    cores: Cores,
    instance: Instance,
    ready: ReadyEvent,
    direction: Literal["forth", "back"] | None,
) -> RecordedRun:
    """Collect what is known of a measurement when its packets begin to be recorded."""
    result = result_of(ready, instance.record)
    record = MeasurementRecord(
        clock=ClockRecord(source="tsc", **asdict(ready.clock)),
        floor=floor.load(instance.device.instrument),
        partial=(_ENDED,),
        warnings=cores.warnings,
        instrument=Instrument(
            unsent=0,
            lost_in_dut=0,
            lost_in_instrument=0,
            lost_where_unknown=0,
            dropped_by_dut=None,
            stalls=StallsOfSides(generator=_NO_STALLS),
            cpus=instance.cpus.named(),
            raised_priority=instance.is_urgent,
            generator=generator_counts(result),
            direction=direction,
        ),
        dut=None,
        platform=None,
    )
    return RecordedRun(
        info=describe(record),
        lost_in_instrument=0,
        warm_up_lost=0,
        came=0,
        foreign=0,
        cut_off=True,
    )
