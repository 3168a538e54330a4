"""``tailscope host tune``: which knob of this host matters for the tail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from tailscope.cli.fields import option_of
from tailscope.cli.live import LiveLine
from tailscope.cli.options import (
    STANDARD,
    DryRun,
    JsonFile,
    Profile,
    Quiet,
    argument,
    named_values,
    option,
    write_json,
)
from tailscope.cli.table import print_table
from tailscope.cli.terminal import print_lines, say
from tailscope.exceptions import TailscopeError, UsageError
from tailscope.units import duration_text, long_text, percentile_name, quantile_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.experiment.plan import RunPlan
    from tailscope.extra.tune.ablation import Arm, Effect
    from tailscope.host.machine import Machine
    from tailscope.store.records.messages import GeneratorProgress
    from tailscope.testbed.cores import Cores

EXAMPLE = "tailscope host tune mine.yaml"

ExperimentFile = Annotated[Path, argument("FILE", "An experiment of one cell.")]
Only = Annotated[
    list[str] | None, option("--only", "NAME=VALUE", "The cell to measure; repeatable.")
]
Knobs = Annotated[
    list[str] | None,
    option("--knob", "NAME", "A knob; repeatable.  [default: all that apply here]"),
]
Quantile = Annotated[str, option("--quantile", "Q", "Quantile to compare.")]
Rounds = Annotated[int, option("--rounds", "N", "Number of rounds, at least 3.")]
Seed = Annotated[int, option("--seed", "N", "Seed of the order within the rounds.", min=0)]
Cpus = Annotated[str | None, option_of("cpus")]


def command(
    experiment: ExperimentFile,
    profile: Profile = None,
    only: Only = None,
    knob: Knobs = None,
    quantile: Quantile = "p99.9",
    rounds: Rounds = 6,
    seed: Seed = 1,
    cpus: Cpus = None,
    json_file: JsonFile = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> int:
    from tailscope.extra.tune.ablation import (
        FEWEST_ROUNDS,
        arms_of,
        check_rounds,
        check_support,
        effects,
        measure,
        order,
    )
    from tailscope.host.machine import Machine

    check_rounds(rounds)
    plan, lasts_s = _cell(experiment, profile, only)
    q = quantile_of(quantile, "--quantile")
    check_support(plan, q)
    if cpus is not None:
        plan = replace(plan, cpus=cpus)
    cores = plan.cores()
    machine = Machine()
    knobs = _knobs(machine, tuple(sorted(set(cores.pollers))), knob)
    arms = arms_of(knobs)
    plans = order(arms, rounds, seed)
    if dry_run:
        return _describe(plan, cores, knobs, len(arms) * rounds, lasts_s, json_file)
    replace(plan, tune=True).check()
    measured = measure(plan, cores, machine, plans, q, _Teller(rounds, LiveLine(quiet=quiet)))
    complete, stopped = _complete(measured)
    if len(complete) >= FEWEST_ROUNDS:
        values_of = {arm.name: [values[arm.name] for values in complete] for arm in arms}
        ranked = effects(values_of)
        partial = f"{len(complete)} of {rounds} rounds" if stopped else None
        if json_file is not None:
            record = {
                "quantile": q,
                "rounds": len(complete),
                "partial": partial,
                "seed": seed,
                "cpus": list(cores.pollers),
                "knobs": knobs,
                "latency_ns": values_of,
                "effects": [effect.record() for effect in ranked],
                "plan": plan.record(),
            }
            write_json(json_file, record)
        if json_file != STANDARD:
            _print(ranked, values_of, q, partial)
    elif stopped:
        reason = f"{len(complete)} rounds are complete, at least {FEWEST_ROUNDS} are needed"
        say(f"{reason}: no knob can be judged", stream=sys.stderr)
    if stopped:
        raise stopped
    return 0


def _complete(
    measured: Iterator[dict[str, int]],
) -> tuple[list[dict[str, int]], KeyboardInterrupt | TailscopeError | OSError | None]:
    """Return the completed rounds, and the error that ended them before the last, if any."""
    rounds: list[dict[str, int]] = []
    try:
        for values in measured:
            rounds.append(values)
    except (KeyboardInterrupt, TailscopeError, OSError) as error:
        return rounds, error
    return rounds, None


def _cell(experiment: Path, profile: str | None, only: list[str] | None) -> tuple[RunPlan, float]:
    from tailscope.experiment.campaign.matrix import cells_of, only_cells
    from tailscope.experiment.campaign.spec import load_experiment

    parsed, document = load_experiment(experiment, profile)
    for section in parsed.sections:
        raise UsageError(
            f"{experiment}: {section}: only this machine can be tuned", code="other-host"
        )
    cells = cells_of(replace(parsed, repeats=1), document)
    if only:
        cells = only_cells(cells, named_values(only, "--only"))
    if len(cells) > 1:
        names = ", ".join(cells[0].values)
        raise UsageError(
            f"{experiment}: got {len(cells)} cells, expected one",
            code="several-cells",
            hint=f"--only NAME=VALUE chooses by {names}",
        )
    [cell] = cells
    if cell.plan.runs > 1:
        raise UsageError(
            f"{experiment}: expected one instance that gets traffic, one way", code="one-instance"
        )
    if cell.plan.tune:
        raise UsageError(
            f"{experiment}: tune: remove this field; this command tunes the host", code="tune-field"
        )
    return cell.plan, cell.lasts_s


def _knobs(machine: Machine, cpus: tuple[int, ...], named: list[str] | None) -> list[str]:
    """Choose what is compared; what is left out is said."""
    from tailscope.host.apply import applicable
    from tailscope.host.audit import remarks

    choice = applicable(machine, cpus, named)
    lagging = {} if named else {knob.name: knob.lags for knob in choice.knobs if knob.lags}
    for name, why in {**choice.left_out, **lagging}.items():
        say(f"left out: {name}: {why}", stream=sys.stderr)
    for remark in remarks(machine, cpus):
        say(remark, stream=sys.stderr)
    names = [knob.name for knob in choice.knobs if knob.name not in lagging]
    if not names:
        raise UsageError(
            "no knob that can be set would change anything here",
            code="nothing-to-tune",
            hint=f"`tailscope host audit --cpus {','.join(map(str, cpus))}` says how it is set",
        )
    return names


class _Teller:
    """Says which arm is measured: a line each."""

    def __init__(self, rounds: int, line: LiveLine) -> None:
        self._rounds, self._line = rounds, line

    def __call__(self, number: int, arm: Arm, event: GeneratorProgress | None) -> None:
        if event is None:
            names = {"all": "all knobs", "none": "no knob"}
            what = names.get(arm.name, f"all but {arm.name}")
            self._line.show_step(f"round {number} of {self._rounds}: {what}")


def _describe(
    plan: RunPlan, cores: Cores, knobs: list[str], runs: int, lasts_s: float, json_file: str | None
) -> int:
    missing = replace(plan, tune=True).missing()
    if json_file is not None:
        write_json(
            json_file, {"knobs": knobs, "runs": runs, "lasts_s": runs * lasts_s, "missing": missing}
        )
        return 0
    lines = [("knobs", ", ".join(knobs)), ("runs", f"{runs}, about {long_text(runs * lasts_s)}")]
    print_lines([*plan.describe(cores).items(), *lines, *(("missing", lack) for lack in missing)])
    return 0


def _print(
    ranked: list[Effect], values: Mapping[str, list[int]], quantile: float, partial: str | None
) -> None:
    from statistics import median

    from tailscope.extra.tune.ablation import ALL, NONE

    name = percentile_name(quantile)
    with_all, with_none = (duration_text(median(values[arm])) for arm in (ALL, NONE))
    say(f"{name}, median of all rounds: with all knobs {with_all}, with none {with_none}")
    if partial:
        say(f"partial: {partial}")
    print()
    rows = [
        (
            "all together" if effect.knob == NONE else effect.knob,
            duration_text(median(values[effect.knob])),
            f"× {effect.ratio:.3f}",
            f"{effect.ci_low:.3f} to {effect.ci_high:.3f}",
            effect.verdict,
        )
        for effect in ranked
    ]
    header = ("knob", f"{name} without", "against all", "95 % interval, joint", "")
    print_table(header, [rows])
