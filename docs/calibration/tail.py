"""How often the model of the tail keeps its word, and by how much it beats naive rules.

The constants of the model are chosen on all settings but one, or on one machine, and what is said
of the runs left out is compared with what came.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from docs.calibration import alike
from docs.calibration.section import Section, interval_score, share
from docs.reference.markdown import table

from tailscope.exceptions import CaptureError, ModelError
from tailscope.extra.tail.models.bursts import bursts, usual_run_length_ns
from tailscope.extra.tail.models.excesses import Excesses, of_worst
from tailscope.extra.tail.models.fit import FEWEST_BURSTS
from tailscope.extra.tail.models.pareto import Pareto
from tailscope.extra.tail.models.setting import (
    PRIOR,
    QUANTILES,
    Prior,
    RunTail,
    largest,
    next_quantiles,
)
from tailscope.store.authors import read_columns, read_worst

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MACHINES = {"containers2024-rates": "AMD", "containers2024-scenario2": "Intel"}
PACKETS, DURATION_NS = 10_000_000, 160_000_000_000
FLOOR_NS = 80_000
BURSTS = 900
SPLIT, LEVEL = 0.2, 0.95
LAST_REPEAT = 2
INSIDE = 0.95
NEAR, LEAST = 1.05, 1e-3
MUCH = 1.5
GRID = tuple(
    Prior(size_spread=spread, unknown_shape=unknown, drift_shape=steady)
    for spread, unknown, steady in itertools.product(
        (0.06, 0.1, 0.15), (0.5, 1.0), (1.0, 3.0, 10.0)
    )
)
EARLY = 0.05
RESAMPLES, LARGEST_SHARE, FEWEST_LARGEST = 10, 10, 30
TEXT = """\
Promised by `model tail`: the largest latency of what follows lies in its interval in 95 % of
cases, and exceeds the return level as often as not. Tried on the tables of containers2024: 14
settings of two machines, 12 rates, 3 repeats. *Rest of the run*: its first fifth, and the first
fifths of the other runs of the setting (as `--like`), foretell the other four fifths. *One run
alone*: its first fifth does. *Third repeat*: two repeats, and two of every other rate, foretell
the third. *Rest of three repeats*: their first twentieths foretell what is 19 times as long.

*Inside* counts the interval, *in a region* its parts. *Width* is high/low: median, and the
largest of the lower nine tenths. *Score* is the interval score (Gneiting and Raftery, 2007) of
log10: the width, and 40 times by how much the truth lies outside; less is better. No interval is
refused for what it would say; the command asks for {fewest} bursts, which {few} of the first
fifths do not have.

Three constants are chosen: how much sizes change from what was seen to what follows
({size_spread:g}, in logs), how sure a mean rate is of which other runs tell nothing, and how
steady rates are (shapes of gamma laws, {unknown_shape:g} and {drift_shape:g}).
**All rows of settings are of runs that had no part in that choice**: of {choices} choices, the
one with the best log score, among those with {inside:.0%} inside, on the 13 other settings, or
on the other machine. That unseen classes are up to {new_times:g} times as large as all that was
seen is no constant of that kind: it is the range of what came of single runs. How steady the mean
of many runs is at most ({long_shape:g}) was chosen with these rows in view: from 0.5 to 2, it
changes the score of the *rest of three repeats* by 0.01, and what is inside by 2 %.
In {later} of the runs the rest held more
than {much:g} times the largest of the first fifth, up to {most:.0f} times; of these {number},
{elsewhere} had been seen at that size, within that factor, in the first fifth of another run."""
SCORED = ("runs", "number", "inside", "in a region", "width", "width, p90", "score")
LEVELS = ("level", "number", "bursts beyond", "variance/mean", "score")


class Known(NamedTuple):
    """A run of the authors' tables, its first fifth, and what came then."""

    setting: str
    rate: int
    repeat: int
    first: RunTail
    whole: RunTail
    rest_ns: Floats
    """Largest latencies of the bursts of the rest."""
    ahead_ns: float
    early: RunTail
    """Its first twentieth."""
    after_early_max_ns: float
    after_early_ns: float
    """What came then, for so long."""

    @property
    def rest_max_ns(self) -> float:
        """The largest latency of the rest; the floor, if nothing is above it."""
        return float(self.rest_ns.max(initial=self.whole.floor_ns))


class Answer(NamedTuple):
    """An interval, its regions, and what came."""

    low_ns: float
    high_ns: float
    truth_ns: float
    is_in_region: bool
    surprise: float = 0.0
    """Minus the log of the probability that was given to what came, within 5 %."""

    @property
    def is_inside(self) -> bool:
        """True if the interval holds what came."""
        return self.low_ns <= self.truth_ns <= self.high_ns

    @property
    def score(self) -> float:
        """The interval score of the logs."""
        return interval_score(self.low_ns, self.high_ns, self.truth_ns)


class Published(NamedTuple):
    """A run of the authors' tables."""

    setting: str
    rate: int
    repeat: int
    excesses: Excesses


def tables(data: Path) -> Iterator[Published]:
    """The authors' tables of the worst packets."""
    for folder, machine in MACHINES.items():
        for worst in sorted((data / folder).rglob("*.worst.csv.zst")):
            stem = worst.name.split(".num_worst")[0]
            try:
                (count,) = read_columns(worst.parent / f"{stem}.stats.csv.zst", ("post_received",))
                excesses = of_worst(*read_worst(worst), int(count[0]))
            except (CaptureError, ModelError) as error:
                print(f"{worst.name}: left out: {error}", file=sys.stderr)
                continue
            rate, repeat = stem.split(".")[0].removeprefix("rate").split("-repeat")
            setting = f"{machine}: {worst.parent.relative_to(data / folder)}"
            yield Published(setting, int(rate), int(repeat), excesses)


def published(data: Path) -> Iterator[Known]:
    """These tables, reduced to bursts."""
    return (known(*run) for run in tables(data))


def known(setting: str, rate: int, repeat: int, excesses: Excesses) -> Known:
    """Cut a run in two."""
    first, rest = excesses.split(SPLIT)
    early, after = excesses.split(EARLY)
    length_ns = usual_run_length_ns(excesses.gap_ns)
    return Known(
        setting,
        rate,
        repeat,
        RunTail.of(first, length_ns),
        RunTail.of(excesses, length_ns),
        bursts(rest, rest.floor_ns, length_ns).worst_ns.astype(float),
        float(rest.duration_ns),
        RunTail.of(early, length_ns),
        float(after.latency_ns.max(initial=after.floor_ns)),
        float(after.duration_ns),
    )


def rest_of(runs: Sequence[Known], prior: Prior) -> list[Answer]:
    """The rest of each run of a setting, by the first fifths of all."""
    return [
        answer([run.first], [o.first for o in runs if o is not run], run.ahead_ns, run, prior)
        for run in runs
    ]


def alone(runs: Sequence[Known], prior: Prior) -> list[Answer]:
    """The rest of each run, by its own first fifth."""
    return [answer([run.first], [], run.ahead_ns, run, prior) for run in runs]


def third(runs: Sequence[Known], prior: Prior) -> list[Answer]:
    """The third repeat at each rate, by two of it and two of each other rate."""
    return [
        answer(two, others, run.whole.duration_ns, run, prior, run.whole.max_ns)
        for run, two, others in thirds(runs)
    ]


def long(runs: Sequence[Known], prior: Prior) -> list[Answer]:
    """The rest of all three repeats at each rate together, by their first twentieths."""
    answers = []
    for run, _, _ in thirds(runs):
        three = [each for each in runs if each.rate == run.rate]
        ahead_ns = sum(each.after_early_ns for each in three)
        most_ns = max(each.after_early_max_ns for each in three)
        answers.append(answer([each.early for each in three], [], ahead_ns, run, prior, most_ns))
    return answers


def thirds(runs: Sequence[Known]) -> Iterator[tuple[Known, list[RunTail], list[RunTail]]]:
    """The third repeats, each with those before at its rate and at the other rates."""
    before = [run for run in runs if run.repeat < LAST_REPEAT]
    for run in runs:
        two = [each.whole for each in before if each.rate == run.rate]
        if run.repeat == LAST_REPEAT and len(two) == LAST_REPEAT:
            yield run, two, [each.whole for each in before if each.rate != run.rate]


def answer(
    own: Sequence[RunTail],
    like: Sequence[RunTail],
    ahead_ns: float,
    run: Known,
    prior: Prior,
    truth_ns: float | None = None,
) -> Answer:
    """What is said of the largest latency, and what came."""
    found = largest(own, like, ahead_ns, LEVEL, prior)
    truth = run.rest_max_ns if truth_ns is None else truth_ns
    is_in_region = any(low <= truth <= high for low, high, _ in found.regions)
    near = found.law.probability(truth * NEAR) - found.law.probability(truth / NEAR)
    surprise = -np.log(max(near, LEAST))
    return Answer(found.low_ns, found.high_ns, truth, is_in_region, float(surprise))


def by_factor(own_ns: float, truth_ns: float) -> Answer:
    """Half and twice the largest that was seen."""
    return Answer(own_ns / 2, own_ns * 2, truth_ns, own_ns / 2 <= truth_ns <= own_ns * 2)


def by_one_law(own: RunTail, ahead_ns: float, truth_ns: float) -> tuple[Answer, float]:
    """One generalised Pareto law of the largest tenth of bursts, by SciPy, with a bootstrap.

    And the latency that one burst is expected to exceed by it.
    """
    from scipy.stats import genpareto

    rng = np.random.default_rng(1)
    count = min(max(FEWEST_LARGEST, len(own.worst_ns) // LARGEST_SHARE), len(own.worst_ns) - 1)
    base_ns, excess = own.worst_ns[-count - 1], own.worst_ns[-count:] - own.worst_ns[-count - 1]
    expected = max(1.0, count * ahead_ns / own.duration_ns)
    largest_ns, levels_ns = [], []
    for at in range(RESAMPLES + 1):
        sample = rng.choice(excess, count) if at else excess
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            xi, _, sigma = genpareto.fit(sample, floc=0, scale=float(sample.mean()) + 1)
        drawn = genpareto.isf(-np.expm1(np.log(rng.random(20)) / expected), xi, scale=sigma)
        largest_ns += (base_ns + drawn).tolist()
        levels_ns.append(base_ns + float(genpareto.isf(1 / expected, xi, scale=sigma)))
    low, high = np.quantile(largest_ns, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Answer(low, high, truth_ns, bool(low <= truth_ns <= high)), levels_ns[0]


def row(name: str, answers: Sequence[Answer]) -> list[str]:
    """A row of the table of scores."""
    widths = [each.high_ns / each.low_ns for each in answers]
    return [
        name,
        str(len(answers)),
        share(sum(each.is_inside for each in answers), len(answers)),
        share(sum(each.is_in_region for each in answers), len(answers)),
        f"{np.median(widths):.1f}",
        f"{np.quantile(widths, 0.9):.1f}",
        f"{np.mean([each.score for each in answers]):.2f}",
    ]


Table = dict[str, dict[Prior, dict[str, list[Answer]]]]


def answers_of(settings: dict[str, list[Known]]) -> Table:
    """What each pair of constants says of each setting."""
    tasks: dict[str, Callable[[Sequence[Known], Prior], list[Answer]]] = {
        "rest": rest_of,
        "third": third,
    }
    return {
        name: {prior: {task: of(runs, prior) for task, of in tasks.items()} for prior in GRID}
        for name, runs in settings.items()
    }


def chosen(found: Table, settings: Iterable[str]) -> Prior:
    """The constants of the best log score with enough inside, on some settings.

    The log score takes all of a law into account; the interval score hangs on a few misses.
    """
    own = list(settings)

    def cost(prior: Prior) -> tuple[bool, float]:
        tasks = [
            [each for setting in own for each in found[setting][prior][task]]
            for task in ("rest", "third")
        ]
        inside = min(np.mean([each.is_inside for each in task]) for task in tasks)
        surprise = np.mean([np.mean([each.surprise for each in task]) for task in tasks])
        return bool(inside < INSIDE), float(surprise)

    return min(GRID, key=cost)


def left_out(found: Table) -> dict[str, Prior]:
    """The constants for each setting, chosen on all others."""
    return {name: chosen(found, (other for other in found if other != name)) for name in found}


def levels(runs: Sequence[Known], of: Callable[[Known], float]) -> list[str]:
    """How many bursts exceed a level, and its score.

    The score is minimal in the mean at the level that one burst is expected to exceed: its log10,
    and by how much each burst beyond is larger.
    """
    beyond, scores = [], []
    for run in runs:
        level_ns = of(run)
        above = run.rest_ns[run.rest_ns > level_ns]
        beyond.append(len(above))
        scores.append(np.log10(level_ns / run.first.max_ns) + np.log10(above / level_ns).sum())
    mean, varies = np.mean(beyond), np.var(beyond)
    return [str(len(beyond)), f"{mean:.2f}", f"{varies / mean:.2f}", f"{np.mean(scores):.3f}"]


def simulated(kind: str, seed: int) -> Excesses:
    """A run whose law is known."""
    rng = np.random.default_rng(seed)
    sent = np.sort(rng.integers(0, DURATION_NS, BURSTS))
    xi = {"bounded": -0.3, "exponential": 0.0, "heavy": 0.3}.get(kind, -0.2)
    latency = FLOOR_NS + Pareto(xi, 5_000.0).draw(BURSTS, rng)
    extra: Floats = np.zeros(0)
    if kind == "with rare bursts":
        extra = rng.uniform(0, DURATION_NS, rng.poisson(12))
    if kind == "with a schedule":
        extra = np.arange(2e9, DURATION_NS, 5e9) + rng.normal(0, 1e7, 32)
    if kind == "in clusters":
        again = rng.integers(0, BURSTS, BURSTS)
        sent = np.concatenate([sent, sent[again] + rng.integers(0, 900_000, BURSTS)])
        latency = np.concatenate([latency, latency[again] * rng.uniform(0.9, 1, BURSTS)])
    rare = 8 * FLOOR_NS * np.exp(rng.normal(0, 0.06, len(extra)))
    if kind == "with rare stalls of exponential length":
        extra = rng.uniform(0, DURATION_NS, rng.poisson(80))
        rare = FLOOR_NS + rng.exponential(1_000_000, len(extra))
    sent = np.concatenate([sent, extra.astype(np.int64)])
    latency = np.concatenate([latency, rare])
    kept = latency > FLOOR_NS
    order = np.argsort(sent[kept], kind="stable")
    times = np.clip(sent[kept][order], 0, DURATION_NS)
    place = (times * (PACKETS / DURATION_NS)).astype(np.int64)
    worst = np.rint(latency[kept][order]).astype(np.int64) + 1
    return Excesses(times, worst, place, FLOOR_NS, PACKETS, 0, DURATION_NS)


KINDS = (
    *("bounded", "exponential", "heavy", "with rare bursts", "with a schedule", "in clusters"),
    "with rare stalls of exponential length",
)


def section(runs: int, data: Path) -> Section:
    """What came of the promise."""
    settings: dict[str, list[Known]] = {}
    for run in published(data):
        settings.setdefault(run.setting, []).append(run)
    found = answers_of(settings)
    priors = left_out(found)
    every = [run for own in settings.values() for run in own]
    rows = {
        task: [each for name in found for each in found[name][priors[name]][task]]
        for task in ("rest", "third")
    }
    many = [each for name, own in settings.items() for each in long(own, priors[name])]
    single = [each for name, own in settings.items() for each in alone(own, priors[name])]
    laws = [by_one_law(run.first, run.ahead_ns, run.rest_max_ns) for run in every]
    level_of_law = {id(run): level for run, (_, level) in zip(every, laws, strict=True)}
    seconds = [
        (run, max(each.max_ns for each in two))
        for own in settings.values()
        for run, two, _ in thirds(own)
    ]
    scored = [
        row("**rest of the run**, all settings", rows["rest"]),
        row(
            "half and twice its largest", [by_factor(r.first.max_ns, r.rest_max_ns) for r in every]
        ),
        row("one law by SciPy, bootstrap", [each for each, _ in laws]),
        row("**one run alone**", single),
        row("**third repeat**, all settings", rows["third"]),
        row("half and twice their largest", [by_factor(own, r.whole.max_ns) for r, own in seconds]),
        row("**rest of three repeats**, all settings", many),
    ]
    own_rows = [
        [*row(name, found[name][priors[name]]["rest"]), _named(priors[name])] for name in found
    ]
    simulations = [row(f"simulated: {kind}", _simulated(kind, runs)) for kind in KINDS]
    rest, alone_, repeat = scored[0], scored[3], scored[4]
    sentence = (
        f"Of {len(every)} public runs of settings that had no part in choosing the constants, the"
        f" largest latency of the rest lay in its interval of 95% in {rest[2]} with other runs of"
        f" the setting (median width {rest[4]}), and in {alone_[2]} without ({alone_[4]}); of"
        f" {repeat[1]} third repeats, in {repeat[2]} ({repeat[4]})."
    )
    shown = (
        table(SCORED, scored),
        "Machine against machine:",
        table((*SCORED, "constants"), list(_machines(found))),
        "The rest of the run, by setting, with the constants that the 13 others chose (change of"
        " sizes, steadiness):",
        table((*SCORED, "constants"), own_rows),
        "Simulated runs, each alone; their laws are ours:",
        table(SCORED, simulations),
        "The return level of the rest of the run. The score is least in the mean at the level that"
        " one burst is expected to exceed; it is relative to the largest of the first fifth:",
        table(LEVELS, list(_levels(settings, priors, level_of_law))),
        "Quantiles of the third repeat, from two:",
        table(("quantile", *SCORED[1:]), list(_quantiles(settings))),
        "Simulated runs that are alike: how often the interval, and its regions, held what the"
        f" next of {runs // 4} had, after 1, 2, 4 and 8 runs. No constant was chosen by these"
        " laws:",
        table(("law", "largest", "in a region", "p99.99"), list(alike.rows(runs // 4))),
    )
    text = TEXT.format(
        **PRIOR._asdict(),
        inside=INSIDE,
        choices=len(GRID),
        fewest=FEWEST_BURSTS,
        **_later(settings),
        few=sum(len(run.first.worst_ns) < FEWEST_BURSTS for run in every),
    )
    return Section("Tails", text, shown, {"tail": sentence})


def _later(settings: dict[str, list[Known]]) -> dict[str, object]:
    """How often much larger bursts came later, and how often other runs had shown them."""
    every = [(run, own) for own in settings.values() for run in own]
    grown = [(run, own) for run, own in every if run.rest_max_ns > MUCH * run.first.max_ns]
    shown = sum(
        max(other.first.max_ns for other in own if other is not run) >= run.rest_max_ns / MUCH
        for run, own in grown
    )
    return {
        "later": share(len(grown), len(every)),
        "much": MUCH,
        "most": max(run.rest_max_ns / run.first.max_ns for run, _ in grown),
        "number": len(grown),
        "elsewhere": shown,
    }


def _named(prior: Prior) -> str:
    return f"{prior.size_spread:g}, {prior.unknown_shape:g}, {prior.drift_shape:g}"


def _machines(found: Table) -> Iterator[list[str]]:
    names = tuple(MACHINES.values())
    for chosen_on, tried_on in (names, names[::-1]):
        prior = chosen(found, (name for name in found if name.startswith(chosen_on)))
        for task, text in (("rest", "rest of the run"), ("third", "third repeat")):
            own = [
                each
                for name in found
                if name.startswith(tried_on)
                for each in found[name][prior][task]
            ]
            yield [*row(f"chosen on {chosen_on}, {tried_on}: {text}", own), _named(prior)]


def _levels(
    settings: dict[str, list[Known]], priors: dict[str, Prior], by_law: dict[int, float]
) -> Iterator[list[str]]:
    every = [run for own in settings.values() for run in own]

    def foretold(run: Known, others: Sequence[Known]) -> float:
        like = [other.first for other in others if other is not run]
        prior = priors[run.setting]
        return largest([run.first], like, run.ahead_ns, LEVEL, prior).level_ns

    yield ["**return level**", *levels(every, lambda run: foretold(run, settings[run.setting]))]
    yield ["**of one run alone**", *levels(every, lambda run: foretold(run, ()))]
    yield ["the largest that was seen", *levels(every, lambda run: run.first.max_ns)]
    yield ["twice that", *levels(every, lambda run: 2 * run.first.max_ns)]
    yield ["one law by SciPy", *levels(every, lambda run: by_law[id(run)])]


def _quantiles(settings: dict[str, list[Known]]) -> Iterator[list[str]]:
    found: dict[float, list[tuple[Answer, Answer]]] = {quantile: [] for quantile in QUANTILES}
    for own in settings.values():
        for run, two, others in thirds(own):
            for said in next_quantiles(two, others, LEVEL):
                at = QUANTILES.index(said.quantile)
                truth = run.whole.quantiles_ns[at]
                if truth is not None:
                    seen = float(np.exp(np.mean([np.log(each.quantiles_ns[at]) for each in two])))
                    is_in_region = any(low <= truth <= high for low, high, _ in said.regions)
                    ours = Answer(said.low_ns, said.high_ns, float(truth), is_in_region)
                    found[said.quantile].append((ours, by_factor(seen, float(truth))))
    for quantile, pairs in found.items():
        for at, name in enumerate(("**p{}**", "p{}: half and twice")):
            line = row(name.format(f"{100 * quantile:g}"), [pair[at] for pair in pairs])
            yield line


def _simulated(kind: str, runs: int) -> list[Answer]:
    every = [known(kind, 0, 0, simulated(kind, seed)) for seed in range(runs)]
    return alone(every, PRIOR)
