"""Carrying out a plan: start both sides, follow them, analyse, keep what came out."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailscope.analysis import Clock, Recording, analyze_recording, load_ticks
from tailscope.duts.dataplane import LOOP, dut_named
from tailscope.exceptions import DataplaneError, TestbedError
from tailscope.store import floor
from tailscope.store.provenance import measurement_info
from tailscope.testbed.cores import staying_on
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.process import Dataplane
from tailscope.testbed.wires import wire_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tailscope.analysis import Analysis
    from tailscope.experiment.plan import RunPlan
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.wires import Ends

    Progress = Callable[[Mapping[str, Any]], None]

__all__ = ["Measured", "execute", "execute_whole"]

_POLL_S = 0.2
_MARGIN_S = 30.0


@dataclass(frozen=True)
class Measured:
    """What a run found.

    Attributes
    ----------
    analysis : Analysis
    info : Mapping
        The content of ``run.json``.
    recording : Recording
        Of the generator; valid within `inspect` only: its files go with the run's folder.
    dut_folder : Path or None
        Where the device wrote down its stalls.
    interrupted : bool
        Whether somebody ended it before its time.
    """

    analysis: Analysis
    info: Mapping[str, Any]
    recording: Recording
    dut_folder: Path | None
    interrupted: bool


def execute(
    plan: RunPlan,
    cores: Cores,
    *,
    out: Path | None = None,
    progress: Progress | None = None,
    inspect: Callable[[Measured], None] | None = None,
    around: Callable[[RunFolder, Ends], AbstractContextManager[None]] | None = None,
) -> Measured:
    """Carry out a plan.

    Parameters
    ----------
    plan : RunPlan
    cores : Cores
        One polling CPU for each process, generator first.
    out : Path, optional
        The run directory to write.
    progress : callable, optional
        Receives what the generator says once a second.
    inspect : callable, optional
        Receives what was found while its recordings are there.
    around : callable, optional
        Makes a context for the traffic out of the run's folder and wire: for others who watch it.

    Raises
    ------
    TestbedError
        If the wire cannot be put up, or a process fails before there is anything to keep.
    KeyboardInterrupt
        At the second Ctrl-C. The first one ends the traffic, and what was measured is kept, if
        there is anything yet.
    """
    wire = wire_named(plan.wire, plan.wire_options)
    wire.check()
    with ExitStack() as stack:
        writer = None
        if out is not None:
            from tailscope.store.directory import RunWriter

            writer = stack.enter_context(RunWriter(out))
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(wire.open(folder))
        sides = _Sides(plan, cores, folder, ends)
        with contextlib.nullcontext() if around is None else around(folder, ends):
            sides.run(progress)
        if sides.interrupted and not sides.generator_result["gen"]["sent"]:
            raise KeyboardInterrupt
        folders = sides.folders
        clock = Clock(**sides.generator_result["clock"])
        sides.check_recorded()
        recording = Recording.load(folders["generator"], clock)
        analysis = analyze_recording(
            recording,
            trim=plan.trim_ns,
            window=plan.window_ns,
            worst=plan.worst,
            series=False,
            sink=None if writer is None else writer.sink,
        )
        info = measurement_info(plan.record(), sides.info(analysis))
        dut_folder = folders.get("dut") if sides.dut_result else None
        found = Measured(analysis, info, recording, dut_folder, sides.interrupted)
        if writer is not None:
            from tailscope.report.html import page

            writer.add_noise(_noise(clock, folders, sides.dut_result is not None))
            if plan.captures:
                writer.add_captures(folders["captures"])
            writer.finish(
                analysis, info=info, bucket_ns=plan.bucket_ns, report=lambda run: page([run])
            )
        if inspect is not None:
            inspect(found)
    return found


def execute_whole(plan: RunPlan, cores: Cores, **how: Any) -> Measured:
    """Carry out a plan of which a part is worth nothing; the arguments are those of `execute`.

    Raises
    ------
    KeyboardInterrupt
        At the first Ctrl-C.
    TestbedError
        As `execute`, and if the result is a partial one.
    """
    measured = execute(plan, cores, **how)
    if measured.interrupted:
        raise KeyboardInterrupt
    if measured.info["partial"]:
        raise TestbedError(f"a partial result: {'; '.join(measured.info['partial'])}")
    return measured


class _Sides:
    """The generator, the device, and what became of them."""

    def __init__(self, plan: RunPlan, cores: Cores, folder: RunFolder, ends: Ends) -> None:
        self.plan, self.cores, self.ends = plan, cores, ends
        self.folder = folder
        self.folders = {"generator": folder.make("generator")}
        if plan.dut != LOOP:
            self.folders["dut"] = folder.make("dut")
        if plan.captures:
            self.folders["captures"] = folder.make("captures")
        self.interrupted = False
        self.generator_result: Mapping[str, Any] = {}
        self.dut_result: Mapping[str, Any] | None = None
        self.partial: list[str] = []
        self.niced = True

    def run(self, progress: Progress | None) -> None:
        """Run both to their end."""
        with ExitStack() as stack:
            dut = None
            if self.plan.dut != LOOP:
                dut = stack.enter_context(self._start_dut())
                dut.wait_ready()
            generator = stack.enter_context(self._start_generator(loop=dut is None))
            self.niced = generator.niced and (dut is None or dut.niced)
            self._follow(generator, dut, progress)
            result = generator.finish()
            if dut is not None:
                died = not dut.is_running
                dut.stop()
                self.dut_result = dut.finish()
                if died or self.dut_result is None:
                    self.partial.append(str(dut.failure()))
            if result is None:
                raise generator.failure()
            self.generator_result = result
            self.partial += result["partial"]
            if self.dut_result is not None:
                self.partial += self.dut_result["partial"]

    def _follow(
        self, generator: Dataplane, dut: Dataplane | None, progress: Progress | None
    ) -> None:
        """Listen until the generator has ended. Ctrl-C ends the traffic, a second one all."""
        plan = self.plan
        lasts_s = (plan.warm_up_ns + plan.duration_ns) / 1e9 + _MARGIN_S
        deadline_s = time.monotonic() + lasts_s
        while True:
            try:
                event = generator.next_event(_POLL_S)
            except queue.Empty:
                if time.monotonic() > deadline_s:
                    raise DataplaneError(
                        f"generator: no result {_MARGIN_S:g} s after it should have ended"
                    ) from None
                if not generator.ready and dut is not None and not dut.is_running:
                    raise dut.failure() from None
                continue
            except KeyboardInterrupt:
                if self.interrupted:
                    raise
                self.interrupted = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(generator.pid, signal.SIGINT)
                deadline_s = time.monotonic() + _MARGIN_S
                continue
            if event is None:
                return
            if event["event"] == "progress" and progress is not None:
                progress(event)

    def _start_dut(self) -> Dataplane:
        plan = self.plan
        options = [
            *dut_named(plan.dut).arguments(plan.dut_options),
            f"--stall-ns={plan.stall_ns}",
            f"--record={self.folders['dut']}",
        ]
        return self._process("dut", plan.dut, self.ends.dut, options, self.cores.pollers[1])

    def _start_generator(self, *, loop: bool) -> Dataplane:
        options = [*self.plan.generator_options(), f"--record={self.folders['generator']}"]
        if self.plan.captures:
            options.append(f"--captures={self.folders['captures']}")
        ends = self.ends.loop if loop else self.ends.generator
        return self._process("generator", "gen", ends, options, self.cores.pollers[0])

    def _process(
        self, role: str, program: str, ends: list[str], options: list[str], cpu: int
    ) -> Dataplane:
        return Dataplane(
            role,
            program,
            ends,
            options,
            folder=self.folder.path,
            lcores=[cpu],
            housekeeping=self.cores.housekeeping,
            command=self.ends.command,
        )

    def check_recorded(self) -> None:
        """See that the generator could write everything down."""
        written = set(self.generator_result["record"])
        missing = [name for name in Recording._fields[1:] if f"{name}.npy" not in written]
        if missing:
            raise DataplaneError(
                f"generator: could not write its recording: {'; '.join(self.partial)}",
                hint="make room there, or set XDG_RUNTIME_DIR or TMPDIR to a folder that has some",
            )

    def info(self, analysis: Analysis) -> dict[str, Any]:
        """What ``run.json`` keeps of both."""
        result, plan = self.generator_result, self.plan
        generator, lost = result["gen"], int(analysis.summary["lost"] or 0)
        in_instrument = min(lost, self._instrument_drops())
        warnings = list(self.cores.warnings)
        if generator["unsent"]:
            warnings.append(
                f"{generator['unsent']:,} packets could not be sent within 10 ms of their time:"
                " the wire, or the device behind it, does not carry this rate"
            )
        if in_instrument:
            warnings.append(
                f"{in_instrument:,} packets were lost in the instrument, not in the DuT"
            )
        stalls = {"generator": _stalls(result)}
        if self.dut_result is not None:
            stalls["dut"] = _stalls(self.dut_result)
        roles = ["generator", "DuT"][: plan.pollers]
        return {
            "clock": {"source": "tsc", **result["clock"]},
            "floor": floor.load(plan.instrument),
            "partial": self.partial,
            "warnings": warnings,
            "instrument": {
                "unsent": generator["unsent"],
                "lost_in_dut": lost - in_instrument,
                "lost_in_instrument": in_instrument,
                "stalls": stalls,
                "cpus": dict(zip(roles, self.cores.pollers, strict=False)),
                "raised_priority": self.niced,
                "generator": _kept(result),
                "dut": None if self.dut_result is None else _kept(self.dut_result),
            },
        }

    def _instrument_drops(self) -> int:
        """Packets that found the generator's ring full, or no room in it."""
        result = self.generator_result
        generator = result["gen"]
        drops = int(generator["unrecorded"])
        drops += sum(int(port["rx_missed"] + port["rx_nombuf"]) for port in result["ports"])
        if self.dut_result is not None:
            drops += sum(int(lcore["tx_dropped"]) for lcore in self.dut_result["lcores"])
        warm_up_lost = int(generator["warm_up_sent"] - generator["warm_up_received"])
        return max(0, drops - warm_up_lost)


def _stalls(result: Mapping[str, Any]) -> dict[str, int]:
    lcores = result["lcores"]
    return {
        "count": sum(lcore["stalls"] for lcore in lcores),
        "total_ns": sum(lcore["stall_total_ns"] for lcore in lcores),
        "longest_ns": max((lcore["stall_longest_ns"] for lcore in lcores), default=0),
        "unrecorded": sum(lcore["stalls_unrecorded"] for lcore in lcores),
    }


def _kept(result: Mapping[str, Any]) -> dict[str, Any]:
    left_out = {"event", "record", "clock", "partial"}
    return {name: value for name, value in result.items() if name not in left_out}


def _noise(clock: Clock, folders: Mapping[str, Path], has_dut: bool) -> dict[str, Any]:
    """The columns of ``noise.parquet``, in order of time."""
    import numpy as np

    parts = []
    sources = [("instrument", "generator"), *([("dut", "dut")] if has_dut else [])]
    for source, role in sources:
        folder = folders[role]
        for kind, name in (("stall", "stall"), ("injected", "injected")):
            if (folder / f"{name}_start_tsc.npy").exists():
                start = load_ticks(folder, f"{name}_start_tsc")
                duration = load_ticks(folder, f"{name}_duration_tsc")
                lcore = load_ticks(folder, "stall_lcore") if kind == "stall" else None
                parts.append((source, kind, lcore, start, duration))

    def ns(ticks: Any) -> Any:
        whole, rest = np.divmod(np.asarray(ticks, np.int64), clock.tsc_hz)
        return whole * 1_000_000_000 + rest * 1_000_000_000 // clock.tsc_hz

    columns: dict[str, list[Any]] = {
        name: [] for name in ("source", "kind", "lcore", "start_ns", "duration_ns")
    }
    for source, kind, lcore, start, duration in parts:
        columns["source"].append(np.full(len(start), source))
        columns["kind"].append(np.full(len(start), kind))
        columns["lcore"].append(
            np.zeros(len(start), np.uint64) if lcore is None else np.asarray(lcore)
        )
        since = np.asarray(start, np.int64) - clock.tsc
        columns["start_ns"].append((ns(since) + clock.unix_ns).astype(np.uint64))
        columns["duration_ns"].append(ns(duration).astype(np.uint64))
    whole = {name: np.concatenate(values) for name, values in columns.items()}
    order = np.argsort(whole["start_ns"], kind="stable")
    return {name: values[order] for name, values in whole.items()}
