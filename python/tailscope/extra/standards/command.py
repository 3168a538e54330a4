"""``tailscope search standard``: the tests of a standard, with a report that cites each clause."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tailscope.cli.fields import option_of, with_fields
from tailscope.cli.live import LiveLine
from tailscope.cli.options import (
    STANDARD,
    DryRun,
    JsonFile,
    Quiet,
    refuse_idle_options,
    without_format,
    write_json,
)
from tailscope.cli.panels import MEASUREMENT, OUTPUT, TRAFFIC
from tailscope.cli.status import UNDECIDED
from tailscope.cli.terminal import say_named, say_plan
from tailscope.duts.dataplane import LOOP
from tailscope.exceptions import RunExistsError, TailscopeError, UsageError
from tailscope.extra.standards import STANDARD as FILE
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.experiment.plan import RunPlan
    from tailscope.extra.standards.asked import Asked, Step
    from tailscope.extra.standards.bench import Bench, Trial
    from tailscope.extra.standards.procedures import SizeTests
    from tailscope.extra.standards.records import StandardRecord
    from tailscope.testbed.cores import Cores

EXAMPLE = "tailscope search standard 2544 --dut l2fwd"

StandardName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="STANDARD",
        help="2544, 8219, tst009 or mlrsearch.",
    ),
]
FrameSizes: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--frame-sizes",
        metavar="LIST",
        help="Sizes of frames, check sequence included, and mixes: 64,512,imix."
        "  [default: the standard's, up to 1518]",
        rich_help_panel=TRAFFIC,
    ),
]
Tests: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tests",
        metavar="LIST",
        help="Tests to make: throughput, latency, pdv, loss, back-to-back, recovery, capacity,"
        " soak.  [default: the standard's]",
        rich_help_panel=MEASUREMENT,
    ),
]
TrialDuration: TypeAlias = Annotated[
    str,
    typer.Option(
        "--trial-duration",
        metavar="TIME",
        help="Duration of a trial; streams for latency take twice as long.",
        rich_help_panel=MEASUREMENT,
    ),
]
Trials: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--trials",
        min=1,
        metavar="N",
        help="Repetitions of each test.  [default: the standard's: 20, bursts 50]",
        rich_help_panel=MEASUREMENT,
    ),
]
WarmUp: TypeAlias = Annotated[
    str,
    option_of(
        "warm_up",
        "Warm-up before each trial, at its rate.",
        own_default=True,
        panel=MEASUREMENT,
    ),
]
MaxRate: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--max-rate",
        metavar="PPS",
        help="The highest rate to offer.  [default: what the wire carries without the device]",
        rich_help_panel=MEASUREMENT,
    ),
]
Width: TypeAlias = Annotated[
    float,
    typer.Option(
        "--width",
        metavar="RATIO",
        help="Width of a search's result, relative to the rate.",
        rich_help_panel=MEASUREMENT,
    ),
]
MaxTries: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-r",
        min=1,
        metavar="N",
        help="Trials at a rate at which frames are lost: max(r) of TST 009."
        "  [default: 2 for tst009, 1 otherwise]",
        rich_help_panel=MEASUREMENT,
    ),
]
MostLost: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--z",
        min=0,
        metavar="FRAMES",
        help="With more frames lost than that, a rate is not tried again: z of TST 009."
        "  [default: infinity]",
        rich_help_panel=MEASUREMENT,
    ),
]
CapacityLoss: TypeAlias = Annotated[
    float,
    typer.Option(
        "--capacity-loss",
        metavar="RATIO",
        help="The loss that the capacity of TST 009 permits.",
        rich_help_panel=MEASUREMENT,
    ),
]
Soak: TypeAlias = Annotated[
    str,
    typer.Option(
        "--soak",
        metavar="TIME",
        help="Duration of the soak test.",
        rich_help_panel=MEASUREMENT,
    ),
]
Goals: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--goal",
        metavar="GOAL",
        help="A Search Goal of MLRsearch:"
        " loss=0.005,exceed=0.5,final=60s,sum=120s,width=0.01,initial=1s; repeatable."
        "  [default: those of RFC 9971 for RFC 2544 and TST 009]",
        rich_help_panel=MEASUREMENT,
    ),
]
OutFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Folder for the results: standard.json and report.html.",
        rich_help_panel=OUTPUT,
    ),
]


@with_fields("search standard")
def command(
    standard: StandardName,
    *,
    fields: dict[str, object],
    frame_sizes: FrameSizes = None,
    tests: Tests = None,
    trial_duration: TrialDuration = "60s",
    trials: Trials = None,
    warm_up: WarmUp = "1s",
    max_rate: MaxRate = None,
    width: Width = 0.01,
    max_r: MaxTries = None,
    z: MostLost = None,
    capacity_loss: CapacityLoss = 0.001,
    soak: Soak = "10min",
    goal: Goals = None,
    out: OutFolder = None,
    json_file: JsonFile = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> int:
    """Exit status 3: of some sizes no throughput of the device is known, only the instrument's."""
    from tailscope.experiment.fields import plan_of
    from tailscope.extra.standards.asked import Asked, goals_of, standard_named
    from tailscope.units import positive_duration_ns, rate_pps

    wanted = standard_named(standard)
    trial_s = positive_duration_ns(trial_duration, "--trial-duration") / 1e9
    refuse_idle_options(fields)
    common = {**fields, "warm_up": warm_up, "noise": "stalls", "power": "none"}
    sizes = wanted.sizes if frame_sizes is None else _listed(frame_sizes, "--frame-sizes")
    plans = {size: plan_of({**common, "size": size}) for size in sizes}
    [plan, *_] = plans.values()
    if plan.dut == LOOP:
        raise UsageError(f"--dut: got {plan.dut!r}, expected a device", code="dut-loop")
    if goal and wanted.name != "mlrsearch":
        raise UsageError(
            f"--goal: expected with mlrsearch, got it with {wanted.name}", code="goal-standard"
        )
    asked = Asked(
        standard=wanted,
        tests=wanted.usual if tests is None else _listed(tests, "--tests"),
        trial_s=trial_s,
        warm_up_s=plan.warm_up_ns / 1e9,
        soak_s=positive_duration_ns(soak, "--soak") / 1e9,
        repetitions=trials,
        width=width,
        max_rate_pps=None if max_rate is None else rate_pps(max_rate, "--max-rate"),
        tries=max_r or wanted.tries,
        most_lost=z,
        capacity_loss=capacity_loss,
        goals=goals_of(goal or (), trial_s, width) if wanted.name == "mlrsearch" else (),
    )
    request = StandardRequest(plans, asked, plan.cores(), out, json_file, LiveLine(quiet=quiet))
    request.check()
    return request.describe() if dry_run else request.run()


def _listed(text: str, option: str) -> tuple[str, ...]:
    """Read a list; a mix of sizes has commas of its own: 64:7,594:4 is one."""
    found: list[str] = []
    for part in text.split(","):
        if ":" in part and found and ":" in found[-1]:
            found[-1] += f",{part}"
        else:
            found.append(part.strip())
    if not all(found):
        raise UsageError(f"{option}: got {text!r}, expected a list such as a,b", code="option-list")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class StandardRequest:
    """All that was asked for."""

    plans: Mapping[str, RunPlan]
    asked: Asked
    cores: Cores
    out: Path | None
    json_file: str | None
    line: LiveLine

    def check(self) -> None:
        """Check that nothing would be overwritten."""
        if self.out is not None and (self.out / FILE).exists():
            raise RunExistsError(
                f"{self.out}: already contains a {FILE}", hint="choose another --out"
            )

    @property
    def plan(self) -> RunPlan:
        """The plan of a trial with frames of the first size."""
        return next(iter(self.plans.values()))

    def describe(self) -> int:
        """Say what would be done, by which clauses, and about how long it takes."""
        from tailscope.doctor.measurable import lacks_of
        from tailscope.extra.standards.conformance import stands
        from tailscope.extra.standards.words import clause_texts

        missing, steps = lacks_of(self.plan, self.cores), self.asked.steps()
        each_s = sum(step.lasts_s for step in steps)
        clauses = stands(self.asked, [*self.plans], self.plan.wire, ())
        if self.json_file is not None:
            content: dict[str, object] = {
                "standard": self.asked.standard.name,
                "plan": self.plan.record(),
                "frames": [*self.plans],
                "tests": [
                    {
                        "test": step.test,
                        "clause": step.clause.cited,
                        "trials": step.trials,
                        "lasts_s": step.lasts_s,
                    }
                    for step in steps
                ],
                "lasts_s": each_s * len(self.plans),
                "clauses": clauses,
                "cpus": list(self.cores.pollers),
                "missing": missing,
            }
            write_json(self.json_file, content)
            return 0
        said = self.plan.describe(self.cores)
        names = ("device", "platform", "wire", "cores", "tuning")
        say_plan({name: said[name] for name in names if name in said})
        self._print_plan(steps, each_s)
        for clause, text in clause_texts(each for each in clauses if not each.conforms).items():
            say_named("clause", f"{clause}: {text}")
        say_plan({}, self.cores.warnings, missing)
        return 0

    def _print_plan(self, steps: Sequence[Step], each_s: float) -> None:
        from tailscope.units import counted, long_text

        say_named("frames", ", ".join(self.plans))
        for step in steps:
            lasts = f"about {counted(step.trials, 'trial')}, {long_text(step.lasts_s)} a size"
            if not step.trials:
                lasts = "the streams of latency serve it, too"
            say_named("test", f"{step.test} ({step.clause.cited}): {lasts}")
        say_named("in all", f"about {long_text(each_s * len(self.plans))}")

    def run(self) -> int:
        """Make the tests, and say what was found, whatever ends them."""
        from tailscope.extra.standards.bench import Bench
        from tailscope.extra.standards.procedures import SizeTests
        from tailscope.testbed.cores import confined
        from tailscope.units import long_text

        self.plan.check()
        lasts_s = sum(step.lasts_s for step in self.asked.steps()) * len(self.plans)
        self.line.show_step(f"about {long_text(lasts_s)} in all; Ctrl-C keeps what is known")
        stopped: BaseException | None = None
        books = _Books(time.time_ns())
        teller = _Teller(self.line)
        with ExitStack() as stack:
            stack.enter_context(self.line)
            stack.enter_context(confined(self.cores.housekeeping))
            try:
                for plan in self.plans.values():
                    bench = Bench(plan, self.cores, teller.tell)
                    tests = SizeTests(bench, self.asked)
                    books.sizes.append((bench, tests))
                    tests.run()
            except (KeyboardInterrupt, TailscopeError, OSError) as error:
                stopped = error
        partial = [] if stopped is None else [str(stopped) or "interrupted"]
        record = self._record(books, partial)
        if record.trials:
            self._keep(record)
            if self.json_file != STANDARD:
                _print(record, self.out)
        if stopped is not None:
            raise stopped
        limits = [size.throughput for size in record.sizes if size.throughput is not None]
        goals = [goal for size in record.sizes for goal in size.goals]
        is_known = not any(each.is_lower_bound for each in limits)
        return 0 if is_known and all(each.is_regular for each in goals) else UNDECIDED

    def _record(self, books: _Books, partial: list[str]) -> StandardRecord:
        import tailscope
        from tailscope.extra.standards.bench import DRAIN_S
        from tailscope.extra.standards.conformance import cannot_claim, stands
        from tailscope.extra.standards.records import StandardRecord
        from tailscope.store.machine import this_host

        asked = self.asked
        results = [found for _, tests in books.sizes if (found := tests.result()) is not None]
        return StandardRecord(
            tailscope_version=str(tailscope.__version__),
            host=this_host(),
            standard=asked.standard.name,
            tests=asked.tests,
            plan=self.plan.record(),
            trial_s=asked.trial_s,
            warm_up_s=asked.warm_up_s,
            drain_s=DRAIN_S,
            width=asked.width,
            started_unix_ns=books.started_unix_ns,
            ended_unix_ns=time.time_ns(),
            sizes=tuple(results),
            clauses=tuple(stands(asked, [*self.plans], self.plan.wire, results)),
            cannot_claim=tuple(cannot_claim(self.plan.wire)),
            trials=tuple(trial.record for bench, _ in books.sizes for trial in bench.trials),
            warnings=tuple(self.cores.warnings),
            partial=tuple(partial),
        )

    def _keep(self, record: StandardRecord) -> None:
        from tailscope.extra.standards.page import standard_page
        from tailscope.store import layout
        from tailscope.store.atomic import write_text
        from tailscope.store.records.base import encode

        write_json(self.json_file, without_format(record))
        if self.out is not None:
            self.out.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_text(self.out / FILE, encode(record))
            write_text(self.out / layout.REPORT, standard_page(record))


@dataclass
class _Books:
    """The tests made so far, size by size."""

    started_unix_ns: int
    sizes: list[tuple[Bench, SizeTests]] = field(default_factory=list)


class _Teller:
    """Says what each trial was: a line on standard error."""

    def __init__(self, line: LiveLine) -> None:
        self._line, self._number = line, 0

    def tell(self, trial: Trial) -> None:
        """Say it."""
        from tailscope.extra.standards.bench import CEILING

        record = trial.record
        self._number += 1
        if record.test == CEILING:
            what = f"sent {record.frames_sent / record.duration_s:,.0f} frames/s"
        elif record.not_offered is not None:
            what = f"not offered: {record.not_offered}"
        else:
            what = f"lost {trial.frames_lost:,} of {record.frames_sent:,}"
        self._line.show_step(
            f"trial {self._number:>3}  {record.test}  {record.frame} bytes"
            f"  {record.rate_pps:,} frames/s for {record.duration_s:.4g} s  {what}"
        )


def _print(record: StandardRecord, out: Path | None) -> None:
    from tailscope.cli.table import print_aligned
    from tailscope.cli.terminal import say
    from tailscope.extra.standards.words import clause_texts, remarks_of, result_tables

    for table in result_tables(record):
        say(table.title)
        print_aligned(table.header, [table.rows])
    for remark in remarks_of(record):
        say(f"{'note':<10}{printable(remark)}")
    for clause, text in clause_texts(record.clauses).items():
        say(f"{'clause':<10}{clause}: {printable(text)}")
    for sentence in record.cannot_claim:
        say(f"{'no claim':<10}{sentence}")
    for warning in record.warnings:
        say(f"{'warning':<10}{printable(warning)}")
    for reason in record.partial:
        say(f"{'partial':<10}{printable(reason)}")
    if out is not None:
        say(f"{'written':<10}{printable(str(out))}")
