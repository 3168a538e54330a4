"""Tables 6 and 7 of containers2024, of the runs at hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from tailscope.extra.recommend.compare import (
    best_quantile,
    common_quantile,
    least,
    tail_of,
    why_not_above,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tailscope.engine.analysis import Figure
    from tailscope.extra.recommend.compare import Tail
    from tailscope.extra.recommend.evidence import Case, Evidence, Facts

STATIC_SOURCE = "containers2024 Table 7: from the paper, not measured here"

_PLACES = tuple(product(("lxc", "vm", "bare"), (True, False)))
_ROWS = (
    *(("lxc", "kernel space"), ("lxc", "user space")),
    *(("vm", "user space"), ("bare", "user space")),
)
_SETTINGS = (("vanilla", False), ("rt", True))
"""The columns of the paper's Table 6."""

_BEST, _GOOD, _FAIR, _POOR, _BAD = "✓✓✓", "✓✓", "✓", "✗", "✗✗"
_SECURITY: dict[object, dict[str, str]] = {
    "vm": {"separated": _GOOD, "shared": _FAIR},
    "lxc": {"separated": _FAIR, "shared": _POOR},
    "bare": {"separated": _BEST, "shared": _BEST},
}
_RESOURCES: dict[object, str] = {
    ("vm", True): _POOR,
    ("vm", False): _FAIR,
    ("lxc", True): _GOOD,
    ("lxc", False): _BEST,
    ("bare", True): _BAD,
    ("bare", False): _BAD,
}


class Setting(NamedTuple):
    """A cell's place in Table 6; None is what was not recorded, or a device that nobody ran."""

    technology: str | None
    networking: str
    device: str | None
    kernel: str | None
    optimised: bool | None


@dataclass(frozen=True)
class TailCell:
    """The tail of a technology."""

    setting: Setting
    tail: Tail | None = None
    """The highest quantile that all of its runs support."""
    max_ns: int | None = None
    least_max_ns: int | None = None
    """The longest latency of all runs, and the least that it can have been."""
    lost: int | None = None
    sent: int | None = None
    """Packets that the device lost, of how many; None where it has no run, or that was not
    imported."""
    runs: tuple[int, ...] = ()

    def record(self) -> dict[str, object]:
        """Return the cell as JSON has it."""
        value = None if self.tail is None else self.tail.latency_ns
        lower = None if self.tail is None else self.tail.least_ns
        return {
            **self.setting._asdict(),
            "quantile": None if self.tail is None else self.tail.quantile,
            "latency_ns": None if value is None else value.estimate,
            "latency_ns_ci_low": None if value is None else value.ci_low,
            "latency_ns_ci_high": None if value is None else value.ci_high,
            "level": None if value is None else value.level,
            "n": None if value is None else value.n,
            "least_latency_ns": None if lower is None else lower.estimate,
            "least_latency_ns_ci_low": None if lower is None else lower.ci_low,
            "least_latency_ns_ci_high": None if lower is None else lower.ci_high,
            "max_ns": self.max_ns,
            "least_max_ns": self.least_max_ns,
            "lost": self.lost,
            "sent": self.sent,
            "runs": list(self.runs),
        }


@dataclass(frozen=True)
class Ranked:
    """A row of Table 7."""

    device: str | None
    technology: str | None
    kernel: str | None
    optimised: bool | None
    cache: str | None
    rank: int | None
    """Rank by latency among the rows of the same device: one more than the number of rows that lie
    wholly below.
    """
    tail: Tail | None
    """Tail that the rank rests on, at the highest quantile that all rows of the device support."""
    security: tuple[str, ...]
    """The paper's rank; both of them where it depends on a cache that is not known."""
    resources: str | None
    """The paper's rank."""
    runs: tuple[int, ...]

    def record(self) -> dict[str, object]:
        """Return the row as JSON has it."""
        return {
            "device": self.device,
            "technology": self.technology,
            "kernel": self.kernel,
            "optimised": self.optimised,
            "cache": self.cache,
            "rank": self.rank,
            "rank_quantile": None if self.tail is None else self.tail.quantile,
            "security": list(self.security),
            "resources": self.resources,
            "static_source": STATIC_SOURCE,
            "runs": list(self.runs),
        }


@dataclass(frozen=True)
class TailTables:
    """Both tables, of runs with the same traffic on the same machine."""

    facts: Facts
    """Facts that the runs share: traffic, co-runners, machine, clock."""
    cells: list[TailCell]
    """Table 6."""
    ranks: list[Ranked]
    """Table 7."""

    def record(self) -> dict[str, object]:
        """Return the tables as JSON has them."""
        facts = self.facts
        return {
            "rate_pps": facts.rate_pps,
            "pattern": facts.pattern,
            "burst": facts.burst,
            "size_bytes": facts.size_bytes,
            "flows": facts.flows,
            "co_runners": dict(facts.co_runners[0]) if facts.co_runners else {},
            "clock": facts.clock,
            "cpu_model": facts.machine[0],
            "tails": [cell.record() for cell in self.cells],
            "ranks": [row.record() for row in self.ranks],
        }


def tables(evidence: Evidence) -> list[TailTables]:
    """Both tables for each traffic: what was sent alike, on machines of a kind, side by side."""
    by_traffic: dict[Facts, list[Case]] = {}
    for case in evidence.cases:
        by_traffic.setdefault(_traffic(case.facts), []).append(case)
    in_order = sorted(by_traffic, key=lambda facts: (facts.rate_pps, repr(facts)))
    return [
        TailTables(facts, _cells(by_traffic[facts]), _ranks(by_traffic[facts]))
        for facts in in_order
    ]


def _traffic(facts: Facts) -> Facts:
    """Return the facts that depend neither on the device nor on what it runs on."""
    return facts._replace(
        technology=None,
        kernel=None,
        optimised=None,
        cache=None,
        cards=None,
        device="",
        device_options=(),
        networking="",
        wire="",
    )


def _device(facts: Facts) -> str:
    """Return a device with its options, and the wire if it is not the usual one."""
    options = ", ".join(f"{name}={value}" for name, value in facts.device_options)
    name = f"{facts.device} ({options})" if options else facts.device
    return f"{name} over {facts.cards or facts.wire}"


def _setting(facts: Facts) -> Setting:
    return Setting(
        facts.technology, facts.networking, _device(facts), facts.kernel, facts.optimised
    )


Key = TypeVar("Key")


def _grouped(cases: Iterable[Case], key: Callable[[Facts], Key]) -> dict[Key, list[Case]]:
    groups: dict[Key, list[Case]] = {}
    for case in cases:
        groups.setdefault(key(case.facts), []).append(case)
    return groups


def _cells(cases: Sequence[Case]) -> list[TailCell]:
    """Return the paper's rows and columns, and those that the runs add."""
    cases_by_setting = _grouped(cases, _setting)
    devices = _grouped(cases, lambda facts: (facts.technology, facts.networking))
    cells = []
    for technology, networking in dict.fromkeys((*_ROWS, *devices)):
        own = devices.get((technology, networking), [])
        for device in dict.fromkeys(_device(case.facts) for case in own) or (None,):
            place = (technology, networking, device)
            others = [
                (each.kernel, each.optimised) for each in cases_by_setting if each[:3] == place
            ]
            settings = dict.fromkeys((*_SETTINGS, *others))
            cells += [_cell(Setting(*place, *setting), cases_by_setting) for setting in settings]
    return cells


def _cell(setting: Setting, cases_by_setting: dict[Setting, list[Case]]) -> TailCell:
    cases = cases_by_setting.get(setting)
    if cases is None:
        return TailCell(setting)
    quantile = best_quantile(cases)
    rows = [case.run.summary for case in cases]
    return TailCell(
        setting,
        tail=None if quantile is None else tail_of(cases, quantile),
        max_ns=_largest(row["latency_ns_max"] for row in rows),
        least_max_ns=_largest(least(row, "latency_ns_max") for row in rows),
        lost=_total(case.lost for case in cases),
        sent=_total(row["sent"] for row in rows),
        runs=tuple(case.number for case in cases),
    )


def _total(values: Iterable[Any]) -> int | None:
    numbers = list(values)
    return None if None in numbers else sum(map(int, numbers))


def _largest(values: Iterable[Figure]) -> int | None:
    return max((int(value) for value in values if value is not None), default=None)


_Place: TypeAlias = tuple[str | None, bool | None, str | None, str | None]
"""Technology, whether it is optimised, kernel and use of the cache."""


def _ranks(cases: Sequence[Case]) -> list[Ranked]:
    """Each device's rows, and those of the paper that it has no run of."""
    rows = []
    for device, own in _grouped(cases, _compared).items():
        groups = _grouped(own, _ranked_by)
        quantile = common_quantile(*groups.values())
        found_tails = {
            key: None if quantile is None else tail_of(group, quantile)
            for key, group in groups.items()
        }
        everywhere = [tail for tail in found_tails.values() if tail is not None]
        for place in dict.fromkeys((*_PLACES, *(key[:2] for key in groups))):
            keys = [key for key in groups if key[:2] == place]
            for key in keys or [(*place, None, None)]:
                tail = found_tails.get(key)
                rank = None if tail is None else _rank(tail, everywhere)
                runs = tuple(case.number for case in groups.get(key, ()))
                rows.append(_row(device, key, rank, tail, runs))
    return rows


def _compared(facts: Facts) -> str:
    """Return the key of a ranking: a device with its options, over a wire."""
    return _device(facts)


def _ranked_by(facts: Facts) -> _Place:
    return facts.technology, facts.optimised, facts.kernel, facts.cache


def _rank(tail: Tail, everywhere: Sequence[Tail]) -> int:
    """Return one more than the number of tails that lie below for certain."""
    return 1 + sum(why_not_above(tail, other) is None for other in everywhere)


def _row(
    device: str, key: _Place, rank: int | None, tail: Tail | None, runs: tuple[int, ...]
) -> Ranked:
    technology, optimised, kernel, cache = key
    ranks = _SECURITY.get(technology, {})
    security = (ranks[cache],) if cache in ranks else tuple(dict.fromkeys(ranks.values()))
    resources = _RESOURCES.get((technology, optimised))
    return Ranked(
        device, technology, kernel, optimised, cache, rank, tail, security, resources, runs
    )
