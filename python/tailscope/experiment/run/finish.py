"""Parts of a run that can be made again: its tail's explanation, its page, or all its figures."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from tailscope.exceptions import RunCorruptError, RunError, RunExistsError
from tailscope.store import layout
from tailscope.store.atomic import sync_folder, write_text
from tailscope.store.directory import RunWriter, check_whole, is_complete
from tailscope.store.files import (
    MOST_RECORD_BYTES,
    holds_packets,
    is_there,
    read_file,
    size_of,
)
from tailscope.store.kept import keep
from tailscope.store.owner import owned, refuse_owned
from tailscope.store.reader import open_packets, read_run
from tailscope.store.records.base import read_record
from tailscope.store.records.recorded import RECORDED_FORMAT, RecordedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tailscope.engine.analysis import Analysis, Sink
    from tailscope.store.directory import Draw
    from tailscope.store.records.plan import MeasurementPlan
    from tailscope.store.records.run import RunInfo
    from tailscope.store.run import Run

    Find = Callable[[MeasurementPlan, Sink | None], Analysis]


def finish(path: Path, draw: Draw, *, command: Sequence[str]) -> list[str]:
    """Make what a run lacks."""
    if is_there(path, layout.RECORDED) and not is_complete(path):
        try:
            return _analysed(path, draw)
        except RunExistsError:
            # Perhaps another process has just finished it.
            if not is_complete(path):
                raise
    run = read_run(path)
    lacks_page = not (path / layout.REPORT).exists()
    if not (lacks_page or _lacks_explanation(run) or is_there(path, layout.RECORDING)):
        return []
    with owned(path):
        return _completed(run, path, draw, command)


def _completed(run: Run, path: Path, draw: Draw, command: Sequence[str]) -> list[str]:
    """Make what a complete run lacks."""
    if is_there(path, layout.RECORDING):
        sync_folder(path)
        shutil.rmtree(path / layout.RECORDING)
    written = []
    if _lacks_explanation(run):
        run = _explained(run, path, command)
        written.append(layout.EXPLANATION)
    if written or not (path / layout.REPORT).exists():
        write_text(path / layout.REPORT, draw(run))
        written.append(layout.REPORT)
    return written


def _lacks_explanation(run: Run) -> bool:
    return run.explanation is None and _can_be_explained(run.info)


def _can_be_explained(info: RunInfo) -> bool:
    """Return True if there is what explains packets, by a clock that is known."""
    clock = info.device_clock
    is_known = clock is None or clock.method is not None
    return info.noise is not None and layout.NOISE in info.files and is_known


def _analysed(path: Path, draw: Draw) -> list[str]:
    """Analyse what was recorded, and not analysed when it was measured."""
    from tailscope.experiment.run.evaluate import analysed
    from tailscope.noise.table import read_recorded

    refuse_owned(path)
    if not holds_packets(path):
        raise RunError(
            f"{path}: there is nothing to analyse: the run ended before a packet was recorded",
            code="no-packets",
            hint=f"measure again: `tailscope run ... --out {path}` replaces what is there",
        )
    before = {each.name for each in path.iterdir()}
    with RunWriter(path, draw=draw, resumes=True) as writer:
        file = path / layout.RECORDED
        content = read_file(path, layout.RECORDED, most_bytes=MOST_RECORD_BYTES)
        run = read_record(content, RecordedRun, file, newest=RECORDED_FORMAT)
        run, find = _kept(path, run)
        found = analysed(run, find, read_recorded(path, run.info), writer)
    check_whole(path, found.lacks)
    return sorted(each.name for each in path.iterdir() if each.name not in before)


def _kept(path: Path, run: RecordedRun) -> tuple[RecordedRun, Find]:
    """Return what is known of a run, and what analyses its recording, or its captures."""
    from tailscope.engine.analysis import Clock, Recording
    from tailscope.experiment.run.cut_off import counted
    from tailscope.experiment.run.evaluate import of_captures, of_recording

    instrument, clock = run.info.instrument, run.info.clock
    if instrument is not None and instrument.timestamper is not None:
        pre, post = (
            _capture(path, each.path)
            for each in (instrument.timestamper.files.pre, instrument.timestamper.files.post)
        )
        return run, of_captures(pre, post)
    for name in Recording._fields[1:]:
        size_of(path, f"{layout.RECORDING}/{name}.npy")
    if clock.tsc_hz is None or clock.tsc is None or clock.unix_ns is None:
        file = path / layout.RECORDED
        raise RunCorruptError(
            f"{file}: info.clock: expected tsc_hz, tsc and unix_ns", code="recording-clock"
        )
    folder = path / layout.RECORDING
    recording = Recording.load(
        folder, Clock(clock.tsc_hz, clock.tsc, clock.unix_ns), cut_off=run.cut_off
    )
    if run.cut_off:
        run = counted(run, folder, recording)
    return run, of_recording(recording, run)


def _capture(path: Path, remote: str) -> Path:
    """A capture that was kept: where all captures of the run are, or with what was recorded."""
    folder = layout.CAPTURES if is_there(path, layout.CAPTURES) else layout.RECORDING
    name = f"{folder}/{remote.rpartition('/')[2]}"
    size_of(path, name)
    return path / name


def _explained(run: Run, path: Path, command: Sequence[str]) -> Run:
    from tailscope.noise.explanation import explain_tail_and_worst
    from tailscope.noise.stages import read_stages
    from tailscope.noise.table import read_blocked

    blocked, stages = read_blocked(path, run.info), read_stages(path, run.info)
    with open_packets(path, run.info) as packets:
        known = packets.latencies().distribution
        tail, explained = explain_tail_and_worst(packets, known, blocked, run.worst, stages)
    keep(path, run.info, layout.EXPLANATION, tail, command=command)
    return replace(run, explanation=tail, worst_explained=explained.columns())
