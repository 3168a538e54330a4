"""The ablation of the host's knobs: the tail with all, with none, and with all but one.

Every round measures every arm once, in an order of its own, so that what drifts meets all arms
alike. Arms are compared within a round: the effect of a knob is the ratio of the latency without it
to that with all. Intervals are Student's, of the logarithms of the ratios, and hold for all
comparisons together (Bonferroni): of many knobs that do nothing, one that seems to is as rare as
the level says.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError
from tailscope.experiment.run.execute import execute_whole
from tailscope.host.apply import tuned
from tailscope.models.samples import packets_for_support
from tailscope.models.special import stdtrit
from tailscope.units import count_text, percentile_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tailscope.experiment.plan import RunPlan
    from tailscope.host.machine import Machine
    from tailscope.store.records.messages import GeneratorProgress
    from tailscope.testbed.cores import Cores

    Values = Mapping[str, Sequence[int]]

ALL, NONE = "all", "none"
LEVEL = 0.95
FEWEST_ROUNDS = 3


@dataclass(frozen=True)
class Arm:
    """One way to set the host."""

    name: str
    """`ALL`, `NONE`, or the knob that is left out."""
    knobs: tuple[str, ...]
    """The knobs that are set."""


@dataclass(frozen=True)
class Effect:
    """The effect on the tail of a knob, or of all of them together."""

    knob: str
    """`NONE` for all together."""
    ratio: float
    """Latency without it over latency with it: above 1 it helps."""
    ci_low: float
    ci_high: float
    """The interval of the ratio; 95 % for all comparisons together."""
    n: int
    """Rounds."""
    level: float = LEVEL
    """Level of the interval."""
    method: str = "paired log ratios, Student's t, Bonferroni"

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.ci_low > 1:
            return "helps"
        return "hurts" if self.ci_high < 1 else "no measurable effect here"

    def record(self) -> dict[str, object]:
        """Return the effect as JSON has it."""
        return {**asdict(self), "verdict": self.verdict}


def arms_of(knobs: Sequence[str]) -> list[Arm]:
    """All, none, and each left out; of a single knob to leave it out is none."""
    everything = tuple(knobs)
    one_less = [
        Arm(knob, tuple(other for other in everything if other != knob)) for knob in everything
    ]
    return [Arm(ALL, everything), Arm(NONE, ()), *(one_less if len(everything) > 1 else ())]


def check_rounds(rounds: int) -> None:
    """See that there are enough rounds for an interval."""
    if rounds < FEWEST_ROUNDS:
        raise UsageError(
            f"--rounds: got {rounds}, expected at least {FEWEST_ROUNDS}", code="rounds"
        )


def order(arms: Sequence[Arm], rounds: int, seed: int) -> list[list[Arm]]:
    """Every arm once a round, each round shuffled by itself."""
    check_rounds(rounds)
    chance = random.Random(seed)  # noqa: S311
    return [chance.sample(list(arms), len(arms)) for _ in range(rounds)]


def check_support(plan: RunPlan, quantile: float) -> None:
    """See that a run has samples enough for a quantile."""
    if not 0 < quantile < 1:
        raise UsageError(
            f"--quantile: got {quantile:g}, expected more than 0 and less than 1", code="quantile"
        )
    packets = plan.rate_pps * plan.duration_ns // 1_000_000_000
    needed = packets_for_support(quantile)
    if packets < needed:
        raise UsageError(
            f"--quantile: {percentile_name(quantile)} needs {count_text(needed)} packets,"
            f" got {count_text(packets)}",
            code="quantile-unsupported",
            hint="measure for longer, send faster, or choose a lower quantile",
        )


def measure(
    plan: RunPlan,
    cores: Cores,
    machine: Machine,
    rounds: Sequence[Sequence[Arm]],
    quantile: float,
    tell: Callable[[int, Arm, GeneratorProgress | None], None],
) -> Iterator[dict[str, int]]:
    """Measure every arm of every round."""
    for number, arms in enumerate(rounds, 1):
        found = {}
        for arm in arms:
            tell(number, arm, None)
            with tuned(
                machine, tuple(sorted(set(cores.pollers))), arm.knobs, by="tailscope host tune"
            ):
                measured = execute_whole(plan, cores, progress=partial(tell, number, arm))
            [value] = measured.analysis.quantiles([quantile])
            found[arm.name] = value.value_ns
        yield found


def effects(found: Values) -> list[Effect]:
    """Compare each arm with that of all knobs, largest effect first; all together come last."""
    arms = [name for name in found if name != ALL]
    compared = [_effect(name, found[name], found[ALL], len(arms)) for name in arms]
    knobs = [effect for effect in compared if effect.knob != NONE]
    knobs.sort(key=lambda effect: -abs(math.log(effect.ratio)))
    return [*knobs, *(effect for effect in compared if effect.knob == NONE)]


def _effect(name: str, without: Sequence[int], everything: Sequence[int], many: int) -> Effect:
    ratio, reach = paired_ratio(without, everything, 1 - (1 - LEVEL) / many)
    return Effect(name, ratio, ratio / reach, ratio * reach, len(without))


def paired_ratio(
    values: Sequence[float], others: Sequence[float], level: float
) -> tuple[float, float]:
    """Return the geometric mean of the ratios of pairs, and the factor of its interval."""
    logs = [math.log(max(a, 1) / max(b, 1)) for a, b in zip(values, others, strict=True)]
    n = len(logs)
    deviation = statistics.stdev(logs)
    reach = stdtrit(n - 1, (1 + level) / 2) * deviation / math.sqrt(n)
    return math.exp(statistics.fmean(logs)), math.exp(reach)
