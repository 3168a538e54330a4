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
from tailscope.cli.terminal import columns_on, cut, say, say_named, tell
from tailscope.exceptions import UsageError
from tailscope.experiment.campaign.bench import Bench, MeasuredCell, bench_of
from tailscope.experiment.campaign.campaign import Campaign
from tailscope.experiment.campaign.cell import Cell
from tailscope.experiment.campaign.matrix import cells_of, only_cells
from tailscope.experiment.campaign.spec import load_experiment
from tailscope.experiment.run.measured import Measured
from tailscope.registry import offered
from tailscope.report.of_run import page_of
from tailscope.store.info import EMULATED
from tailscope.units import (
    count_text,
    duration_text,
    long_text,
    percentile_name,
    printable,
    value_label,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.cli.view import View
    from tailscope.experiment.campaign.spec import Experiment
    from tailscope.experiment.run.instance import Progress
    from tailscope.store.records.campaign import CellRecord
    from tailscope.store.records.messages import GeneratorProgress

_BESIDE_NAMES = len("    99.9 min  missing") + 2
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
    view: View,
) -> int:
    """Run an experiment, or describe it."""
    experiment, document = load_experiment(file, profile)
    bench, cells = bench_of(experiment), cells_of(experiment, document)
    if cpus is not None:
        cells = [replace(cell, plan=changed(cell.plan, cpus=cpus)) for cell in cells]
        bench.check_plan(cells[0].plan)
    bench.prepare(cells, document)
    chosen = bench.arranged(only_cells(cells, only) if only else cells)
    if resume and out is None:
        raise UsageError(
            "--resume requires --out DIR, the campaign to continue", code="requires-out"
        )
    if out is None:
        out = Path("runs") / f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    campaign = Campaign(out, experiment, cells)
    if dry_run:
        campaign.check(resume=resume)
        return _describe(experiment, bench, chosen, json_file)
    bench.check_packages()
    with campaign.opened(resume=resume):
        if resume:
            for what, reason in bench.clean():
                cleaned = f"cleaned {what}" if reason is None else f"not cleaned: {what}: {reason}"
                say(cleaned, stream=sys.stderr)
        else:
            from tailscope.testbed.clean import clean_if_dead

            for leftover in clean_if_dead():
                say(leftover.sentence, stream=sys.stderr)
        names = {cell.name for cell in chosen}
        left = [cell for cell in campaign.left if cell.name in names]
        for text in bench.look(left):
            say(text, stream=sys.stderr)
        try:
            with LiveLine(quiet=quiet) as line:
                _run(campaign, bench, left, line, view)
        except KeyboardInterrupt:
            hint = f"--resume --out {out} continues with the other cells"
            tell("hint", hint)
            raise
    write_json(json_file, campaign.content())
    if json_file != STANDARD:
        _conclude(campaign, out)
    return 0 if all(campaign.records[name].state == "done" for name in names) else 1


def _run(campaign: Campaign, bench: Bench, left: list[Cell], line: LiveLine, view: View) -> None:
    """Run cells, and print a line for each."""
    left = bench.begin(campaign, left, line.say, line.show_text)
    total, done = len(campaign.cells), len(campaign.cells) - len(campaign.left)
    width = max((len(cell.name) for cell in left), default=0)
    state = _State(campaign, left)
    warned: dict[str, None] = {}
    refused: dict[str, str] = {}
    for cell in left:
        done += 1
        found = MeasuredCell([])
        pace = Pace()

        def show(event: GeneratorProgress, cell: Cell = cell, pace: Pace = pace) -> None:
            line.show({**state.parts(cell), **pace.parts(event)})

        def measure(cell: Cell, folder: Path, show: Progress = show) -> Sequence[Measured]:
            nonlocal found
            line.show(state.parts(cell))
            found = bench.measure(cell, folder, page_of, show, line.say_finishing)
            return found.runs

        try:
            campaign.run_cell(cell, measure)
        finally:
            # Also of a cell that was interrupted: what is kept of it is said.
            record = campaign.records[cell.name]
            state.finished(cell, record.lasted_s or 0.0)
            line.clear()
            head = f"[{done:>{len(str(total))}}/{total}]"
            outcome = _outcome(record)
            if record.state in ("failed", "waiting"):
                first = refused.setdefault(outcome, cell.name)
                outcome = outcome if first == cell.name else f"{record.state}: as {first}"
            view.say("  ".join([f"{head} {cell.name:<{width}}", outcome, *found.doubts]))
            # What machines lack, they lack in every cell: once is enough.
            for warning in found.warnings:
                if warning not in warned:
                    view.say_named("warning", warning)
            sys.stdout.flush()
        warned.update(dict.fromkeys(found.warnings))


class _State:
    """The progress of a campaign, with an estimate of the time left.

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
        """Return the parts that `LiveLine.show` shows while a cell runs."""
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
    """Return the outcome of a cell as its line shows it."""
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
        say(f"{len(campaign.boots)} boots of the DuT's machine, which stays in the last one")
    counts = {state: sum(record.state == state for record in records) for state in _STATES}
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    say(f"{len(records)} cells: {states}")
    for record in records:
        if record.state == "waiting" and record.hint:
            say_named("waiting", f"{record.reason}: {record.hint}; then --resume")
            break
    say_named("written", str(out))
    if campaign.left:
        say_named("hint", f"--resume --out {out!s} continues with the other cells")


def _describe(
    experiment: Experiment, bench: Bench, cells: Sequence[Cell], json_file: str | None
) -> int:
    """Say what an experiment is, how long it takes, and what is missing here."""
    missing = _missing(cells, bench)
    lasts_s = sum(cell.lasts_s for cell in cells)
    told = [ask(experiment.name, cells, missing) for ask in offered("told-of-cells")]
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
            **bench.content(cells),
            **{name: value for content, _ in told for name, value in content.items()},
        }
        write_json(json_file, content)
        return 0
    say_named("experiment", experiment.name, width=16)
    for name, written in experiment.vary.items():
        used = {cell.values[name] for cell in cells}
        values = [value for value in map(value_label, written or ()) if value in used]
        say_named(name, ", ".join(values), width=16)
    repeats = max(cell.repeat for cell in cells)
    rounds = "1 round" if repeats == 1 else f"{repeats} rounds"
    say_named("cells", f"{len(cells)}, {rounds}, {experiment.order}", width=16)
    if experiment.service_levels:
        say_named("service level", ", ".join(experiment.service_levels), width=16)
    boots = ", and the boots" if bench.boots else ""
    say_named("takes", f"about {long_text(lasts_s)}{boots}", width=16)
    for title, text in (*bench.described(cells), *(line for _, lines in told for line in lines)):
        say_named(title, text, width=16)
    print()
    width = min(max(len(cell.name) for cell in cells), columns_on(sys.stdout) - _BESIDE_NAMES)
    for cell in cells:
        mark = "missing" if missing.get(cell.name) else ""
        name = cut(printable(cell.name), width)
        print(f"  {name:<{width}}  {long_text(cell.lasts_s):>9}  {mark}".rstrip())
    for reason in dict.fromkeys(reason for reasons in missing.values() for reason in reasons):
        cells_without = sum(reason in reasons for reasons in missing.values())
        print()
        say(f"missing for {cells_without} of {len(cells)} cells: {reason}")
    return 0


def _missing(cells: Sequence[Cell], bench: Bench) -> dict[str, list[str]]:
    """Return what this machine lacks for each cell; a combination is checked once.

    Other machines are asked when they are reached, before anything is started there.
    """
    lacks_by_plan: dict[tuple[str, ...], list[str]] = {}
    missing = {}
    for cell in cells:
        key = tuple(cell.values.values())
        if key not in lacks_by_plan:
            with suppress(OSError):
                lacks_by_plan[key] = bench.lacking(cell.plan)
        if lacks_by_plan.get(key):
            missing[cell.name] = lacks_by_plan[key]
    return missing
