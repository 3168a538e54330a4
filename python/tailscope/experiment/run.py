"""Carrying out a plan: start all sides, follow them, analyse, keep what came out."""

from __future__ import annotations

import queue
import signal
import time
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tailscope.analysis import Clock, Recording, analyze_recording
from tailscope.duts.dut import DutContext
from tailscope.exceptions import DataplaneError, TestbedError
from tailscope.host.cpus import parse_cpus
from tailscope.noise.recorder import NoiseRecorder
from tailscope.store import floor
from tailscope.store.provenance import measurement_info
from tailscope.testbed.co_runners import co_runners
from tailscope.testbed.cores import staying_on
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.power import PowerRecorder
from tailscope.testbed.process import Dataplane

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tailscope.analysis import Analysis, Worst
    from tailscope.duts.dut import Running
    from tailscope.experiment.energy import RunEnergy
    from tailscope.experiment.plan import InstanceCpus, RunPlan
    from tailscope.host.apply import KnobOutcome
    from tailscope.noise.recorder import RecordedNoise
    from tailscope.noise.table import SideNoise
    from tailscope.platforms.platform import OpenPlatform, Platform
    from tailscope.store.directory import RunWriter
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.power import RecordedPower
    from tailscope.testbed.wires import Side, WireEnds

    Progress = Callable[[Mapping[str, Any]], None]

__all__ = [
    "Measured",
    "execute",
    "execute_whole",
    "own_figures",
    "stalls_of",
    "without_events",
]

_POLL_S = 0.1
_MARGIN_S = 30.0


@dataclass(frozen=True)
class Measured:
    """What a run found.

    Attributes
    ----------
    analysis : Analysis
    info : Mapping
        The content of ``run.json``.
    recording : Recording or None
        Of the generator; valid within `inspect` only: its files go with the run's folder. None
        where a timestamper watched.
    dut_folder : Path or None
        Where the device wrote down its stalls.
    interrupted : bool
        Whether somebody ended it before its time.
    out : Path or None
        The run directory that was written.
    """

    analysis: Analysis
    info: Mapping[str, Any]
    recording: Recording | None
    dut_folder: Path | None
    interrupted: bool
    out: Path | None

    @property
    def figures(self) -> dict[str, Any]:
        """Every figure by its flat name, the instrument's own included."""
        return {**self.analysis.summary, **own_figures(self.info)}


def own_figures(info: Mapping[str, Any]) -> dict[str, Any]:
    """What a measurement counts, and draws, that an analysis of captures cannot know.

    Parameters
    ----------
    info : Mapping
        The content of ``run.json``.
    """
    names = ("unsent", "lost_in_dut", "lost_in_instrument", "dropped_by_dut")
    power = info.get("power", {}).get("figures", {})
    return {**{name: info["instrument"][name] for name in names}, **power}


def execute(
    plan: RunPlan,
    cores: Cores,
    *,
    out: Path | None = None,
    progress: Progress | None = None,
    inspect: Callable[[Measured], None] | None = None,
    around: Callable[[RunFolder, WireEnds], AbstractContextManager[None]] | None = None,
) -> list[Measured]:
    """Carry out a plan.

    Parameters
    ----------
    plan : RunPlan
    cores : Cores
        The polling CPUs, in the order of `RunPlan.seats`.
    out : Path, optional
        The run directory to write; with several instances that get traffic, the folder of
        ``instance-1``, ``instance-2``, ...
    progress : callable, optional
        Receives what the first generator says once a second.
    inspect : callable, optional
        Receives what was found while its recordings are there.
    around : callable, optional
        Makes a context for the traffic out of the run's folder and the first instance's wire: for
        others who watch it.

    Returns
    -------
    list of Measured
        One for each instance that got traffic.

    Raises
    ------
    TestbedError
        If something cannot be put up, or a process fails before there is anything to keep.
    KeyboardInterrupt
        At the second Ctrl-C. The first one ends the traffic, and what was measured is kept, if
        there is anything yet.
    """
    plan.check()
    with ExitStack() as stack:
        if out is not None and plan.loaded > 1:
            stack.callback(_remove_empty, out)
        writers = [stack.enter_context(writer) for writer in _writers(plan, out)]
        stack.enter_context(staying_on(cores.housekeeping))
        tuning = stack.enter_context(_tuned(plan, cores))
        folder = stack.enter_context(RunFolder())
        instances = [
            _Instance(plan, cores, folder, seats, number if plan.instances > 1 else None, tuning)
            for number, seats in enumerate(plan.seats(cores), 1)
        ]
        for instance in instances:
            instance.put_up(stack)
        with nullcontext() if around is None else around(folder, instances[0].ends):
            recorded = plan if writers else replace(plan, noise="stalls", power="none")
            _Traffic(recorded, instances, folder, cores).run(progress)
        found = []
        loaded = instances[: plan.loaded]
        packets = sum(instance.sent for instance in loaded)
        for instance, writer in zip_longest(loaded, writers):
            measured = instance.analyse(writer, packets)
            if inspect is not None:
                inspect(measured)
            found.append(measured)
    return found


def execute_whole(plan: RunPlan, cores: Cores, **how: Any) -> Measured:
    """Carry out a plan of which a part is worth nothing; the arguments are `execute`'s.

    Raises
    ------
    KeyboardInterrupt
        At the first Ctrl-C.
    TestbedError
        As `execute`, and if the result is a partial one.
    """
    assert plan.loaded == 1, "several instances have several results"
    [measured] = execute(plan, cores, **how)
    if measured.interrupted:
        raise KeyboardInterrupt
    if measured.info["partial"]:
        raise TestbedError(f"a partial result: {'; '.join(measured.info['partial'])}")
    return measured


def _writers(plan: RunPlan, out: Path | None) -> Sequence[RunWriter]:
    if out is None:
        return []
    from tailscope.store.directory import RunWriter

    if plan.loaded == 1:
        return [RunWriter(out)]
    return [RunWriter(out / f"instance-{number + 1}") for number in range(plan.loaded)]


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _tuned(plan: RunPlan, cores: Cores) -> AbstractContextManager[Sequence[KnobOutcome]]:
    """Set the host's knobs for the CPUs that poll, where that is wanted."""
    if not plan.tune:
        return nullcontext(())
    from tailscope.host.apply import tuned
    from tailscope.host.machine import Machine

    return tuned(Machine(), tuple(sorted(set(cores.pollers))), by="tailscope run --tune")


def _knobs(cores: Cores) -> dict[str, str | None]:
    """How the host is set for the CPUs that poll, by knob."""
    from tailscope.host.audit import audit
    from tailscope.host.machine import Machine

    found = audit(Machine(), tuple(sorted(set(cores.pollers))))
    return {finding.name: finding.as_is for finding in found.findings}


class _Traffic:
    """What goes through the devices, until it has ended."""

    def __init__(
        self, plan: RunPlan, instances: Sequence[_Instance], folder: Folder, cores: Cores
    ) -> None:
        self._plan, self._instances, self._folder = plan, instances, folder
        self._co_runner_cpus = (
            cores.housekeeping if plan.co_runner_cpus is None else parse_cpus(plan.co_runner_cpus)
        )

    def run(self, progress: Progress | None) -> None:
        """Start devices, co-runners and generators, and follow all to their end."""
        plan = self._plan
        with ExitStack() as stack:
            power = stack.enter_context(
                PowerRecorder(self._folder.path, plan.power, phase_s=plan.power_phase_ns / 1e9)
            )
            power.rest("idle")
            for instance in self._instances:
                instance.start_dut(stack)
            busy = stack.enter_context(
                co_runners(self._folder, plan.co_runners, self._co_runner_cpus)
            )
            power.rest("running")
            loaded = [
                instance for instance in self._instances if instance.seats.generator is not None
            ]
            recorder = stack.enter_context(self._recorder())
            for instance in loaded:
                instance.start_generator(stack)
            self._follow(loaded, progress)
            gone, noise, drawn = busy.failure(), recorder.finish(), power.finish()
            for instance in self._instances:
                instance.finish(gone, noise, drawn)

    def _recorder(self) -> NoiseRecorder:
        plan = self._plan
        seats = [instance.seats for instance in self._instances]
        generators = [each.generator for each in seats if each.generator is not None]
        return NoiseRecorder(
            self._folder,
            [*generators, *(cpu for each in seats for cpu in each.dut)],
            what=plan.noise,
            counter_interval_s=plan.counter_interval_ns / 1e9 or None,
        )

    def _follow(self, loaded: Sequence[_Instance], progress: Progress | None) -> None:
        """Listen until all generators have ended. Ctrl-C ends the traffic, a second one all."""
        lasts_s = (self._plan.warm_up_ns + self._plan.duration_ns) / 1e9 + _MARGIN_S
        deadline_s = time.monotonic() + lasts_s
        left = list(loaded)
        while left:
            try:
                left = [
                    each for each in left if each.listen(progress if each is loaded[0] else None)
                ]
            except KeyboardInterrupt:
                if loaded[0].interrupted:
                    raise
                for instance in loaded:
                    instance.interrupt()
                deadline_s = time.monotonic() + _MARGIN_S
            if left and time.monotonic() > deadline_s:
                raise DataplaneError(
                    f"generator: no result {_MARGIN_S:g} s after it should have ended"
                )


class _Instance:
    """One device with its wire and its generator, and what became of them."""

    def __init__(
        self,
        plan: RunPlan,
        cores: Cores,
        folder: Folder,
        seats: InstanceCpus,
        number: int | None,
        tuning: Sequence[KnobOutcome],
    ) -> None:
        self.plan, self.cores, self.seats, self.tuning = plan, cores, seats, tuning
        self.number = number
        self.folder = folder if number is None else folder.part(str(number))
        self.records = {"generator": self.folder.make("generator")}
        if plan.captures:
            self.records["captures"] = self.folder.make("captures")
        self.interrupted = False
        self.niced = True
        self.partial: list[str] = []
        self.ends: WireEnds
        self._dut = plan.make_dut()
        self._side: Side
        self._home: OpenPlatform | None = None
        self._running: Running | None = None
        self._generator: Dataplane | None = None
        self._result: Mapping[str, Any] = {}
        self._counts: Mapping[str, Any] | None = None
        self._noise: RecordedNoise | None = None
        self._power: RecordedPower | None = None
        self._dut_mark = ""

    def put_up(self, stack: ExitStack) -> None:
        """Put up the wire, and the device's home."""
        wire = self.plan.make_wire()
        if not self._dut.cpus:
            self._side = stack.enter_context(wire.open_loop(self.folder))
            return
        self.ends = stack.enter_context(wire.open(self.folder, self._dut.ports))
        self._side = self.ends.generator
        folder = self.folder.part("platform")
        self._dut_mark = folder.name
        self._home = stack.enter_context(
            self._platform().open(
                folder,
                self.ends.dut,
                self._dut,
                cpus=self.seats.dut,
                housekeeping=self.cores.housekeeping,
            )
        )

    def start_dut(self, stack: ExitStack) -> None:
        """Start the device; it is ready then."""
        if self._home is None:
            return
        if self._home.shares_clock:
            self.records["dut"] = self.folder.make("dut")
        site = DutContext(
            self._home.place,
            self._home.side,
            self._home.cpus,
            self._home.housekeeping,
            self.plan.stall_ns,
            self.records.get("dut"),
        )
        self._running = stack.enter_context(self._dut.open(site))

    def start_generator(self, stack: ExitStack) -> None:
        """Start the generator; it sends as soon as there is a link."""
        assert self.seats.generator is not None
        if self._home is not None:
            self._home.hand_over()
        options = [*self.plan.generator_options(), f"--record={self.records['generator']}"]
        if self.plan.captures:
            options.append(f"--captures={self.records['captures']}")
        self._generator = stack.enter_context(
            Dataplane(
                "generator",
                "gen",
                self._side.eal,
                options,
                place=Here(self.folder.path, self._side.command, mark=self.folder.name),
                lcores=[self.seats.generator],
                housekeeping=self.cores.housekeeping,
            )
        )

    def listen(self, progress: Progress | None) -> bool:
        """Listen to the generator for a moment; whether it goes on.

        Raises
        ------
        TestbedError
            If it or its device fails.
        """
        assert self._generator is not None
        try:
            event = self._generator.next_event(_POLL_S)
        except queue.Empty:
            gone = self._running is not None and not self._running.is_running
            if gone and not self._generator.ready:
                assert self._running is not None
                raise self._running.failure() from None
            return True
        if event is None:
            return False
        if event["event"] == "progress" and progress is not None:
            progress(event)
        return True

    def interrupt(self) -> None:
        """End the traffic before its time."""
        assert self._generator is not None
        self.interrupted = True
        self._generator.process.signal(signal.SIGINT)

    def finish(self, reason: str | None, noise: RecordedNoise, power: RecordedPower) -> None:
        """Stop the device, and collect what all say; `reason` makes it a partial result."""
        self.partial += [reason] if reason else []
        self._noise, self._power = noise, power
        generator = self._generator
        result = None if generator is None else generator.finish()
        if self._running is not None:
            died = not self._running.is_running
            self._counts = self._running.stop()
            if died or self._counts is None:
                self.partial.append(str(self._running.failure()))
            else:
                self.partial += self._counts.get("partial", [])
        if generator is None:
            return
        if result is None:
            raise generator.failure()
        self._result = result
        self.partial += result["partial"]
        self.niced = generator.process.urgent

    @property
    def sent(self) -> int:
        """How many packets its generator has sent, the warm-up left out."""
        return int(self._result["gen"]["sent"])

    def analyse(self, writer: RunWriter | None, packets: int) -> Measured:
        """Analyse what was recorded, and write it down; `packets` were sent on all wires."""
        from tailscope.experiment.energy import RunEnergy

        if self.interrupted and not self.sent:
            raise KeyboardInterrupt
        self._check_recorded()
        plan = self.plan
        clock = Clock(**self._result["clock"])
        recording = Recording.load(self.records["generator"], clock)
        analysis = analyze_recording(
            recording,
            trim=plan.trim_ns,
            window=plan.window_ns,
            worst=plan.worst,
            series=False,
            sink=None if writer is None else writer.sink,
        )
        sides = self._sides(clock)
        assert self._power is not None
        energy = RunEnergy(self._power, recording, packets)
        info = measurement_info(plan.record(), self._info(analysis, sides, energy))
        if writer is not None:
            from tailscope.report.page import page

            self._write_noise(writer, sides)
            if (columns := energy.columns()) is not None:
                writer.add_power(columns)
            if plan.captures:
                writer.add_captures(self.records["captures"])
            writer.finish(
                analysis,
                info=info,
                bucket_ns=plan.bucket_ns,
                figures=own_figures(info),
                report=lambda run: page([run]),
            )
        out = None if writer is None else writer.path
        return Measured(analysis, info, recording, self.records.get("dut"), self.interrupted, out)

    def _write_noise(self, writer: RunWriter, sides: Sequence[SideNoise]) -> None:
        """Write down what kept both sides from their work, and have packets explained by it."""
        from tailscope.noise.attribution import blocked_by
        from tailscope.noise.counters import columns as counter_columns
        from tailscope.noise.explanation import Packets, explain_tail, explain_worst
        from tailscope.noise.table import columns
        from tailscope.store.latency import read_latencies

        assert self._noise is not None
        instrument, dut = sides
        writer.add_noise(columns(sides))
        writer.add_interrupts(counter_columns(self._noise.samples))
        blocked = blocked_by(dut.timelines, instrument.timelines, own_work=self._own_work())

        def explain(latency: Path, worst: Worst) -> tuple[dict[str, Any], dict[str, Any]]:
            packets = Packets(*read_latencies(latency))
            tail = explain_tail(packets, blocked)
            return tail.record(), explain_worst(packets, blocked, worst).columns()

        writer.explain_by(explain)

    def _own_work(self) -> dict[str, list[str]]:
        """How causes begin that are a side's work: with links, softirqs that packets travel in."""
        links = {"instrument": self._side.links}
        links["dut"] = () if self._home is None else self._home.side.links
        own = {side: ["softirq NET_"] if names else [] for side, names in links.items()}
        own["dut"] += ["task "] if self._dut.in_softirqs else []
        return own

    def _sides(self, clock: Clock) -> list[SideNoise]:
        from tailscope.noise.events import read_events
        from tailscope.noise.table import side_noise

        assert self._noise is not None and self.seats.generator is not None
        recorded = self._noise.events
        sending = [lcore["tid"] for lcore in self._result["lcores"]]
        # The loops by the numbers that they know, where those are of this machine's kernel.
        loops = [lcore["tid"] for lcore in self._lcores] if "dut" in self.records else []
        working = self._noise.threads_of(self._dut_mark, loops)
        sides = []
        for source, role, cpus, threads in (
            ("instrument", "generator", (self.seats.generator,), sending),
            ("dut", "dut", tuple(dict.fromkeys(self.seats.dut)), working),
        ):
            events = None if recorded is None else read_events(recorded, clock, cpus, threads)
            sides.append(side_noise(source, cpus, clock, self.records.get(role), events))
        return sides

    def _check_recorded(self) -> None:
        """See that the generator could write everything down."""
        written = set(self._result["record"])
        missing = [name for name in Recording._fields[1:] if f"{name}.npy" not in written]
        if missing:
            raise DataplaneError(
                f"generator: could not write its recording: {'; '.join(self.partial)}",
                hint="make room there, or set XDG_RUNTIME_DIR or TMPDIR to a folder that has some",
            )

    def _info(
        self, analysis: Analysis, sides: Sequence[SideNoise], energy: RunEnergy
    ) -> dict[str, Any]:
        """What ``run.json`` keeps of all sides."""
        result, plan = self._result, self.plan
        generator, lost = result["gen"], int(analysis.summary["lost"] or 0)
        in_instrument = min(lost, self._instrument_drops())
        home_warnings = () if self._home is None else self._home.warnings
        assert self._noise is not None
        warnings = [*self.cores.warnings, *home_warnings, *self._noise.warnings()]
        warnings += energy.warnings()
        if generator["unsent"]:
            warnings.append(
                f"{generator['unsent']:,} packets could not be sent within 10 ms of their time:"
                " the wire, or the device behind it, does not carry this rate"
            )
        if in_instrument:
            warnings.append(
                f"{in_instrument:,} packets were lost in the instrument, not in the DuT"
            )
        stalls = {"generator": stalls_of(result["lcores"])}
        if self._lcores:
            stalls["dut"] = stalls_of(self._lcores)
        return {
            "clock": {"source": "tsc", **result["clock"]},
            "floor": floor.load(plan.instrument),
            "partial": self.partial,
            "warnings": warnings,
            "instrument": {
                "unsent": generator["unsent"],
                "lost_in_dut": lost - in_instrument,
                "lost_in_instrument": in_instrument,
                "dropped_by_dut": self._dropped(lost - in_instrument),
                "stalls": stalls,
                "cpus": self.seats.named(),
                "raised_priority": self.niced,
                "generator": without_events(result),
            },
            "noise": {**self._noise.record(sides), "own_work": self._own_work()},
            "power": energy.record(),
            "knobs": _knobs(self.cores),
            "tuning": [asdict(outcome) for outcome in self.tuning],
            "dut": self._dut_info(),
            "platform": self._platform_info(),
        }

    @property
    def _lcores(self) -> Sequence[Mapping[str, Any]]:
        """What the device's polling loops say of themselves, where it is one of ours."""
        return () if self._counts is None else self._counts.get("lcores", ())

    def _dut_info(self) -> dict[str, Any] | None:
        if self._running is None:
            return None
        return {
            "name": self._dut.name,
            "instance": self.number,
            "version": self._running.version,
            "configuration": self._running.configuration,
            "result": None if self._counts is None else without_events(self._counts),
        }

    def _platform_info(self) -> dict[str, Any] | None:
        if self._home is None:
            return None
        return {"name": self.plan.platform, **self._home.about}

    def _dropped(self, lost_in_dut: int) -> int | None:
        """Of lost packets, those that the device dropped on purpose; None if it does not say."""
        if self._counts is None:
            return None
        dropped = self._counts.get("dropped")
        if self._lcores:
            dropped = sum(sum(lcore["dropped"].values()) for lcore in self._lcores)
        return None if dropped is None else min(lost_in_dut, self._after_warm_up(dropped))

    def _instrument_drops(self) -> int:
        """Packets that found the generator's ring full, or no room in it."""
        drops = int(self._result["gen"]["unrecorded"])
        drops += sum(int(port["rx_missed"] + port["rx_nombuf"]) for port in self._result["ports"])
        drops += sum(int(lcore["tx_dropped"]) for lcore in self._lcores)
        return self._after_warm_up(drops)

    def _after_warm_up(self, dropped: int) -> int:
        """Of packets that were dropped since the start, those that count."""
        generator = self._result["gen"]
        return max(0, dropped - int(generator["warm_up_sent"] - generator["warm_up_received"]))

    def _platform(self) -> Platform:
        """The platform; of several instances each has a name of its own."""
        options = dict(self.plan.platform_options)
        if self.number is not None and "name" in options:
            options["name"] = f"{options['name']}-{self.number}"
        return replace(self.plan, platform_options=options).make_platform()


def stalls_of(lcores: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The stalls of all loops of a process together."""
    return {
        "count": sum(lcore["stalls"] for lcore in lcores),
        "total_ns": sum(lcore["stall_total_ns"] for lcore in lcores),
        "longest_ns": max((lcore["stall_longest_ns"] for lcore in lcores), default=0),
        "unrecorded": sum(lcore["stalls_unrecorded"] for lcore in lcores),
    }


def without_events(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as ``run.json`` keeps it."""
    left_out = {"event", "record", "clock", "partial"}
    return {name: value for name, value in result.items() if name not in left_out}
