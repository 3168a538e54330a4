"""The tests of a standard that a user asks for, and how long they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tailscope.exceptions import UsageError
from tailscope.extra.standards import clauses
from tailscope.extra.standards.bench import DRAIN_S
from tailscope.extra.standards.mlrsearch import Goal
from tailscope.extra.standards.search import most_steps, parse_goal
from tailscope.units import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.extra.standards.clauses import Clause

TRIAL_S: Final = 60.0
"""Duration of a trial: RFC 2544, section 24."""
BURST_S: Final = 2.0
"""The longest burst that is tried: RFC 2544, section 26.4."""
_START_S = 2.0
"""About what it takes to start and stop a device."""
_LOSS_STEPS = 10
_ETHERNET = ("64", "128", "256", "512", "1024", "1280", "1518")
_ETHERNET_8219 = ("64", "128", "256", "512", "768", "1024", "1280", "1518")
_THROUGHPUT, _LATENCY, _LOSS = "throughput", "latency", "loss"
_NEEDS_THROUGHPUT = {_LATENCY, "pdv", "back-to-back", "recovery", "soak"}


@dataclass(frozen=True)
class Standard:
    """A standard whose tests can be made."""

    name: str
    about: str
    tests: Mapping[str, Clause]
    """The clauses that define the tests, by the names of these."""
    usual: tuple[str, ...]
    """The tests that are made unless others are asked for."""
    sizes: tuple[str, ...]
    """Sizes of frames, up to the largest one of the generator."""
    repetitions: Mapping[str, int]
    """Number of repetitions of each test."""
    tries: int = 1
    """Trials at a load at which frames are lost."""


_OF_2544: dict[str, Clause] = {
    _THROUGHPUT: clauses.THROUGHPUT,
    _LATENCY: clauses.LATENCY,
    _LOSS: clauses.LOSS,
    "back-to-back": clauses.BACK_TO_BACK,
    "recovery": clauses.RECOVERY,
    "soak": clauses.SOAK,
}
_OF_8219: dict[str, Clause] = {
    _THROUGHPUT: clauses.THROUGHPUT_8219,
    _LATENCY: clauses.LATENCY_8219,
    "pdv": clauses.PDV,
    _LOSS: clauses.LOSS_8219,
    "back-to-back": clauses.BACK_TO_BACK_8219,
    "recovery": clauses.RECOVERY_8219,
}
_OF_TST009: dict[str, Clause] = {
    _THROUGHPUT: clauses.TST_SEARCH,
    "capacity": clauses.TST_CAPACITY,
    _LOSS: clauses.LOSS,
    "back-to-back": clauses.BACK_TO_BACK,
}
_OFTEN = {_LATENCY: 20, "pdv": 20, "back-to-back": 50, "recovery": 3}

STANDARDS: Final = {
    each.name: each
    for each in (
        Standard(
            "2544",
            "RFC 2544: benchmarking of interconnect devices",
            _OF_2544,
            tuple(name for name in _OF_2544 if name != "soak"),
            _ETHERNET,
            _OFTEN,
        ),
        Standard(
            "8219",
            "RFC 8219: typical and worst-case latency, delay variation",
            _OF_8219,
            tuple(_OF_8219),
            _ETHERNET_8219,
            _OFTEN,
        ),
        Standard(
            "tst009",
            "ETSI GS NFV-TST 009: binary search with loss verification",
            _OF_TST009,
            tuple(_OF_TST009),
            _ETHERNET,
            _OFTEN,
            tries=2,
        ),
        Standard(
            "mlrsearch",
            "RFC 9971: Multiple Loss Ratio search",
            {"goals": clauses.MLR_RESULTS},
            ("goals",),
            _ETHERNET,
            {},
        ),
    )
}
"""The standards, by the names that commands use."""


def standard_named(name: str) -> Standard:
    """The standard of a name."""
    refuse_unknown("STANDARD", name, STANDARDS, "unknown-standard")
    return STANDARDS[name]


@dataclass(frozen=True)
class Step:
    """A test of the plan."""

    test: str
    clause: Clause
    trials: int
    """About how many."""
    lasts_s: float
    """About how long all of them take."""


@dataclass(frozen=True)
class Asked:
    """The tests that are to be made with frames of each size."""

    standard: Standard
    tests: tuple[str, ...]
    trial_s: float
    warm_up_s: float
    soak_s: float
    repetitions: int | None
    """Number of repetitions of each test; None for as many as the standard wants."""
    width: float
    """Largest distance of the bounds of a search, relative to the upper one."""
    max_rate_pps: int | None
    """The highest rate; None for what the wire carries without the device."""
    tries: int
    """Trials at a load at which frames are lost: max(r) of TST 009."""
    most_lost: int | None
    """A load that loses more frames than this is not tried again: z of TST 009."""
    capacity_loss: float
    """The loss ratio that the capacity permits."""
    goals: tuple[Goal, ...]
    """The goals of MLRsearch."""

    def __post_init__(self) -> None:
        for test in self.tests:
            refuse_unknown("--tests", test, self.standard.tests, "unknown-test")
        if not 0 < self.width < 1:
            raise UsageError(
                f"--width: got {self.width:g}, expected more than 0 and less than 1", code="width"
            )
        if not 0 < self.capacity_loss < 1:
            raise UsageError(
                f"--capacity-loss: got {self.capacity_loss:g}, expected more than 0 and less"
                " than 1",
                code="capacity-loss",
            )

    @property
    def every_test(self) -> tuple[str, ...]:
        """The tests in their order, with the throughput where others are made at it."""
        wanted = set(self.tests)
        if wanted & _NEEDS_THROUGHPUT:
            wanted.add(_THROUGHPUT)
        return tuple(test for test in self.standard.tests if test in wanted)

    def times(self, test: str) -> int:
        """Return the number of repetitions of a test."""
        return self.repetitions or self.standard.repetitions[test]

    @property
    def stream_s(self) -> float:
        """Duration of a stream whose second half latency is of: 120 s at trials of 60 s."""
        return 2 * self.trial_s

    @property
    def burst_s(self) -> float:
        """Duration of the longest burst."""
        return min(BURST_S, self.trial_s)

    def steps(self) -> list[Step]:
        """List the steps for frames of one size, and about how long each takes."""
        return [
            Step(test, self.standard.tests[test], *self._extent(test)) for test in self.every_test
        ]

    def _extent(self, test: str) -> tuple[int, float]:
        searched, around_s = most_steps(self.width), self.warm_up_s + DRAIN_S + _START_S
        if test in (_THROUGHPUT, "capacity"):
            trials, each_s = searched * (self.tries + 1) // 2, self.trial_s
        elif test == _LATENCY:
            trials, each_s = self.times(test), self.stream_s
        elif test == "pdv":
            # The streams of the latency test serve both.
            trials, each_s = (0 if _LATENCY in self.tests else self.times(test)), self.trial_s
        elif test == _LOSS:
            trials, each_s = _LOSS_STEPS, self.trial_s
        elif test == "back-to-back":
            trials, each_s = searched * self.times(test), self.burst_s / 2
        elif test == "recovery":
            trials, each_s = self.times(test), self.stream_s
        elif test == "soak":
            trials, each_s = 1, self.soak_s
        else:
            final_s = max(goal.duration_sum_s for goal in self.goals)
            trials, each_s = searched * len(self.goals), final_s
        return trials, trials * (each_s + around_s)


def goals_of(given: Sequence[str], trial_s: float, width: float) -> tuple[Goal, ...]:
    """The goals that are asked for, or those that RFC 9971 has for RFC 2544 and TST 009."""
    if given:
        return tuple(parse_goal(text, trial_s, width) for text in dict.fromkeys(given))
    return (
        Goal("RFC2544", trial_s, trial_s, 0.0, 0.0, width, trial_s),
        Goal("TST009", trial_s, 2 * trial_s, 0.0, 0.5, width, trial_s),
    )
