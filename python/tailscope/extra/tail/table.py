"""Tables 4 and 5 of containers2024, and the data of its Figures 15 to 18: many runs, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tailscope.cli.options import without_format
from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.recorded import DRAWN, record_of
from tailscope.extra.tail.source import NamedSource, excesses_of, named_sources, tail_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.extra.tail.models.equation1 import Equation1
    from tailscope.extra.tail.models.excesses import Excesses
    from tailscope.extra.tail.models.model import Settings, TailModel
    from tailscope.extra.tail.models.setting import RunTail
    from tailscope.extra.tail.source import LatencySource
    from tailscope.report.picture import Picture


class Foretold(NamedTuple):
    """The prediction for a run, and what was measured."""

    is_bounded: bool
    exceedances_bursts: int | None
    """Number of bursts above the prediction; None if no packets were left to check with."""
    is_inside: bool | None
    """True if the largest latency of the other packets lies in its interval."""
    xi: float
    adf_p_value: float
    kpss_p_value: float
    """Shape of the law, and p-values of the tests of stationarity."""
    figures: dict[str, object]
    """All figures, without those that only drawings need."""

    @classmethod
    def of(cls, fitted: TailModel, tainted: int) -> Foretold:
        """Take the prediction from a model, which is not held on to: there may be many."""
        check, ahead = fitted.check, fitted.ahead.largest
        figures = without_format(record_of(fitted, tainted, is_drawn=False))
        largest = None if check is None else check.max_ns
        is_inside = largest is not None and ahead.low_ns <= largest <= ahead.high_ns
        return cls(
            fitted.limit_ns is not None,
            None if check is None else check.exceedances_bursts,
            None if largest is None else is_inside,
            fitted.fit.best.xi,
            fitted.ahead.stationarity.adf.p_value,
            fitted.ahead.stationarity.kpss.p_value,
            {name: value for name, value in figures.items() if name not in DRAWN},
        )


class TabulatedRun(NamedTuple):
    """A run, or a table of its worst packets."""

    setting: str
    name: str
    refused: str | None
    """Reason why there is no return level."""
    foretold: Foretold | None
    """The prediction; None if no law could be fitted."""
    equation_1: Equation1 | None
    """The prediction of the authors' method."""

    def content(self) -> dict[str, object]:
        """Return the content of ``--json`` for this run."""
        return {
            "setting": self.setting,
            "name": self.name,
            "refused": self.refused,
            "tailscope": None if self.foretold is None else self.foretold.figures,
            "equation_1": None if self.equation_1 is None else _equation_1(self.equation_1),
        }


def _equation_1(equation: Equation1) -> dict[str, object]:
    return {
        **equation.chosen._asdict(),
        "bounded": equation.is_bounded,
        "return_level_ns": equation.return_level_ns,
        "exceedances_packets": equation.exceedances_packets,
        "exceedances_bursts": equation.exceedances_bursts,
        "candidates": [fit._asdict() for fit in equation.fits],
    }


@dataclass(frozen=True)
class TailTable:
    """The table of all runs."""

    runs: Sequence[TabulatedRun]
    measured: Sequence[Path]
    """Directories of those that are runs, and can be read."""

    def content(self) -> dict[str, object]:
        """Return the content of ``--json``."""
        return {
            "settings": self.settings(),
            "runs": [run.content() for run in self.runs],
        }

    def pictures(self, label: str) -> list[Picture]:
        """Return Figures 15 to 18."""
        from tailscope.extra.tail.shapes import PaperThreshold, TailShapes, shape_pictures

        own = [run.foretold for run in self.runs if run.foretold is not None]
        theirs = [run.equation_1 for run in self.runs if run.equation_1 is not None]
        thresholds = [
            PaperThreshold(fit.threshold, fit.threshold_ns, fit.js_divergence_bits)
            for each in theirs
            for fit in each.fits
        ]
        shapes = TailShapes(
            [each.adf_p_value for each in own],
            [each.kpss_p_value for each in own],
            [each.xi for each in own],
            [each.chosen.xi for each in theirs],
            thresholds,
        )
        return shape_pictures(label, shapes)

    def settings(self) -> list[dict[str, Any]]:
        """Return a line for each setting."""
        names = dict.fromkeys(run.setting for run in self.runs)
        return [_setting(name, [r for r in self.runs if r.setting == name]) for name in names]


def _setting(name: str, runs: Sequence[TabulatedRun]) -> dict[str, Any]:
    """Return a line of the table."""
    every = [run.foretold for run in runs if run.foretold is not None]
    own = [run.foretold for run in runs if run.foretold is not None and run.refused is None]
    beyond = [
        prediction.exceedances_bursts
        for prediction in own
        if prediction.exceedances_bursts is not None
    ]
    inside = [prediction.is_inside for prediction in every if prediction.is_inside is not None]
    theirs = [run.equation_1 for run in runs if run.equation_1 is not None]
    return {
        "setting": name,
        "runs": len(runs),
        "refused": sum(run.refused is not None for run in runs),
        "exceedances_bursts_mean": _mean(beyond),
        "bounded_share": _mean([prediction.is_bounded for prediction in own]),
        "inside_share": _mean(inside),
        "equation_1_runs": len(theirs),
        "equation_1_exceedances_bursts_mean": _mean(
            [prediction.exceedances_bursts for prediction in theirs]
        ),
        "equation_1_exceedances_packets_mean": _mean(
            [prediction.exceedances_packets for prediction in theirs]
        ),
        "equation_1_bounded_share": _mean([prediction.is_bounded for prediction in theirs]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def table_of(
    sources: Sequence[LatencySource], settings: Settings, seed: int, like: Sequence[RunTail] = ()
) -> TailTable:
    """Model each run by tailscope, beside the others of its setting, and as the paper does.

    The others are known as far as it is itself: by their first parts.
    """
    from tailscope.cli.progress import ProgressBar

    runs = [run for source in sources for run in named_sources(source)]
    tabulated: list[TabulatedRun] = []
    with ProgressBar("modelling", "runs") as bar:
        tails = [_tail(run.source, settings.split) for run in runs]
        for at, run in enumerate(runs):
            if bar.callback is not None:
                bar.callback(at, len(runs))
            others = [
                tail
                for other, (each, tail) in enumerate(zip(runs, tails, strict=True))
                if other != at and each.setting == run.setting and tail is not None
            ]
            tabulated.append(_modelled(run, [*others, *like], settings, seed))
    measured = [
        run.source.path
        for run, tail in zip(runs, tails, strict=True)
        if tail is not None and run.source.count is None
    ]
    return TailTable(tabulated, measured)


def _tail(source: LatencySource, split: float) -> RunTail | None:
    from tailscope.exceptions import TailscopeError

    try:
        return tail_of(source, split)
    except TailscopeError:
        return None


def _modelled(
    run: NamedSource, like: Sequence[RunTail], settings: Settings, seed: int
) -> TabulatedRun:
    import numpy as np

    from tailscope.exceptions import TailscopeError
    from tailscope.extra.tail.models.model import model

    setting, name, source = run
    try:
        excesses, tainted = excesses_of(source, settings.split)
    except TailscopeError as error:
        return TabulatedRun(setting, name, str(error), None, None)
    theirs = _by_equation_1(excesses, settings)
    try:
        fitted = model(excesses, settings, np.random.default_rng(seed), like)
    except EvidenceError as error:
        return TabulatedRun(setting, name, str(error), None, theirs)
    return TabulatedRun(setting, name, fitted.ahead.refused, Foretold.of(fitted, tainted), theirs)


def _by_equation_1(excesses: Excesses, settings: Settings) -> Equation1 | None:
    from tailscope.extra.tail.models.bursts import usual_run_length_ns
    from tailscope.extra.tail.models.equation1 import equation_1

    if settings.split >= 1:
        return None
    length_ns = settings.run_length_ns or usual_run_length_ns(excesses.gap_ns)
    try:
        return equation_1(excesses, settings.split, length_ns)
    except EvidenceError:
        return None


def print_settings(table: TailTable) -> None:
    """Print a line for each setting; one exceedance is expected."""
    from tailscope.cli.table import print_table
    from tailscope.cli.terminal import say

    header = (
        *("setting", "runs", "refused", "bursts", "bounded", "inside"),
        *("Eq. 1: runs", "packets", "bounded"),
    )
    rows = [
        (
            line["setting"],
            str(line["runs"]),
            str(line["refused"]),
            _number(line["exceedances_bursts_mean"]),
            _share(line["bounded_share"]),
            _share(line["inside_share"]),
            str(line["equation_1_runs"]),
            _number(line["equation_1_exceedances_packets_mean"]),
            _share(line["equation_1_bounded_share"]),
        )
        for line in table.settings()
    ]
    print_table(header, [rows])
    say("bursts of the rest beyond the return level (about 1 is expected); inside: the largest")
    for reason in dict.fromkeys(run.refused for run in table.runs if run.foretold is None):
        names = [f"{run.setting}/{run.name}" for run in table.runs if run.refused == reason]
        more = "" if len(names) == 1 else f" and {len(names) - 1} more"
        say(f"{names[0]}{more}: {reason}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
