"""``tailscope run``: send traffic through a device, and measure it; once, or a whole experiment."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.fields import with_fields
from tailscope.cli.options import (
    STANDARD,
    DryRun,
    Exact,
    JsonFile,
    Profile,
    Quiet,
    Verbose,
    argument,
    flag,
    named_values,
    option,
    refuse_idle_options,
    write_json,
)
from tailscope.cli.panels import EXPERIMENT, MEASUREMENT, OUTPUT
from tailscope.cli.status import INTERRUPTED, UNDECIDED
from tailscope.cli.terminal import print_plan, say, tell
from tailscope.exceptions import UsageError
from tailscope.paths import refuse_absent
from tailscope.units import bit_rate_text, is_bit_rate, share_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailscope.cli.live import LiveLine
    from tailscope.cli.view import View
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.measured import Measured
    from tailscope.store.run import Run
    from tailscope.testbed.cores import Cores

EXAMPLE = "tailscope run --dut l2fwd --rate 100k --duration 10s --out runs/first"

_FAR_LESS = 0.5
"""Share of the packets that may be left unsent before a run says little of the rate asked for."""


@with_fields("run")
def command(
    experiment: Annotated[
        Path | None,
        argument("[FILE]", "An experiment. Without one, options describe a single run."),
    ] = None,
    *,
    fields: dict[str, object],
    repeat: Annotated[
        int | None, option("--repeat", "N", "Number of repetitions.", MEASUREMENT, min=1)
    ] = None,
    profile: Profile = None,
    only: Annotated[
        list[str] | None,
        option(
            "--only",
            "NAME=VALUE,...",
            "Only cells with these values of a variable; repeatable.",
            EXPERIMENT,
        ),
    ] = None,
    resume: Annotated[
        bool, flag("--resume", "Continue the experiment in --out.", EXPERIMENT)
    ] = False,
    out: Annotated[
        Path | None,
        option("--out -o", "DIR", "Run directory; for several runs, their folder.", OUTPUT),
    ] = None,
    json_file: JsonFile = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    """Exit status 3: over half of the packets could not be sent (without FILE)."""
    from tailscope.cli.view import View

    if experiment is None:
        _require_file({"--profile": profile, "--only": only, "--resume": resume})
        return _run_single(
            fields,
            repeat or 1,
            out,
            json_file,
            dry_run=dry_run,
            quiet=quiet,
            view=View(exact, verbose),
        )
    _refuse_beside(experiment, fields, repeat)
    cpus = fields["cpus"]
    assert cpus is None or isinstance(cpus, str)
    from tailscope.cli.campaign import run_experiment

    return run_experiment(
        experiment,
        profile=profile,
        only=named_values(only, "--only"),
        resume=resume,
        cpus=cpus,
        out=out,
        json_file=json_file,
        dry_run=dry_run,
        quiet=quiet,
        view=View(exact, verbose),
    )


def _require_file(options: Mapping[str, object]) -> None:
    """Refuse options that are for an experiment."""
    for name, value in options.items():
        if value:
            raise UsageError(f"{name} requires an experiment FILE", code="requires-file")


def _refuse_beside(experiment: Path, fields: Mapping[str, object], repeat: int | None) -> None:
    """Refuse options that an experiment sets in its file."""
    given = [name for name, value in fields.items() if value not in (None, {}) and name != "cpus"]
    if given or repeat is not None:
        quotes = "a value with a blank needs quotes, such as --rate '10 k'"
        refuse_absent(experiment, UsageError, "no-such-file", quotes)
        option = f"--{given[0].replace('_', '-')}" if given else "--repeat"
        raise UsageError(
            f"{option}: set it in {experiment}, not on the command line", code="option-beside-file"
        )


def _run_single(
    fields: Mapping[str, object],
    repeat: int,
    out: Path | None,
    json_file: str | None,
    *,
    dry_run: bool,
    quiet: bool,
    view: View,
) -> int:
    from tailscope.cli.live import LiveLine
    from tailscope.experiment.fields import no_device, plan_of
    from tailscope.testbed.clean import clean_if_dead

    if fields.get("dut") is None:
        raise no_device(hint="or give an experiment FILE")
    refuse_idle_options(fields)
    plan = plan_of(fields)
    cores = plan.cores()
    folders = _folders(plan, out, repeat)
    if out is not None:
        _check_out(plan, folders)
    for text in _about_rate(fields, plan):
        say(text, stream=sys.stderr)
    if dry_run:
        return _describe(plan, cores, folders, json_file)
    for warning in cores.warnings if fields.get("cpus") else ():
        tell("warning", warning)
    for left in clean_if_dead():
        say(left.sentence, stream=sys.stderr)
    measurements: list[Measured] = []
    for folder in folders:
        line = LiveLine(quiet=quiet)
        look = None if measurements else partial(_say_load, plan, line)
        measurements += _measure(plan, cores, folder, json_file, line, view, look)
        if measurements[-1].interrupted:
            break
    if json_file is not None:
        figures = [_figures(measured) for measured in measurements]
        write_json(json_file, figures[0] if repeat * plan.runs == 1 else figures)
    if measurements[-1].interrupted:
        return INTERRUPTED
    if any(measured.info.partial or measured.lacks for measured in measurements):
        return 1
    return UNDECIDED if any(map(_offered_far_less, measurements)) else 0


def _offered_far_less(measured: Measured) -> bool:
    """Return True, and say so, if a device was offered far less than was asked for."""
    figures = measured.figures
    sent, unsent = (int(figures[name] or 0) for name in ("sent", "unsent"))
    if unsent <= _FAR_LESS * (sent + unsent):
        return False
    offered = share_text(sent / (sent + unsent))
    says = "the run says little of the rate that was asked for"
    tell("warning", f"only {offered} of the packets could be sent: {says}")
    return True


def _about_rate(fields: Mapping[str, object], plan: RunPlan) -> list[str]:
    """Say which packet rate was asked for in bits, and whether the wire carries it."""
    from tailscope.experiment.notice import rate_notice
    from tailscope.experiment.packets import mean_size_bytes

    rate, too_high = str(fields.get("rate")), rate_notice(plan)
    said = [] if too_high is None else [too_high]
    if is_bit_rate(rate):
        in_packets = bit_rate_text(rate, plan.rate_pps, mean_size_bytes(plan.traffic))
        said.insert(0, f"--rate: {in_packets}")
    return said


def _check_out(plan: RunPlan, folders: list[Path]) -> None:
    """See that no run is overwritten, by the last of several neither."""
    from tailscope.store.directory import refuse_foreign

    for folder in folders:
        for path in plan.folders(folder):
            refuse_foreign(path)


def _figures(measured: Measured) -> dict[str, object]:
    info = measured.info
    return {
        **measured.figures,
        "partial": info.partial,
        "warnings": [*info.warnings, *measured.analysis.warnings],
    }


def _say_load(plan: RunPlan, line: LiveLine) -> None:
    """Say who uses the CPUs that will be measured."""
    from tailscope.experiment.notice import load_notice

    if (text := load_notice(plan)) is not None:
        line.say(text)


def _measure(
    plan: RunPlan,
    cores: Cores,
    folder: Path,
    json_file: str | None,
    line: LiveLine,
    view: View,
    checked: Callable[[], None] | None,
) -> list[Measured]:
    from tailscope.cli.figures import print_table
    from tailscope.cli.live import Pace
    from tailscope.experiment.run.execute import execute
    from tailscope.report.of_run import page_of

    def draw(run: Run) -> str:
        line.show_work("drawing the report")
        return page_of(run)

    pace = Pace(plan.warm_up_ns / 1e9, plan.duration_ns / 1e9)
    with line:
        result = execute(
            plan,
            cores,
            out=folder,
            draw=draw,
            progress=lambda event: line.show(pace.parts(event)),
            ending=line.say_finishing,
            checked=checked,
            analysing=lambda: line.show_work("analysing the packets"),
        )
    if json_file != STANDARD:
        for measured in result:
            print_table(measured.analysis, measured.info, [measured.out], view)
    for measured in result:
        for lack in measured.lacks:
            tell("lacking", lack.what)
        if measured.lacks:
            hint = f"`tailscope runs finish {measured.out}` completes it"
            tell("hint", hint)
    if result[-1].interrupted:
        say("interrupted: everything measured until then was kept", stream=sys.stderr)
    return result


def _folders(plan: RunPlan, out: Path | None, repeat: int) -> list[Path]:
    if out is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        out = Path("runs") / f"{plan.dut}-{plan.wire}-{plan.rate_pps}pps-{stamp}"
    return [out] if repeat == 1 else [out / f"run-{number + 1}" for number in range(repeat)]


def _describe(plan: RunPlan, cores: Cores, folders: list[Path], json_file: str | None) -> int:
    from tailscope.doctor.measurable import lacks_of
    from tailscope.store.records.base import as_content

    if json_file is not None:
        record = {
            **as_content(plan.record()),
            "cpus": list(cores.pollers),
            "out": [str(f) for f in folders],
        }
        write_json(json_file, {**record, "missing": lacks_of(plan, cores)})
        return 0
    print_plan(plan, cores, [("out", str(folder)) for folder in folders])
    return 0
