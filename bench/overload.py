"""The rate at which devices overload: predicted at low load, beside the one that is searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench.clock import say
from bench.table import Row
from tailscope.exceptions import ModelError, TestbedError
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.search.overload import measured_forecast
from tailscope.extra.standards.rates import (
    BACK_PRESSURE,
    LOSS,
    Search,
    SearchPlan,
    in_place_of_device,
    loss_goals,
    loss_ratio,
    trials_of,
    without_device,
)
from tailscope.testbed.cores import pick_cores, read_topology

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.extra.standards.rates import RateFound, Trial
    from tailscope.testbed.cores import Cores

PDR = 0.005
TRIAL_NS = 1_000_000_000
WHERE = SearchPlan(min_rate_pps=10_000, max_rate_pps=8_000_000, trial_s=TRIAL_NS / 1e9, width=0.05)


class Case(NamedTuple):
    """A function, and the simplest forwarder to compare it with; of that one, no device."""

    name: str
    dut: str
    options: dict[str, str]
    forwarder: str


CASES = (
    Case("l2fwd", "l2fwd", {}, "loop"),
    Case("l3fwd", "l3fwd", {}, "l2fwd"),
    Case("Suricata, fwd", "suricata", {}, "l2fwd"),
    Case("Suricata, filter", "suricata", {"rules": "default"}, "l2fwd"),
)


def overload_rows(folder: Path) -> list[Row]:
    """R_max of each device beside its NDR: no targets, the error is the result."""
    cores = pick_cores(read_topology(), ["generator", "dut"])
    rows = []
    for case in CASES:
        plan = RunPlan(
            dut=case.dut,
            dut_options=case.options,
            duration_ns=TRIAL_NS,
            warm_up_ns=TRIAL_NS // 2,
        )
        if missing := plan.missing():
            say(f"{case.name} is left out: {missing[0]}")
            continue
        try:
            rows.append(_row(case, plan, cores, folder / case.name))
        except TestbedError as error:
            say(f"{case.name} is left out: {error}")
    return rows


def _row(case: Case, plan: RunPlan, cores: Cores, folder: Path) -> Row:
    predicted = _predicted(case, plan, cores, folder)
    say(f"{case.name}: searching")
    found = Search(
        WHERE,
        loss_goals(PDR)[:1],
        trials_of(plan, cores),
        trials_of(without, cores) if (without := without_device(plan)) is not None else None,
        _tell,
    ).run()[0]
    what, against = f"R_max of {case.name}, against {case.forwarder}", _against(found)
    measured = 0.0 if found.rate_pps is None else found.rate_pps / 1e3
    if predicted is None or not measured:
        return Row(f"NDR of {case.name}", against, "absolute", measured, None, "kpps", None)
    return Row(what, against, "error", predicted / 1e3, measured, "kpps", None)


def _predicted(case: Case, plan: RunPlan, cores: Cores, folder: Path) -> float | None:
    forwarder = in_place_of_device(plan, case.forwarder)
    try:
        found = measured_forecast(
            forwarder, plan, cores, folder, lambda each: say(f"{case.name}: {each.dut}, low load")
        )
    except ModelError as error:
        say(f"{case.name}: no prediction: {error}")
        return None
    figures = found.prediction
    rate, cpu, noise = figures.rate_max_pps, figures.cpu_ns, figures.noise_ns_per_s
    say(
        f"{case.name}: t_CPU {cpu.estimate:,.0f} ns ({cpu.ci_low:,.0f} to {cpu.ci_high:,.0f}),"
        f" interrupts {'unknown' if noise is None else f'{noise.estimate / 1e7:.2f} %'},"
        f" R_max {rate.ci_low:,.0f} to {rate.ci_high:,.0f} packets/s"
    )
    for warning in found.warnings:
        say(f"{case.name}: {warning}")
    return rate.estimate


def _against(found: RateFound) -> str:
    is_its_own = found.limited_by in (LOSS, BACK_PRESSURE)
    return f"NDR ({found.limited_by})" if is_its_own else f"NDR, at least ({found.limited_by})"


def _tell(trial: Trial, is_control: bool) -> None:
    what = trial.invalid or f"loss {loss_ratio(trial.figures):.4%}"
    say(f"  {trial.rate_pps:,} packets/s{', without the device' if is_control else ''}: {what}")
