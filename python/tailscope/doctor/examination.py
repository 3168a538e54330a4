"""The examination of this machine: who is busy on it, what it can measure, and how far."""

from __future__ import annotations

import os
import time
from typing import Literal

from msgspec.structs import replace

from tailscope.doctor.answer import answer
from tailscope.doctor.measurable import examine
from tailscope.exceptions import TailscopeError
from tailscope.experiment.search.calibration import short_floor
from tailscope.host.cards import offered_stamps
from tailscope.noise.load import look
from tailscope.store.floor import believed_up_to
from tailscope.store.machine import this_host
from tailscope.store.records.doctor import (
    BusyProgram,
    CardStamps,
    DoctorRecord,
    MachineLoad,
    ShortFloor,
)
from tailscope.testbed.cores import pick_cores, read_topology
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.wires import Memif, cards_of_kernel

_LOOK_S = 0.5
_RATE_PPS, _DURATION_NS = 100_000, 1_000_000_000


def examine_machine() -> DoctorRecord:
    """Examine this machine, in about five seconds."""
    load = look(os.sched_getaffinity(0), _LOOK_S)
    cores = pick_cores(read_topology(), ("generator", "dut"))
    with RunFolder() as folder:
        parts = examine(folder, cores)
    floor, no_floor = _floor()
    record = DoctorRecord(
        answer="",
        examined_unix_ns=time.time_ns(),
        host=this_host(),
        load=MachineLoad(
            cpus={str(cpu): share for cpu, share in load.cpus.items()},
            programs=tuple(
                BusyProgram(name=name, share=share) for name, share in load.programs.items()
            ),
        ),
        floor=floor,
        no_floor=no_floor,
        **parts._asdict(),
        cards=tuple(map(_card, cards_of_kernel())),
    )
    return replace(record, answer=answer(record))


def _floor() -> tuple[ShortFloor | None, str | None]:
    """Measure the floor of shared memory, which needs no privileges."""
    try:
        quantiles = short_floor(Memif.name, rate_pps=_RATE_PPS, duration_ns=_DURATION_NS)
    except TailscopeError as error:
        return None, str(error)
    floor = ShortFloor(
        rate_pps=_RATE_PPS,
        duration_ns=_DURATION_NS,
        quantiles=quantiles,
        believed_up_to=believed_up_to(quantiles),
    )
    return floor, None


def _card(name: str) -> CardStamps:
    offer = offered_stamps(name)
    stamps: Literal["all", "some", "none"]
    stamps = "all" if offer.stamps_all else "some" if offer.stamps else "none"
    return CardStamps(name=name, stamps=stamps, clock=offer.clock)
