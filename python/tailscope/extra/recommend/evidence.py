"""The runs that recommendations rest on, and which of them may be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tailscope.exceptions import RunCorruptError, RunError, UsageError
from tailscope.extra.recommend import surroundings
from tailscope.host.cpus import cpu_list, parse_cpus
from tailscope.plan.field import fields_of
from tailscope.plan.fields import FRAMES, PlanFields
from tailscope.store.campaign import is_campaign, read_campaign
from tailscope.store.files import runs_at
from tailscope.store.info import (
    EMULATED,
    about_of,
    clock_of,
    host_of,
    is_emulated,
    kernel,
    technology,
)
from tailscope.store.layout import CAMPAIGN, RUN
from tailscope.store.reader import read_run
from tailscope.store.records.plan import MeasurementPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.store.records.run import RunInfo
    from tailscope.store.run import Run

    CoRunners: TypeAlias = tuple[()] | tuple[tuple[tuple[str, int], ...], str | None]
    """Kinds and their workers, and where they run if that was said; empty without any."""

CARDS = "cards"
"""The wire where packets travel over real network cards."""
SHARED_MEMORY = "shared memory"
"""The wire where they do not: memif, and the vhost that guests have in its place."""

UNKNOWN_WIRE = "an unknown wire"

_NO_DEVICE = "loop"
_PCI = "pci"
_IN_MEMORY = ("memif", "vhost")
_NEEDED = {"dut": "dut", "platform": "platform", "rate_pps": "rate", "cpu_model": "cpu_model"}
"""Facts that captures and imports must have before they are compared, and their labels."""
_TRAFFIC = {"pattern": "pattern", "burst": "burst", "size_bytes": "size", "flows": "flows"}
_FRAMES = (*FRAMES, "replay", "direction")


class Facts(NamedTuple):
    """Facts that must be equal in runs, apart from the one they are compared by."""

    technology: str | None
    """Technology that the device ran on: ``bare``, ``lxc``, ``vm``."""
    kernel: str | None
    """The flavour of the kernel that it ran on."""
    optimised: bool | None
    cache: str | None
    """Use of the device's last-level cache: ``separated``, ``shared``, ``unknown``."""
    co_runners: Any
    """Co-runners: (kind, workers) of each, and the CPUs that they were given, or None; empty for
    none."""
    rate_pps: Any
    cards: str | None
    """The device's network cards; empty where packets travel over none, or they are unknown."""
    device: str
    device_options: tuple[tuple[str, str], ...]
    networking: str
    """``user space`` or ``kernel space``."""
    wire: str
    """`SHARED_MEMORY`, ``veth``, `CARDS` or `UNKNOWN_WIRE`."""
    pattern: str | None
    burst: int | None
    size_bytes: int | None
    flows: int | None
    """Number of flows; None if captures or imports do not give it: they are taken to be alike."""
    frames: tuple[object, ...]
    """Other properties of the packets of measurements; for captures and imports, the usual ones."""
    instances: int
    load: str
    recorded: tuple[bool, int]
    """True if kernel events were recorded, and the interval at which counters were read."""
    clock: str
    """Source of the times."""
    machine: tuple[str, int]
    """The model of the processor, and how many CPUs there are."""


class Floor(NamedTuple):
    """The latency of the instrument alone, and the quantile up to which it is believed."""

    latency_ns_p50: int
    latency_ns_p999: int
    believed_up_to: float | None


@dataclass(frozen=True)
class Case:
    """A run, and what is known of it."""

    number: int
    """Number by which the run is cited."""
    name: str
    facts: Facts
    run: Run
    optimised_because: str
    cache_because: str
    """Reasons for `facts`."""
    lost: int | None
    """Packets that the device lost, but for those that it dropped on purpose; of captures and
    imports all that are lost; None where that was not imported."""
    unsent: int
    """Packets that could not be handed to the wire in time."""
    floor: Floor | None
    """Floor of the instrument."""
    longest_stall_ns: int
    """Longest stall of the instrument, in nanoseconds."""
    bucket_ns: int | None
    """Width of the histograms' buckets, in nanoseconds; None if widths differ."""
    cpus: frozenset[int]
    pollers: frozenset[int]
    """CPUs that work for the device, and all CPUs that poll."""
    unsaid: tuple[str, ...] = ()
    """Labels that captures or imports lack: it is taken to be as in others that lack them."""

    def record(self) -> dict[str, object]:
        """Return the run as JSON has it."""
        facts = self.facts
        return {
            "number": self.number,
            "name": self.name,
            "device": facts.device,
            "device_options": dict(facts.device_options),
            "technology": facts.technology,
            "networking": facts.networking,
            "wire": facts.wire,
            "cards": facts.cards,
            "kernel": facts.kernel,
            "optimised": facts.optimised,
            "optimised_because": self.optimised_because,
            "cache": facts.cache,
            "cache_because": self.cache_because,
            "co_runners": dict(facts.co_runners[0]) if facts.co_runners else {},
            "rate_pps": facts.rate_pps,
            "sent": self.run.summary["sent"],
            "lost": self.lost,
            "unsent": self.unsent,
            "clock": facts.clock,
            "cpu_model": facts.machine[0],
            "unsaid": list(self.unsaid),
        }


class LeftOut(NamedTuple):
    """A run that nothing rests on, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Evidence:
    """All runs."""

    cases: tuple[Case, ...]
    left_out: tuple[LeftOut, ...] = ()

    def compared_by(self, name: str) -> Iterator[tuple[Facts, dict[Any, list[Case]]]]:
        """Group runs that differ in one fact at most, by their other facts and by its value."""
        groups: dict[Facts, dict[Any, list[Case]]] = {}
        for case in self.cases:
            rest = case.facts._replace(**dict[str, Any]({name: None}))
            groups.setdefault(rest, {}).setdefault(getattr(case.facts, name), []).append(case)
        yield from groups.items()


def runs_in(path: Path) -> tuple[list[Path], list[LeftOut]]:
    """Return the runs in a campaign or in a folder, or the run that a directory is."""
    if not is_campaign(path):
        runs = runs_at(path)
        if not runs:
            raise RunError(
                f"{path}: neither a campaign, a run nor a folder of runs: no {CAMPAIGN} and no"
                f" {RUN} in it",
                code="not-a-run",
                hint="`tailscope run FILE --out DIR` makes a campaign, without FILE a run",
            )
        return runs, []
    campaign = read_campaign(path)
    runs = [run.path for run in campaign if run.path is not None and run.unfinished is None]
    left = {run.cell: LeftOut(run.cell, run.unfinished) for run in campaign if run.unfinished}
    return runs, list(left.values())


def read_evidence(runs: Mapping[str, Path], left_out: Sequence[LeftOut] = ()) -> Evidence:
    """Read runs."""
    if not runs and not left_out:
        raise UsageError("no runs: expected at least one", code="no-runs")
    return evidence_of({name: read_run(path, label=name) for name, path in runs.items()}, left_out)


def evidence_of(runs: Mapping[str, Run], left_out: Sequence[LeftOut] = ()) -> Evidence:
    """Take runs that were read for evidence."""
    cases: list[Case] = []
    others = list(left_out)
    for name, run in runs.items():
        where = name if run.path is None else str(run.path / RUN)
        reason = _useless(run.info)
        if reason is None:
            case = _case(len(cases) + 1, name, run, where)
            _check(case, where)
            cases.append(case)
        else:
            others.append(LeftOut(name, reason))
    return Evidence(tuple(cases), tuple(others))


def _useless(info: RunInfo) -> str | None:
    """Explain why nothing can rest on a run."""
    if not isinstance(info.plan, MeasurementPlan):
        return _undescribed(info)
    if info.measured.dut == _NO_DEVICE:
        return "no device: the generator was connected to itself"
    if info.partial:
        return f"a partial result: {'; '.join(info.partial)}"
    return f"{EMULATED}: its times mean nothing" if is_emulated(info) else None


def _undescribed(info: RunInfo) -> str | None:
    about = about_of(info)
    lacking = [label for name, label in _NEEDED.items() if getattr(about, name) is None]
    if not lacking:
        return None
    words = " ".join(f"-D {label}=..." for label in lacking)
    return f"nobody said its {', '.join(lacking)}: analyse or import it again with {words}"


def _case(number: int, name: str, run: Run, where: str) -> Case:
    info = run.info
    try:
        optimised, optimised_because = surroundings.optimised(info)
        cache, cache_because = surroundings.cache(info)
        cpus, pollers = surroundings.device_cpus(info), surroundings.pollers(info)
        is_measured = isinstance(info.plan, MeasurementPlan)
        facts = _measured_facts(info) if is_measured else _described_facts(info)
    except UsageError as error:
        raise RunCorruptError(f"{where}: {error}", code="run-record") from None
    instrument, about = info.instrument, about_of(info)
    counted = run.summary["lost"]
    lost = None if counted is None else int(counted)
    if instrument is not None:
        lost = instrument.lost_elsewhere
    unsaid = [label for attribute, label in _TRAFFIC.items() if getattr(about, attribute) is None]
    unsaid.append("co-runners")
    return Case(
        number,
        name,
        facts._replace(optimised=optimised, cache=cache),
        run,
        optimised_because,
        cache_because,
        lost=lost,
        unsent=0 if instrument is None else instrument.unsent,
        floor=_floor(info),
        longest_stall_ns=0 if instrument is None else instrument.stalls.generator.stall_ns_max,
        bucket_ns=info.plan.bucket_ns,
        cpus=cpus,
        pollers=pollers,
        unsaid=() if instrument is not None else tuple(unsaid),
    )


def _measured_facts(info: RunInfo) -> Facts:
    plan, host, wire = info.measured, host_of(info), _wire(info)
    return Facts(
        technology=technology(info),
        kernel=kernel(info),
        optimised=None,
        cache=None,
        co_runners=_co_runners(plan),
        rate_pps=plan.rate_pps,
        cards=plan.wire_options.get("dut", "") if wire == CARDS else "",
        device=plan.dut,
        device_options=tuple(sorted(plan.dut_options.items())),
        networking=surroundings.networking(plan),
        wire=wire,
        pattern=plan.pattern,
        burst=plan.burst,
        size_bytes=plan.size_bytes,
        flows=plan.flows,
        frames=(
            *(getattr(plan, name) for name in _FRAMES),
            None if info.instrument is None else info.instrument.direction,
        ),
        instances=plan.instances,
        load=plan.load,
        recorded=(
            info.noise is not None and info.noise.events is not None,
            plan.counter_interval_ns,
        ),
        clock=info.clock.source,
        machine=(str(host.cpu_model), host.cpu_count or 0),
    )


def _described_facts(info: RunInfo) -> Facts:
    about = about_of(info)
    assert about.dut is not None and about.cpu_model is not None, "else nothing rests on it"
    wire = about.wire or UNKNOWN_WIRE
    if about.cards or wire == _PCI:
        wire = CARDS
    elif wire in _IN_MEMORY:
        wire = SHARED_MEMORY
    return Facts(
        technology=about.platform,
        kernel=about.kernel,
        optimised=None,
        cache=None,
        co_runners=(),
        rate_pps=about.rate_pps,
        cards=about.cards or "",
        device=about.dut,
        device_options=tuple(sorted(about.dut_options.items())),
        networking=surroundings.networking(about),
        wire=wire,
        pattern=about.pattern,
        burst=about.burst,
        size_bytes=about.size_bytes,
        flows=about.flows,
        frames=(*(fields_of(PlanFields)[name].default for name in _FRAMES), None),
        instances=1,
        load="all",
        recorded=(False, 0),
        clock=clock_of(info),
        machine=(about.cpu_model, about.cpu_count or 0),
    )


def _check(case: Case, where: str) -> None:
    """See that what is looked at is within its bounds."""
    summary = case.run.summary
    for name, got, most in (
        ("lost", case.lost, summary["sent"]),
        ("tainted", summary.get("tainted"), summary["count"]),
    ):
        if got is not None and most is not None and not 0 <= int(got) <= int(most):
            raise RunCorruptError(
                f"{where}: {name}: expected 0 to {most}, got {got}", code="out-of-range"
            )
    if case.facts.rate_pps < 1:
        raise RunCorruptError(
            f"{where}: plan.rate_pps: expected at least 1, got {case.facts.rate_pps}", code="rate"
        )


def _floor(info: RunInfo) -> Floor | None:
    floor = info.floor
    if floor is None:
        return None
    return Floor(floor.latency_ns_p50, floor.latency_ns_p999, floor.believed_up_to)


def _co_runners(plan: PlanFields) -> CoRunners:
    if not plan.co_runners:
        return ()
    cpus = plan.co_runner_cpus
    given = None if cpus is None else cpu_list(parse_cpus(cpus))
    where = "" if plan.co_runner_platform == "bare" else f" in {plan.co_runner_platform}"
    return tuple(sorted((f"{kind}{where}", n) for kind, n in plan.co_runners.items())), given


def _wire(info: RunInfo) -> str:
    wire = info.measured.wire
    if wire == _PCI or info.hosts is not None:
        return CARDS
    return SHARED_MEMORY if wire in _IN_MEMORY else wire
