"""``tailscope search``: the highest rate that a device carries, and the predicted one beside it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from tailscope.cli.fields import with_fields
from tailscope.cli.live import LiveLine
from tailscope.cli.options import (
    STANDARD,
    DryRun,
    JsonFile,
    Quiet,
    option,
    packet_rate,
    write_json,
)
from tailscope.cli.panels import MEASUREMENT
from tailscope.cli.status import UNDECIDED
from tailscope.cli.table import print_table
from tailscope.cli.terminal import print_lines, print_plan
from tailscope.exceptions import ModelError, TailscopeError
from tailscope.extra.standards import SEARCH
from tailscope.extra.standards.requests import (
    SET_UP,
    OutFolder,
    WarmUp,
    Width,
    keep,
    refuse_results,
    trial_plan,
)
from tailscope.units import printable

if TYPE_CHECKING:
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.search.overload import Forecast
    from tailscope.extra.standards.rates import RateFound, Search, SearchPlan, Trial
    from tailscope.testbed.cores import Cores

EXAMPLE = "tailscope search --dut l2fwd"

_NOTHING = "-"
_LIMITS = {
    "loss": "loss in the device",
    "level": "the service level, which is not met there",
    "back-pressure": "the device: it takes too few packets, though the wire carries this rate",
    "instrument": "the instrument: the device may carry more",
    "max-rate": "--max-rate: the device may carry more",
    None: "an unknown cause: the search ended early",
}


MinRate: TypeAlias = Annotated[
    str, option("--min-rate", "PPS", "The lowest rate to try.", MEASUREMENT)
]
MaxRate: TypeAlias = Annotated[
    str, option("--max-rate", "PPS", "The highest rate to try.", MEASUREMENT)
]
TrialDuration: TypeAlias = Annotated[
    str, option("--trial-duration", "TIME", "Duration of a trial.", MEASUREMENT)
]
PdrLoss: TypeAlias = Annotated[
    float, option("--pdr-loss", "RATIO", "The loss that PDR permits.", MEASUREMENT)
]
ServiceLevels: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--slo",
        "LEVEL",
        "Also find the rate that meets this level: urllc-itu, or 'p99.9<1ms, loss<1e-3';"
        " repeatable: all must be met.",
        MEASUREMENT,
    ),
]
Forwarder: TypeAlias = Annotated[
    str | None,
    option(
        "--forwarder",
        "NAME",
        "Also predict the rate from this simplest forwarder, such as l2fwd.",
        MEASUREMENT,
    ),
]


@with_fields("search")
def command(
    *,
    fields: dict[str, object],
    min_rate: MinRate = "1k",
    max_rate: MaxRate = "10M",
    trial_duration: TrialDuration = "1s",
    warm_up: WarmUp = "500ms",
    width: Width = 0.05,
    pdr_loss: PdrLoss = 0.005,
    slo: ServiceLevels = None,
    forwarder: Forwarder = None,
    out: OutFolder = None,
    json_file: JsonFile = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> int:
    """Exit status 3: the lowest rate does not hold, or says nothing about the device."""
    from tailscope.experiment.packets import mean_size_bytes
    from tailscope.extra.standards.rates import (
        Search,
        SearchPlan,
        loss_goals,
        service_level_goal,
        trials_of,
    )
    from tailscope.extra.standards.rates import without_device as without
    from tailscope.units import positive_duration_ns
    from tailscope.verdict.slo import parse_level

    lasts_ns = positive_duration_ns(trial_duration, "--trial-duration")
    plan = trial_plan(fields, warm_up=warm_up, duration=lasts_ns)
    frame_bytes = mean_size_bytes(plan.traffic)
    where = SearchPlan(
        packet_rate(min_rate, "--min-rate", frame_bytes),
        packet_rate(max_rate, "--max-rate", frame_bytes),
        plan.duration_ns / 1e9,
        width,
    )
    goals = loss_goals(pdr_loss)
    slo_text = ", ".join(slo) if slo else None
    level = None if slo_text is None else parse_level(slo_text)
    if level is not None:
        goals.append(service_level_goal())
    cores = plan.cores()
    line = LiveLine(quiet=quiet)
    asked = SearchRequest(plan, where, pdr_loss, slo_text, forwarder, cores, out, json_file, line)
    asked.check()
    if dry_run:
        return asked.describe()
    teller = _Teller(line)
    alone = without(plan)
    search = Search(
        where,
        goals,
        trials_of(plan, cores, level),
        None if alone is None else trials_of(alone, cores),
        teller.tell,
    )
    return asked.run(search)


@dataclass(frozen=True)
class SearchRequest:
    """All that was asked for."""

    plan: RunPlan
    where: SearchPlan
    pdr_loss: float
    slo: str | None
    forwarder: str | None
    cores: Cores
    out: Path | None
    json_file: str | None
    line: LiveLine

    def check(self) -> None:
        """See that nothing would be overwritten, and that there is such a forwarder."""
        from tailscope.extra.standards.rates import in_place_of_device

        if self.forwarder is not None:
            in_place_of_device(self.plan, self.forwarder)
        refuse_results(self.out, SEARCH)

    def describe(self) -> int:
        """Say what would be done."""
        where = self.where
        if self.json_file is not None:
            cpus, missing = list(self.cores.pollers), self.plan.missing()
            write_json(self.json_file, {**self.record(), "cpus": cpus, "missing": missing})
            return 0
        lines = [
            ("rates", f"{where.min_rate_pps:,} to {where.max_rate_pps:,} packets/s"),
            ("trials", f"{where.trial_s:g} s each, until rates are {where.width:.1%} apart"),
        ]
        if self.forwarder is not None:
            lines.append(("forwarder", self.forwarder))
        print_plan(self.plan, self.cores, lines, SET_UP)
        return 0

    def run(self, search: Search) -> int:
        """Predict where that is wanted, search, and say what was found, whatever ends it."""
        self.plan.check()
        forecast, stopped = None, None
        remarks: list[str] = list(self.cores.warnings)
        try:
            if self.forwarder is not None:
                forecast = self._forecast(self.forwarder, remarks)
            search.run()
        except (KeyboardInterrupt, TailscopeError, OSError) as error:
            stopped = error
        if search.trials:
            partial = [] if stopped is None else [str(stopped) or "interrupted"]
            self._conclude(search, forecast, remarks, partial)
        if stopped is not None:
            raise stopped
        return 0 if all(found.rate_pps is not None for found in search.found()) else UNDECIDED

    def _forecast(self, forwarder: str, remarks: list[str]) -> Forecast | None:
        """Measure both at low load, and predict; None, with a remark, if nothing follows."""
        from tailscope.experiment.search.overload import measured_forecast
        from tailscope.extra.standards.rates import in_place_of_device
        from tailscope.report.of_run import page_of
        from tailscope.testbed.folder import RunFolder

        def tell(plan: RunPlan) -> None:
            self.line.show_step(f"low load: {plan.dut} at {plan.rate_pps:,} packets/s")

        with ExitStack() as stack:
            folder = self.out or stack.enter_context(RunFolder(on_disk=True)).path
            plan = in_place_of_device(self.plan, forwarder)
            try:
                return measured_forecast(plan, self.plan, self.cores, folder, page_of, tell)
            except ModelError as error:
                remarks.append(f"no prediction: {error}")
                return None

    def record(self) -> dict[str, Any]:
        """Return the request as JSON has it."""
        return {
            "plan": self.plan.record(),
            "min_rate_pps": self.where.min_rate_pps,
            "max_rate_pps": self.where.max_rate_pps,
            "trial_s": self.where.trial_s,
            "width": self.where.width,
            "pdr_loss": self.pdr_loss,
            "slo": self.slo,
            "forwarder": self.forwarder,
        }

    def _conclude(
        self, search: Search, forecast: Forecast | None, remarks: list[str], partial: list[str]
    ) -> None:
        import tailscope
        from tailscope.extra.standards.search_records import SearchRecord
        from tailscope.store.machine import this_host
        from tailscope.store.records.base import encode

        found = search.found()
        record = SearchRecord(
            tailscope_version=str(tailscope.__version__),
            host=this_host(),
            **self.record(),
            goals=tuple(each.record() for each in found),
            instrument_limit_pps=search.instrument_limit_pps,
            prediction=None if forecast is None else forecast.figures(),
            trials=tuple(trial.record() for trial in search.trials),
            without_device=tuple(trial.record() for trial in search.controls),
            warnings=tuple(remarks),
            partial=tuple(partial),
        )
        keep(record, self.json_file, self.out, {SEARCH: encode(record)})
        if self.json_file != STANDARD:
            _print(found, self.pdr_loss, self.slo, forecast)
            print_lines(("warning", remark) for remark in remarks)
            print_lines(("partial", reason) for reason in partial)


class _Teller:
    """Says what each trial was: a line on standard error."""

    def __init__(self, line: LiveLine) -> None:
        self._line, self._number = line, 0

    def tell(self, trial: Trial, is_control: bool) -> None:
        """Say it."""
        from tailscope.extra.standards.rates import loss_ratio

        self._number += 1
        what = f"loss {loss_ratio(trial.figures):.4%}"
        if "meets_level" in trial.figures:
            met = {True: "met", False: "not met", None: "depends on the instrument's stalls"}
            what += f", level {met[trial.figures['meets_level']]}"
        if trial.invalid is not None:
            what = f"invalid: {trial.invalid}"
        elif is_control:
            what = "carried"
        where = ", without the device" if is_control else ""
        rate = f"{trial.rate_pps:>12,} packets/s"
        self._line.show_step(f"trial {self._number:>3}  {rate}{where}  {what}")


def _print(
    found: list[RateFound], pdr_loss: float, slo: str | None, forecast: Forecast | None
) -> None:
    means = {"NDR": "no loss", "PDR": f"loss up to {pdr_loss:.3%}", "level": slo}
    rows = [[printable(f"{each.goal}, {means[each.goal]}"), _rate(each.rate_pps)] for each in found]
    header = ["", "packets/s"]
    if forecast is not None:
        from tailscope.cli.model.overload import interval_text
        from tailscope.extra.standards.rates import BACK_PRESSURE, LOSS

        predicted = forecast.prediction.rate_max_pps
        header.append("prediction error")
        for each, row in zip(found, rows, strict=True):
            rate = each.rate_pps if each.limited_by in (LOSS, BACK_PRESSURE) else None
            row.append(_NOTHING if rate is None else f"{predicted.estimate / rate - 1:+.1%}")
        interval = f"(95 %: {interval_text(predicted)})"
        rows.append(["R_max, predicted", _rate(round(predicted.estimate)), interval])
    print_table(header, [rows])
    print_lines((each.goal, _reason(each)) for each in found)
    print_lines(("warning", text) for text in (() if forecast is None else forecast.warnings))


def _rate(rate_pps: int | None) -> str:
    return _NOTHING if rate_pps is None else f"{rate_pps:,}"


def _reason(found: RateFound) -> str:
    limit = _LIMITS[found.limited_by]
    if found.fails_at_pps is None:
        return f"limited by {limit}"
    return f"at {found.fails_at_pps:,} limited by {limit}"
