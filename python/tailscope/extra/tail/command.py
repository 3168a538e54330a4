"""``tailscope model tail``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.model.conclusion import conclude
from tailscope.cli.options import (
    JsonFile,
    Keep,
    argument,
    checked_figure,
    option,
    without_format,
)
from tailscope.cli.view import View
from tailscope.exceptions import UsageError
from tailscope.extra.tail import TAIL
from tailscope.extra.tail.recorded import lowered_from, record_of
from tailscope.extra.tail.source import LatencySource, excesses_of, tails_like
from tailscope.models.estimate import LEVEL
from tailscope.units import (
    count_text,
    counted,
    duration_text,
    percentile_name,
    positive_duration_ns,
    quantile_of,
    refuse_unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.extra.tail.models.causes import Rare, Schedule
    from tailscope.extra.tail.models.forecast import Forecast
    from tailscope.extra.tail.models.model import Check, Horizon, Settings, TailModel
    from tailscope.extra.tail.records import TailRecord
    from tailscope.models.estimate import Estimate

EXAMPLE = "tailscope model tail runs/first --horizon 10min"

_NS_PER_S, _NS_PER_MS = 1e9, 1e6
_SPANS_S = {"h": 3600, "min": 60}
_SEED = 1
_SPLIT = 0.2
_MORE = 1.1
"""Ratio from which on an end is another one."""
_SURE = 0.9
"""Probability from which on the contrary is not told."""
_OTHER_RATE = 1.2
"""Ratio of rates from which on runs are not of one rate."""
_LAWS = ("tailscope", "equation-1")
_FEWEST_RESAMPLES = 100
_MANY = 1000


_Runs = Annotated[
    list[Path] | None,
    argument(
        "RUN...",
        "A run directory; several of one setting or a folder of them, modelled together; or a"
        " campaign or a folder of the authors' tables, for a table of all its runs.",
        show_default=False,
    ),
]
_Worst = Annotated[
    list[Path] | None,
    option(
        "--worst",
        "FILE",
        "Instead of a run, its worst packets: CSV with latency and prets in ns. Repeat it"
        " for several runs of one setting.",
    ),
]
_Like = Annotated[
    list[Path] | None,
    option(
        "--like",
        "FOLDER|RUN",
        "Other runs of the same set-up, at any rate, whose bursts may come here, too. Repeat it"
        " for more.",
    ),
]
_Split = Annotated[
    float | None,
    option(
        "--split",
        "SHARE",
        "Share of the run to fit; the rest checks the fit. --horizon looks ahead from all of it."
        "  [default: 0.2; of several runs 1, and a further run is predicted]",
        show_default=False,
    ),
]
_RunLength = Annotated[
    str | None,
    option(
        "--run-length",
        "TIME",
        "Excesses closer than this form one burst.  [default: 1 ms, at least 10 packets]",
    ),
]


def command(
    context: typer.Context,
    runs: _Runs = None,
    worst: _Worst = None,
    count: Annotated[
        list[int] | None,
        option("--count", "N", "Total packets behind --worst, once for each of them."),
    ] = None,
    law: Annotated[
        str,
        option(
            "--law", "LAW", "tailscope, or equation-1: the method of containers2024, beside that."
        ),
    ] = "tailscope",
    threshold: Annotated[
        str | None,
        option(
            "--threshold",
            "QUANTILE",
            "Threshold of the model, such as p99.999.  [default: the lowest that a law fits]",
        ),
    ] = None,
    like: _Like = None,
    split: _Split = None,
    run_length: _RunLength = None,
    horizon: Annotated[
        str | None, option("--horizon", "TIME", "Extrapolation horizon, such as 24h.")
    ] = None,
    interval: Annotated[
        str, option("--interval", "METHOD", "Method: integrated, profile or bootstrap.")
    ] = "integrated",
    resamples: Annotated[int, option("--resamples", "N", "Resamples of the bootstrap.")] = 1000,
    seed: Annotated[int, option("--seed", "N", "Bootstrap seed.")] = _SEED,
    json_file: JsonFile = None,
    figure: Annotated[
        Path | None, option("--figure", "FILE", "Draw the diagnostics: svg, png or pdf.")
    ] = None,
    keep: Keep = False,
) -> int:
    """Exit status 3: there are too few bursts."""
    sources = _sources(runs or [], worst or [], count or [])
    is_table = _is_papers(law) or any(source.is_folder for source in sources)
    if split is None:
        split = _SPLIT if is_table or len(sources) == 1 else 1.0
    plan = TailRequest(
        sources,
        [source.path for path in like or [] for source in _found(path)],
        _settings(threshold, split, run_length, horizon, interval, resamples),
        is_table,
        seed,
        json_file,
        checked_figure(figure),
        (context.obj or ()) if keep else None,
    )
    return _tabulated(plan) if plan.is_table else _run(plan)


@dataclass(frozen=True)
class TailRequest:
    """The run to model, with method and output."""

    sources: Sequence[LatencySource]
    like: Sequence[Path]
    """Other runs of the setting, and folders of them."""
    settings: Settings
    is_table: bool
    """True if runs are modelled one by one."""
    seed: int
    json_file: str | None
    figure: Path | None
    kept_by: Sequence[str] | None
    """The command, where the figures are kept in the run."""

    def __post_init__(self) -> None:
        if self.kept_by is not None and self.sources[0].count is not None:
            raise UsageError(
                "--keep requires a run directory; --worst is only a table", code="requires-run"
            )
        if self.kept_by is not None and (len(self.sources) > 1 or self.is_table):
            raise UsageError("--keep: expected one run, got several", code="one-run")


def _is_papers(text: str) -> bool:
    """Return whether the authors' method is asked for."""
    refuse_unknown("--law", text, _LAWS, "law")
    return text == _LAWS[1]


def _sources(
    runs: Sequence[Path], worst: Sequence[Path], count: Sequence[int]
) -> list[LatencySource]:
    if bool(runs) == bool(worst):
        if count and not worst:
            raise UsageError("--worst and --count must be given together", code="count-per-worst")
        raise UsageError(
            "expected a run directory, or --worst FILE with --count N", code="tail-input"
        )
    if len(worst) != len(count):
        raise UsageError(
            "--worst and --count must be given together, as often", code="count-per-worst"
        )
    if any(packets < 1 for packets in count):
        raise UsageError(f"--count: expected at least 1, got {min(count)}", code="count")
    if runs:
        return [source for path in runs for source in _found(path)]
    return [LatencySource(path, packets) for path, packets in zip(worst, count, strict=True)]


def _found(path: Path) -> list[LatencySource]:
    """Return a run, what a table is made of, or the runs right below a folder of repeats."""
    from tailscope.store.files import runs_at

    named = LatencySource(path, None)
    if named.is_folder:
        return [named]
    return [LatencySource(run, None) for run in runs_at(path)] or [named]


def _settings(
    threshold: str | None,
    split: float,
    run_length: str | None,
    horizon: str | None,
    interval: str,
    resamples: int,
) -> Settings:
    from tailscope.extra.tail.models.fit import METHODS
    from tailscope.extra.tail.models.model import Settings

    if not 0 < split <= 1:
        raise UsageError(
            f"--split: expected more than 0 and at most 1, got {split:g}", code="split"
        )
    refuse_unknown("--interval", interval, METHODS, "interval")
    if resamples < _FEWEST_RESAMPLES:
        raise UsageError(
            f"--resamples: expected at least {_FEWEST_RESAMPLES}, got {resamples}", code="resamples"
        )
    return Settings(
        split=split,
        threshold=None if threshold is None else _quantile(threshold),
        run_length_ns=None
        if run_length is None
        else positive_duration_ns(run_length, "--run-length"),
        method=interval,
        resamples=resamples,
        horizon_ns=None if horizon is None else positive_duration_ns(horizon, "--horizon"),
    )


def _quantile(text: str) -> float:
    from tailscope.extra.tail.models.forecast import LOWEST

    quantile = quantile_of(text, "--threshold")
    if not LOWEST <= quantile < 1:
        raise UsageError(
            f"--threshold: expected a quantile from {LOWEST} to below 1, got {text!r}",
            code="threshold",
        )
    return quantile


def _run(plan: TailRequest) -> int:
    import numpy as np

    from tailscope.extra.tail.models.model import model

    read = [excesses_of(source, plan.settings.split) for source in plan.sources]
    tainted = sum(each for _, each in read)
    like = tails_like(plan.like, plan.sources)
    rng = np.random.default_rng(plan.seed)
    found = model([each for each, _ in read], plan.settings, rng, like)
    record = None
    if any(each is not None for each in (plan.json_file, plan.figure, plan.kept_by)):
        record = _written(plan, found, tainted)
    conclude(
        plan.json_file,
        {} if record is None else without_format(record),
        [source.path for source in plan.sources if source.count is None],
        partial(_print, found, tainted),
    )
    return 0


def _tabulated(plan: TailRequest) -> int:
    from tailscope.extra.tail.table import print_settings, table_of

    like = tails_like(plan.like, plan.sources)
    table = table_of(plan.sources, plan.settings, plan.seed, like)
    if plan.figure is not None:
        from tailscope.report.drawing import write_grid

        label = ", ".join(dict.fromkeys(source.path.name for source in plan.sources))
        write_grid([plan.figure], table.pictures(label), columns=2, title=label)
    conclude(plan.json_file, table.content(), table.measured, partial(print_settings, table))
    return 0


def _written(plan: TailRequest, fitted: TailModel, tainted: int) -> TailRecord:
    """Keep and draw what is asked for."""
    record = record_of(fitted, tainted)
    path = plan.sources[0].path
    if plan.kept_by is not None:
        _keep(path, record, plan.kept_by)
    if plan.figure is not None:
        from tailscope.extra.tail.figures import tail_pictures
        from tailscope.report.drawing import write_grid

        write_grid([plan.figure], tail_pictures(path.name, record), columns=2, title=path.name)
    return record


def _keep(path: Path, record: TailRecord, command: Sequence[str]) -> None:
    from tailscope.store import kept
    from tailscope.store.reader import read_info

    kept.keep(path, read_info(path), TAIL, record, command=command)


def _print(fitted: TailModel, tainted: int) -> None:
    from tailscope.words.promises import kept

    fit, ahead = fitted.fit, fitted.ahead
    estimates = fitted.estimates()
    xi, sigma = estimates["xi"], estimates["sigma_ns"]
    length = f"{fitted.run_length_ns / _NS_PER_MS:g} ms"
    rows = [
        ("threshold", duration_text(fit.threshold_ns), _percentile_text(ahead.chosen.quantile)),
        (
            "excesses",
            count_text(int(fit.bursts.packets.sum())),
            f"in {len(fit.bursts)} bursts,"
            f" {length} apart; extremal index {fit.bursts.extremal_index:.3f}",
        ),
        ("fit", f"p = {ahead.chosen.p_value:.3f}", "of samples of the law are as far from it"),
        ("shape ξ", f"{xi.estimate:.3f}", f"{xi.ci_low:.3f} to {xi.ci_high:.3f}"),
        ("scale σ", duration_text(sigma.estimate), _between(sigma)),
        ("return level", *_level_texts(fitted)),
        ("largest to come", "", _predicted(ahead)),
    ]
    if fitted.check is not None and fitted.check.max_ns is not None:
        rows.append(("it was", duration_text(fitted.check.max_ns), _exceeded(fitted.check)))
    view = View()
    view.print_table(("beyond", "", f"{fitted.settings.level:.0%} interval"), [rows])
    for line in _notes(fitted, tainted):
        view.say(line)
    view.say(kept("tail"))


def _percentile_text(quantile: float) -> str:
    """Write the quantile of a latency, with two digits of what lies beyond."""
    return percentile_name(round(quantile, 1 - floor(log10(1 - quantile))))


def _level_texts(fitted: TailModel) -> tuple[str, str]:
    """Return the level, and what it is worth; if it was refused, a note says why."""
    ahead = fitted.ahead
    if ahead.refused is not None:
        return "-", ""
    return duration_text(ahead.largest.level_ns), (
        f"the largest of {count_text(round(fitted.packets))} packets to come exceeds it with"
        f" {ahead.largest.exceeds_level:.0%}"
    )


def _exceeded(check: Check) -> str:
    """Return how much of the rest of the run was beyond the return level."""
    if not check.exceedances_packets:
        return "in the rest of the run; nothing exceeded the return level"
    packets = counted(check.exceedances_packets, "packet")
    bursts = counted(check.exceedances_bursts, "burst")
    return f"in the rest of the run; {packets} in {bursts} exceeded the return level"


def _predicted(ahead: Forecast) -> str:
    from tailscope.extra.tail.words import reach_text

    out = ahead.largest
    return reach_text(out.low_ns, out.told_ns(out.high_ns))


def _causes(ahead: Forecast) -> Iterator[str]:
    """Return what bursts of known classes give, and what an unseen one may."""
    from tailscope.extra.tail.words import reach_text

    out = ahead.largest
    low_ns, median_ns, high_ns = out.known_ns
    known, most = out.told_ns(high_ns), out.told_ns(out.high_ns)
    reach = f"bursts of the kinds that were seen give a largest of {reach_text(low_ns, known)}"
    if out.told_ns(median_ns) is None:
        yield f"{reach}; too few came to bound it, or to tell its median"
    else:
        unbounded = "; too few came to bound it" if known is None else ""
        yield f"{reach}, median {duration_text(median_ns)}{unbounded}"
    if known is None or out.high_ns <= _MORE * known:
        return
    yield (
        f"with {out.exceeds_known:.0%} it is larger than these {duration_text(known)}"
        f"{_up_to(most)}: mostly bursts of a kind that was not seen"
        f"{', whose size nothing bounds' if most is None else ''}"
    )


def _up_to(most_ns: float | None) -> str:
    return "" if most_ns is None else f", up to {duration_text(most_ns)}"


def _recurring(ahead: Forecast) -> Iterator[str]:
    """Return the statements of a largest latency that hangs on classes of bursts."""
    out = ahead.largest
    for at in range(len(out.regions) - 1, 0, -1):
        below, region = out.regions[at - 1 : at + 1]
        if out.recurs(at) >= _SURE:
            continue
        low, most = duration_text(region.low_ns), _up_to(out.told_ns(out.high_ns))
        yield (
            f"with {out.recurs(at):.0%} the largest is {low} or more{most}; otherwise it is up to"
            f" {duration_text(below.high_ns)}"
        )


def _next(fitted: TailModel) -> Iterator[str]:
    """Return the quantiles of a further run."""
    from tailscope.extra.tail.words import regions_text

    for each in fitted.next_quantiles:
        regions = [(low, each.told_ns(high), chance) for low, high, chance in each.regions]
        yield f"{percentile_name(each.quantile)} of the next run: {regions_text(regions)}"


def _notes(fitted: TailModel, tainted: int) -> Iterator[str]:
    """Return the notes below the table."""
    ahead = fitted.ahead
    lowered = lowered_from(fitted)
    if lowered is not None:
        yield (
            f"{percentile_name(lowered)} leaves too few bursts:"
            f" {_percentile_text(ahead.chosen.quantile)} was taken"
        )
    if tainted:
        yield (
            f"{count_text(tainted)} packets were under way while the instrument itself stalled:"
            " they count with the least that they can have taken"
        )
    if fitted.check is not None:
        yield (
            f"the table is of the first {fitted.settings.split:.0%} of the run, and the rest checks"
            " it; --horizon, such as 1h, looks ahead from the whole run"
        )
    if len(fitted.runs) > 1:
        yield f"{len(fitted.runs)} runs were taken together; intervals hold for a further one"
        rates_pps = sorted(_NS_PER_S / run.gap_ns for run in fitted.runs if run.duration_ns)
        if rates_pps and rates_pps[-1] > _OTHER_RATE * rates_pps[0]:
            yield (
                f"they are of {round(rates_pps[0]):,} to {round(rates_pps[-1]):,} packets/s: take"
                " runs of one rate together, and give those of others by --like"
            )
    if fitted.others:
        yield f"{counted(len(fitted.others), 'other run')} of the setting told what else may come"
    elif len(fitted.runs) == 1:
        yield (
            "one run cannot tell what has not come yet: in 12 % of published runs the rest held"
            " bursts of more than 1.5 times the largest, up to 26. Runs of the same set-up can:"
            " --like"
        )
    aside = [each.part + 1 for each in ahead.set_aside]
    if aside:
        yield (
            f"not part of the law, but of what is foretold: {counted(len(aside), 'run')}"
            f" ({', '.join(map(str, aside))}), whose slowest packets are far slower"
        )
    yield from _causes(ahead)
    yield from _recurring(ahead)
    yield from _next(fitted)
    for run, start in enumerate(ahead.starts):
        if start is not None:
            where = f" of run {run + 1}" if len(fitted.runs) > 1 else ""
            yield (
                f"start-up: {start.bursts} bursts in the first"
                f" {start.until_ns / _NS_PER_S:.3g} s{where}, up to"
                f" {duration_text(start.worst_ns)}, are not part of the law"
            )
    yield from _beside(ahead)
    if fitted.horizon is not None and fitted.horizon.forecast.promise != ahead.promise:
        yield from (f"of the whole run: {text}" for text in _beside(fitted.horizon.forecast))
    if fitted.refused is not None:
        yield f"no return level: {fitted.refused}"
    if fitted.horizon is not None:
        yield from _until(fitted.horizon, is_refused=fitted.refused is not None)


def _until(horizon: Horizon, *, is_refused: bool) -> Iterator[str]:
    """Return what to expect until a horizon."""
    span, out = _span(horizon.duration_ns), horizon.forecast.largest
    if horizon.forecast.refused is not None and horizon.forecast.denied is None:
        yield f"in {span}: no return level: {horizon.forecast.refused}"
    elif not is_refused:
        yield (
            f"in {span} at this rate, packets exceed {duration_text(out.level_ns)} with"
            f" {out.exceeds_level:.0%}, counting kinds of bursts that were not seen"
        )
    yield f"the largest in {span}: {_predicted(horizon.forecast)}"
    for text in (*_causes(horizon.forecast), *_recurring(horizon.forecast)):
        yield f"in {span}: {text}"


def _beside(ahead: Forecast) -> Iterator[str]:
    """Return the bursts that the law leaves out."""
    if ahead.rare is not None:
        yield _rare_text(ahead.rare)
    if ahead.schedule is not None:
        yield _schedule_text(ahead.schedule, ahead.next_due_ns)


def _rare_text(rare: Rare) -> str:
    rate, low, high = rare.rate_per_s(LEVEL)
    largest, smallest = duration_text(rare.sizes_ns[0]), duration_text(rare.sizes_ns[-1])
    sizes = f"of {largest}" if len(rare) == 1 else f"of {smallest} to {largest}"
    bursts = "1 burst" if len(rare) == 1 else f"{len(rare)} bursts"
    pronoun = "it" if len(rare) == 1 else "them"
    return (
        f"rare: {bursts} {sizes}, far above all others, one in"
        f" {_seconds(1 / rate)} s ({LEVEL:.0%}: {_seconds(1 / high)} to {_seconds(1 / low)} s)."
        f" The promise hangs on {pronoun}: what follows may hold {largest} again, and more"
    )


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value < _MANY else f"{value:,.0f}"


def _schedule_text(clock: Schedule, next_due_ns: float | None) -> str:
    size = duration_text(clock.size_ns)
    if clock.period_ns is not None:
        due = "" if next_due_ns is None else f", the next at {next_due_ns / _NS_PER_S:.1f} s"
        return f"scheduled: bursts of about {size} every {clock.period_ns / _NS_PER_S:.4g} s{due}"
    offsets = ", ".join(f"{each / _NS_PER_S:.1f}" for each in clock.offsets_ns)
    return f"scheduled: bursts of about {size} at {offsets} s after the first, in {clock.runs} runs"


def _span(duration_ns: int) -> str:
    """Return the horizon of the prediction in a unit that people use."""
    seconds = duration_ns / _NS_PER_S
    unit = next((unit for unit, size in _SPANS_S.items() if seconds % size == 0), "s")
    return f"{seconds / _SPANS_S.get(unit, 1):g} {unit}"


def _between(estimate: Estimate) -> str:
    return f"{duration_text(estimate.ci_low)} to {duration_text(estimate.ci_high)}"
