"""``tailscope noise``: what keeps CPUs from running, by name; no packets."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.fields import option_of
from tailscope.cli.options import (
    STANDARD,
    DryRun,
    JsonFile,
    Quiet,
    option,
    without_format,
    write_json,
)
from tailscope.cli.status import INTERRUPTED
from tailscope.cli.table import print_table
from tailscope.cli.terminal import print_lines, say, say_named
from tailscope.exceptions import UsageError
from tailscope.store.owner import is_vacant, owned
from tailscope.units import (
    count_text,
    duration_text,
    positive_duration_ns,
    printable,
    refuse_unknown,
)

if TYPE_CHECKING:
    from tailscope.noise.causes import Cause
    from tailscope.noise.watch import Watched, WatchPlan
    from tailscope.store.records.watched import WatchedRecord
    from tailscope.testbed.cores import Cores

EXAMPLE = "tailscope noise --cpus 1 --duration 60s"


def command(
    cpus: Annotated[
        str | None, option("--cpus -c", "LIST", "CPUs to watch.  [default: one]")
    ] = None,
    duration: Annotated[str, option_of("duration", own_default=True)] = "10s",
    stall_ns: Annotated[
        int, option("--stall-ns", "NS", "Shortest gap that is a stall.", min=100)
    ] = 1000,
    noise: Annotated[str | None, option_of("noise")] = None,
    counter_interval: Annotated[str | None, option_of("counter_interval")] = None,
    disturb: Annotated[
        str | None,
        option(
            "--disturb",
            "KIND,...",
            "Disturb the first CPU on purpose: tlb, call, reschedule, busy, fault.",
        ),
    ] = None,
    out: Annotated[
        Path | None, option("--out -o", "DIR", "Folder for every stall and event.")
    ] = None,
    json_file: JsonFile = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> int:
    plan = _plan(duration, stall_ns, noise or "auto", counter_interval, disturb)
    cores = _cores(cpus)
    _refuse_other(out)
    if dry_run:
        cpus_text = ", ".join(map(str, cores.pollers))
        print_lines([("CPUs", cpus_text), ("duration", duration), ("noise", plan.noise)])
        return 0
    with owned(out) if out else nullcontext():
        _refuse_other(out)
        watched = _watch(plan, cores, quiet=quiet)
        record = _record(plan, cores, watched)
        if out is not None:
            _keep(out, watched, record)
    write_json(json_file, without_format(record))
    if json_file != STANDARD:
        _print(cores, watched, record, out)
    return INTERRUPTED if watched.interrupted else 0


def _refuse_other(out: Path | None) -> None:
    if out is not None and out.exists() and not (out.is_dir() and is_vacant(out)):
        raise UsageError(
            f"--out: {out} already exists", code="out-exists", hint="choose another folder"
        )


def _plan(
    duration: str, stall_ns: int, noise: str, counter_interval: str | None, disturb: str | None
) -> WatchPlan:
    from tailscope.noise.table import DISTURBANCES
    from tailscope.noise.watch import WatchPlan
    from tailscope.plan.fields import NOISE

    refuse_unknown("--noise", noise, NOISE, "noise")
    kinds = tuple(disturb.split(",")) if disturb else ()
    for kind in kinds:
        refuse_unknown("--disturb", kind, DISTURBANCES, "disturb")
    return WatchPlan(
        duration_ns=positive_duration_ns(duration, "--duration"),
        stall_ns=stall_ns,
        noise=noise,
        counter_interval_ns=0
        if counter_interval is None
        else positive_duration_ns(counter_interval, "--counter-interval"),
        disturb=kinds,
    )


def _cores(cpus: str | None) -> Cores:
    from tailscope.host.cpus import parse_cpus
    from tailscope.testbed.cores import pick_cores, read_topology

    if cpus is None:
        return pick_cores(read_topology(), ["watch"])
    listed = list(dict.fromkeys(parse_cpus(cpus, "--cpus")))
    return pick_cores(read_topology(), ["watch"] * len(listed), ",".join(map(str, listed)))


def _watch(plan: WatchPlan, cores: Cores, *, quiet: bool) -> Watched:
    from tailscope.cli.live import LiveLine, Pace
    from tailscope.noise.watch import watch

    pace = Pace(duration_s=plan.duration_ns / 1e9)
    with LiveLine(quiet=quiet) as line:
        return watch(plan, cores, lambda event: line.show(pace.loop_parts(event)))


def _record(plan: WatchPlan, cores: Cores, watched: Watched) -> WatchedRecord:
    from msgspec.structs import asdict

    from tailscope.store.records.watched import RecordingCost, WatchedRecord

    cost = watched.cost
    return WatchedRecord(
        cpus=tuple(cores.pollers),
        duration_s=watched.duration_ns / 1e9,
        stall_ns=plan.stall_ns,
        stalls=watched.stalls,
        causes=tuple(cause.record() for cause in watched.causes),
        cpu_causes={
            str(cpu): tuple(cause.record() for cause in causes)
            for cpu, causes in watched.cpu_causes.items()
        },
        cost=None
        if cost is None
        else RecordingCost(
            share_with=cost.share_with, share_without=cost.share_without, without_s=cost.without_s
        ),
        **asdict(watched.noise.record([watched.side])),
        warnings=(*cores.warnings, *watched.noise.warnings()),
        partial=("interrupted",) if watched.interrupted else (),
    )


def _keep(out: Path, watched: Watched, record: WatchedRecord) -> None:
    from tailscope.noise.counters import columns as counter_columns
    from tailscope.noise.table import columns
    from tailscope.store.directory import write_noise

    write_noise(out, record, columns([watched.side]), counter_columns(watched.noise.samples))


_HEADER = ("cause", "count", "per s and CPU", "total", "share", "p50", "p99", "max")


def _print(cores: Cores, watched: Watched, record: WatchedRecord, out: Path | None) -> None:
    rows = [_row(cause) for cause in watched.causes]
    print_table(_HEADER, [rows])
    stalls = watched.stalls
    say(
        f"{'stalls':<10}{count_text(stalls.count)}, {stalls.share:.4%} of the time,"
        f" longest {duration_text(stalls.stall_ns_max)}"
    )
    cpus = ", ".join(map(str, cores.pollers))
    say_named("watched", f"CPU {cpus} for {duration_text(watched.duration_ns)}")
    if any(not cause.p99_supported for cause in watched.causes):
        say("* fewer than 10 events lie beyond: a bound, no estimate")
    if watched.cost is not None:
        cost = watched.cost
        say(
            f"{'cost':<10}stalls took {cost.share_with:.4%} of the time with events recorded,"
            f" without {cost.share_without:.4%}"
            f" ({cost.without_s:.1f} s right after; median tenths of a second)"
        )
    if record.events is None:
        say_named("names", f"unknown: {record.events_missing_because or ''}")
    if out is not None:
        say_named("written", str(out))
    for warning in record.warnings:
        say_named("warning", warning)
    if watched.interrupted:
        say("interrupted: everything seen until then was kept", stream=sys.stderr)


def _row(cause: Cause) -> tuple[str, ...]:
    mark = "" if cause.p99_supported else " *"
    return (
        printable(cause.cause),
        count_text(cause.count),
        f"{cause.rate_hz:,.2f}",
        duration_text(cause.total_ns),
        f"{cause.share:.4%}",
        duration_text(cause.duration_ns_p50),
        f"{duration_text(cause.duration_ns_p99)}{mark}",
        duration_text(cause.duration_ns_max),
    )
