"""The origin of a run, as ``run.json`` has it."""

from __future__ import annotations

import platform
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import tailscope
from tailscope.engine.analysis import source_of
from tailscope.store.machine import this_host
from tailscope.store.records.about import AboutRecord
from tailscope.store.records.run import ClockRecord, Input, RunInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.engine.analysis import Figure
    from tailscope.store.records.floor import FloorRecord
    from tailscope.store.records.host import HostRecord
    from tailscope.store.records.plan import AnalysisPlan, ImportPlan, MeasurementPlan
    from tailscope.store.records.run import (
        CoRunnerRecord,
        DutRecord,
        Instrument,
        MachineInfo,
        NoiseRecord,
        PlatformRecord,
        PowerRecord,
        Written,
    )


def analysis_info(
    plan: AnalysisPlan, summary: Mapping[str, Figure], about: AboutRecord | None = None
) -> RunInfo:
    """Collect what ``run.json`` keeps of an analysis; checksums follow."""
    sides = {"pre": plan.pre, "post": plan.post}
    clock = ClockRecord(
        source="capture-file",
        pre_resolution=_text(summary["pre_resolution"]),
        post_resolution=_text(summary["post_resolution"]),
    )
    files = {
        side if number == 1 else f"{side}-{number}": file
        for side, capture in sides.items()
        for number, (file, _) in enumerate(source_of(capture), 1)
    }
    return _info_of_files(plan, about, files, clock)


def links_info(plan: AnalysisPlan, summary: Mapping[str, Figure]) -> RunInfo:
    """Collect what ``run.json`` keeps of packets that were matched while links saw them."""
    clock = ClockRecord(
        source="kernel-software",
        pre_resolution=_text(summary["pre_resolution"]),
        post_resolution=_text(summary["post_resolution"]),
    )
    return _info_of_files(plan, None, {}, clock)


def import_info(plan: ImportPlan, files: Mapping[str, Path], about: AboutRecord | None) -> RunInfo:
    """Collect what ``run.json`` keeps of an import; checksums follow."""
    named = {name: str(path) for name, path in files.items()}
    return _info_of_files(plan, about, named, ClockRecord(source="imported"))


def _info_of_files(
    plan: AnalysisPlan | ImportPlan,
    about: AboutRecord | None,
    files: Mapping[str, str],
    clock: ClockRecord,
) -> RunInfo:
    return RunInfo(
        written_unix_ns=0,
        **_versions(),
        plan=plan,
        host=this_host(),
        about=_unless_empty(about),
        inputs={name: _input(path) for name, path in files.items()},
        clock=clock,
        floor=None,
        partial=(),
        warnings=(),
        files={},
    )


def measurement_info(plan: MeasurementPlan, host: HostRecord, about: MeasurementRecord) -> RunInfo:
    """Collect what ``run.json`` keeps of a measurement; checksums follow.

    `host` was looked at before packets flew: what is recorded is known by this from the first on.
    """
    own = {field.name: getattr(about, field.name) for field in fields(about)}
    return RunInfo(
        written_unix_ns=0,
        **_versions(),
        plan=plan,
        host=host,
        inputs={},
        files={},
        **own,
    )


@dataclass(frozen=True, kw_only=True)
class MeasurementRecord:
    """The fields of `RunInfo` that only a measurement has.

    A laboratory also says which machines it has.
    """

    clock: ClockRecord
    floor: FloorRecord | None
    partial: tuple[str, ...]
    warnings: tuple[str, ...]
    instrument: Instrument
    dut: DutRecord | None
    platform: PlatformRecord | None
    co_runners: tuple[CoRunnerRecord, ...] | None = None
    noise: NoiseRecord | None = None
    power: PowerRecord | None = None
    knobs: dict[str, str | None] | None = None
    tuning: tuple[Written, ...] | None = None
    hosts: dict[str, HostRecord] | None = None
    machines: dict[str, MachineInfo] | None = None


def _unless_empty(about: AboutRecord | None) -> AboutRecord | None:
    return None if about == AboutRecord() else about


class _Versions(TypedDict):
    tailscope_version: str
    python_version: str


def _versions() -> _Versions:
    return {
        "tailscope_version": str(tailscope.__version__),
        "python_version": platform.python_version(),
    }


def _text(value: Figure) -> str | None:
    return None if value is None else str(value)


def _input(name: str) -> Input:
    if name == "-":
        return Input(file=name, size_bytes=None, modified_unix_ns=None)
    status = Path(name).stat()
    return Input(
        file=str(Path(name).resolve()),
        size_bytes=status.st_size,
        modified_unix_ns=status.st_mtime_ns,
    )
