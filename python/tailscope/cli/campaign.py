"""``tailscope run FILE``: a whole experiment."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace as changed

from tailscope.cli.live import LiveLine, Pace
from tailscope.cli.options import STANDARD, write_json
from tailscope.cli.terminal import columns_of, wrapped
from tailscope.exceptions import OtherKernelError, TailscopeError, UsageError
from tailscope.experiment.campaign.campaign import Campaign
from tailscope.experiment.campaign.matrix import Cell, cells_of, only_cells
from tailscope.experiment.campaign.spec import load_experiment
from tailscope.experiment.run.execute import execute
from tailscope.experiment.run.measured import Measured
from tailscope.extra.laboratory.boot.boots import Boots, boot_lines, grouped, runs_of
from tailscope.extra.laboratory.machines import check_plan, lacking, not_known_yet
from tailscope.noise.load import load_text
from tailscope.store.info import EMULATED, unusable_text
from tailscope.testbed.clean import clean
from tailscope.units import (
    count_text,
    duration_text,
    long_text,
    percentile_name,
    positive_duration_ns,
    printable,
    value_label,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.experiment.campaign.spec import Document, Dut, Experiment, Hosts
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.instance import Progress
    from tailscope.host.boot_line import BootLine
    from tailscope.store.records.campaign import CellRecord
    from tailscope.testbed.clean import Leftover
    from tailscope.testbed.messages import GeneratorProgress

_STATES = ("done", "running", "partial", "failed", "waiting", "pending")
_SHOWN = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "p9999": 0.9999, "p99999": 0.99999}


def run_experiment(
    file: Path,
    *,
    profile: str | None,
    only: Mapping[str, str],
    resume: bool,
    cpus: str | None,
    out: Path | None,
    json_file: str | None,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Run an experiment, or say what it would be."""
    experiment, document = load_experiment(file, profile)
    cells = cells_of(experiment, document)
    if cpus is not None:
        cells = [replace(cell, plan=changed(cell.plan, cpus=cpus)) for cell in cells]
        if experiment.hosts is not None:
            check_plan(cells[0].plan)
    chosen = only_cells(cells, only) if only else cells
    lines = _boot_lines(experiment, cells, document)
    if lines is not None:
        chosen = grouped(chosen, lines)
    if resume and out is None:
        raise UsageError("--resume requires --out DIR, the campaign to continue")
    if out is None:
        out = Path("runs") / f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    campaign = Campaign(out, experiment, cells)
    if dry_run:
        campaign.check(resume=resume)
        return _describe(experiment, chosen, json_file, lines)
    with campaign.opened(resume=resume):
        if resume:
            for what, reason in _cleaned(experiment.hosts):
                said = f"cleaned {what}" if reason is None else f"not cleaned: {what}: {reason}"
                print(printable(said), file=sys.stderr)
        names = {cell.name for cell in chosen}
        left = [cell for cell in campaign.left if cell.name in names]
        if experiment.hosts is None:
            _refuse_other_kernel(left)
        if experiment.hosts is None and left:
            _say_load(left[0].plan)
        try:
            with LiveLine(quiet=quiet) as line:
                _run(campaign, experiment, left, lines, line)
        except KeyboardInterrupt:
            hint = f"--resume --out {out} continues with the other cells"
            print(f"hint: {printable(hint)}", file=sys.stderr)
            raise
    if json_file is not None:
        write_json(json_file, campaign.content())
    if json_file != STANDARD:
        _conclude(campaign, out)
    return 0 if all(campaign.records[name].state == "done" for name in names) else 1


def _say_load(plan: RunPlan) -> None:
    """Say who else uses the CPUs that will be measured, before anything is started."""
    with suppress(TailscopeError):
        if text := load_text(plan.cores().pollers):
            print(printable(text), file=sys.stderr)


def _cleaned(hosts: Hosts | None) -> Iterator[Leftover]:
    """Remove what an earlier try left behind, on this machine and others."""
    yield from clean()
    if hosts is not None:
        from tailscope.extra.laboratory.control import clean_hosts

        yield from clean_hosts(hosts)


def _boot_lines(
    experiment: Experiment, cells: Sequence[Cell], document: Document
) -> dict[str, BootLine] | None:
    """How the device's machine is to be booted; None where it must not be."""
    if experiment.hosts is None or experiment.hosts.dut.boot is None:
        return None
    return boot_lines(cells, experiment.hosts.dut, document)


def _run(
    campaign: Campaign,
    experiment: Experiment,
    left: list[Cell],
    lines: Mapping[str, BootLine] | None,
    line: LiveLine,
) -> None:
    """Run cells, a line each."""
    boots = None
    if lines is not None and experiment.hosts is not None:
        boots = Boots(experiment.hosts.dut, lines, campaign, line.say, line.show_text)
        left = boots.sorted(left)
    total, done = len(campaign.cells), len(campaign.cells) - len(campaign.left)
    width = max((len(cell.name) for cell in left), default=0)
    state = _State(campaign, left)
    warned: dict[str, None] = {}
    for cell in left:
        done += 1
        warnings: list[str] = []
        doubts: list[str] = []
        pace = Pace()

        def show(event: GeneratorProgress, cell: Cell = cell, pace: Pace = pace) -> None:
            line.show({**state.parts(cell), **pace.parts(event)})

        def measure(
            cell: Cell,
            folder: Path,
            warnings: list[str] = warnings,
            doubts: list[str] = doubts,
            show: Progress = show,
        ) -> Sequence[Measured]:
            line.show(state.parts(cell))
            if boots is not None:
                boots.boot_for(cell)
            if experiment.hosts is not None:
                from tailscope.extra.laboratory.control import execute_in_lab

                found = execute_in_lab(
                    cell.plan,
                    experiment.hosts,
                    out=folder,
                    progress=show,
                    ending=line.say_finishing,
                )
                warnings += found.info.warnings
                return [found]
            measured = execute(
                cell.plan,
                cell.plan.cores(),
                out=folder,
                progress=show,
                ending=line.say_finishing,
            )
            doubts += filter(None, (unusable_text(each.info) for each in measured))
            return measured

        try:
            campaign.run_cell(cell, measure)
        finally:
            # Also of a cell that was interrupted: what is kept of it is said.
            record = campaign.records[cell.name]
            state.finished(cell, record.lasted_s or 0.0)
            line.clear()
            head = f"[{done:>{len(str(total))}}/{total}]"
            _print("  ".join([f"{head} {cell.name:<{width}}", _outcome(record), *doubts]))
            # What machines lack, they lack in every cell: once is enough.
            for warning in warnings:
                if warning not in warned:
                    _print(f"warning   {warning}")
        warned.update(dict.fromkeys(warnings))


def _print(text: str) -> None:
    print(wrapped(printable(text), columns_of(sys.stdout)), flush=True)


class _State:
    """How far a campaign is, and how long the rest takes.

    That is the estimate, scaled by how long cells really took.
    """

    def __init__(self, campaign: Campaign, left: Sequence[Cell]) -> None:
        self._records = campaign.records
        chosen = {cell.name for cell in left}
        self._names = [
            name
            for name, record in campaign.records.items()
            if name in chosen or record.state != "pending"
        ]
        self._left_s = sum(cell.lasts_s for cell in left)
        self._all_s = self._left_s
        self._expected_s = self._took_s = 0.0
        self._began_s = time.monotonic()

    def finished(self, cell: Cell, took_s: float) -> None:
        self._left_s -= cell.lasts_s
        self._expected_s += cell.lasts_s
        self._took_s += took_s
        self._began_s = time.monotonic()

    def parts(self, cell: Cell) -> dict[str, str]:
        """What `LiveLine.show` shows of it while a cell is run."""
        states = Counter(self._records[name].state for name in self._names)
        factor = self._took_s / self._expected_s if self._expected_s else 1.0
        left_s = max(0.0, self._left_s * factor - (time.monotonic() - self._began_s))
        share = 1 - self._left_s / self._all_s if self._all_s else 1.0
        return {
            **{state: f"{states[state]} {state}" for state in _STATES if states[state]},
            "share": f"{share:.0%}",
            "left": f"{long_text(left_s)} left",
            "cell": printable(cell.name),
        }


def _outcome(record: CellRecord) -> str:
    """What the line of a cell says behind its name."""
    if record.state in ("failed", "waiting"):
        hint = f" ({record.hint})" if record.hint else ""
        return f"{record.state}: {record.reason}{hint}"
    parts = [f"{record.state:<7}"]
    for figures in record.figures:
        supported = [name for name in _SHOWN if getattr(figures, f"latency_ns_{name}_supported")]
        for name in dict.fromkeys(("p50", *supported[-1:])):
            value: int | None = getattr(figures, f"latency_ns_{name}")
            text = "-" if value is None else duration_text(value)
            parts.append(f"{percentile_name(_SHOWN[name])} {text}")
        parts.append(f"lost {count_text(figures.lost)} of {count_text(figures.sent)}")
        if not figures.representative:
            parts.append(f"{EMULATED}: times mean nothing")
    if record.reason:
        parts.append(record.reason)
    return "  ".join(parts)


def _conclude(campaign: Campaign, out: Path) -> None:
    records = [campaign.records[cell.name] for cell in campaign.cells]
    if campaign.boots:
        print(f"{len(campaign.boots)} boots of the DuT's machine, which stays in the last one")
    counts = {state: sum(record.state == state for record in records) for state in _STATES}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    print(f"{len(records)} cells: {said}")
    for record in records:
        if record.state == "waiting" and record.hint:
            print(printable(f"waiting   {record.reason}: {record.hint}; then --resume"))
            break
    print(f"{'written':<10}{printable(str(out))}")
    if campaign.left:
        print(f"{'hint':<10}--resume --out {printable(str(out))} continues with the other cells")


def _refuse_other_kernel(left: Sequence[Cell]) -> None:
    """Stop where nothing that is left can run on the kernel that runs."""
    reasons = []
    for cell in left:
        try:
            cell.plan.make_platform().check()
        except OtherKernelError as error:
            reasons.append(error)
        except TailscopeError:
            return
        else:
            return
    if reasons:
        raise reasons[0]


def _describe(
    experiment: Experiment,
    cells: Sequence[Cell],
    json_file: str | None,
    lines: Mapping[str, BootLine] | None,
) -> int:
    """Say what an experiment is, how long it takes, and what is missing here."""
    missing = _missing(cells, experiment.hosts)
    lasts_s = sum(cell.lasts_s for cell in cells)
    if json_file is not None:
        listed = [
            {
                "name": cell.name,
                "values": cell.values,
                "repeat": cell.repeat,
                "plan": cell.plan.record(),
                "lasts_s": round(cell.lasts_s, 1),
                "missing": missing.get(cell.name, []),
            }
            for cell in cells
        ]
        content = {
            "name": experiment.name,
            "service_levels": experiment.service_levels,
            "lasts_s": round(lasts_s, 1),
            "cells": listed,
        }
        if lines is not None:
            content["boots"] = [
                {
                    "kernel": line.kernel,
                    "release": line.release,
                    "parameters": " ".join(line.parameters),
                    "cells": [cell.name for cell in run],
                }
                for line, run in runs_of(cells, lines)
            ]
        write_json(json_file, content)
        return 0
    print(f"{'experiment':<16}{printable(experiment.name)}")
    for name, written in experiment.vary.items():
        used = {cell.values[name] for cell in cells}
        values = [value for value in map(value_label, written or ()) if value in used]
        print(printable(f"{name:<16}{', '.join(values)}"))
    repeats = max(cell.repeat for cell in cells)
    rounds = "1 round" if repeats == 1 else f"{repeats} rounds"
    print(f"{'cells':<16}{len(cells)}, {rounds}, {experiment.order}")
    if experiment.service_levels:
        print(printable(f"{'service level':<16}{', '.join(experiment.service_levels)}"))
    print(f"{'takes':<16}about {long_text(lasts_s)}{', and the boots' if lines else ''}")
    if lines is not None and experiment.hosts is not None:
        _describe_boots(runs_of(cells, lines), experiment.hosts.dut)
    if experiment.hosts is not None:
        for each in not_known_yet(experiment.hosts, [cell.plan for cell in cells], lines):
            print(printable(f"{'not known yet':<16}{each}"))
    print()
    width = max(len(cell.name) for cell in cells)
    for cell in cells:
        mark = "missing" if missing.get(cell.name) else ""
        print(printable(f"  {cell.name:<{width}}  {long_text(cell.lasts_s):>9}  {mark}".rstrip()))
    for reason in dict.fromkeys(reason for reasons in missing.values() for reason in reasons):
        cells_without = sum(reason in reasons for reasons in missing.values())
        print()
        print(printable(f"missing for {cells_without} of {len(cells)} cells: {reason}"))
    return 0


def _describe_boots(boots: Sequence[tuple[BootLine, Sequence[Cell]]], dut: Dut) -> None:
    """Say what the device's machine boots, in order, and how long that may take."""
    assert dut.boot is not None, "it is booted"
    most_s = positive_duration_ns(dut.boot.wait, "wait") / 1e9
    print(
        f"{'boots':<16}{len(boots)} of the DuT's machine, one less if it runs one of them;"
        f" up to {long_text(most_s)} each (boot.wait)"
    )
    for number, (line, run) in enumerate(boots, 1):
        many = "1 cell" if len(run) == 1 else f"{len(run)} cells"
        print(printable(f"{number:>14}. {line}: {many}"))


def _missing(cells: Sequence[Cell], hosts: Hosts | None) -> dict[str, list[str]]:
    """What this machine lacks for each cell; combinations are asked once, not once a round.

    Other machines are asked when they are reached, before anything is started there.
    """
    known: dict[tuple[str, ...], list[str]] = {}
    found = {}
    for cell in cells:
        key = tuple(cell.values.values())
        if key not in known:
            with suppress(OSError):
                known[key] = _lacking(cell.plan, hosts)
        if known.get(key):
            found[cell.name] = known[key]
    return found


def _lacking(plan: RunPlan, hosts: Hosts | None) -> list[str]:
    """What this machine lacks: for all of it, or for the roles of a laboratory that it plays."""
    return plan.missing() if hosts is None else lacking(hosts, plan)
