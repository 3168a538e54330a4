"""Other differences between runs that are compared: plan, machine, instrument, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailscope.store.info import EMULATED, host_of, is_emulated
from tailscope.store.records.base import as_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tailscope.compare.measured import RunFigures
    from tailscope.engine.analysis import Figure
    from tailscope.store.records.base import Section
    from tailscope.store.records.run import RunInfo

_NOT_OF_THE_PLAN = ("command", "pre", "post", "out", "json", "csv", "figures", "source")
_CLOCK = ("source", "pre_resolution", "post_resolution")
_PLATFORM = ("name", "representative", "realtime", "nohz_full_cpus", "parameters")
_DEVICE = ("name", "version")
_VERSIONS = ("tailscope_version", "python_version")
_NOTABLE = 0.01
"""A share of tainted samples, or a difference of rates, from which on it is said."""
_NOT_RECORDED = "-"
_RATE, _TAINTED = "measured rate", "tainted samples"
_MEASURED = (_RATE, _TAINTED, "floor: latency_ns_p50", "partial")


class Other(NamedTuple):
    """Something that is not the same in both."""

    name: str
    baseline: str
    candidate: str
    """The value of both sides; of runs that differ among themselves, all values."""

    @property
    def is_setting(self) -> bool:
        """False of what was measured, which differs between any two runs."""
        return self.name not in _MEASURED


def surroundings(baseline: Sequence[RunFigures], candidate: Sequence[RunFigures]) -> list[Other]:
    """Return the other differences between runs, in the order of ``run.json``."""
    one, other = _together(baseline), _together(candidate)
    others = [
        Other(name, one.get(name, _NOT_RECORDED), other.get(name, _NOT_RECORDED))
        for name in {**one, **other}
        if one.get(name) != other.get(name)
    ]
    both = (baseline, candidate)
    rates = [_mean(sample.rate_pps for sample in each) for each in both]
    if max(rates) - min(rates) > _NOTABLE * max(rates):
        others.append(Other(_RATE, *(f"{rate:,.0f} packets/s" for rate in rates)))
    shares = [_mean(sample.tainted_share for sample in each) for each in both]
    if max(shares) - min(shares) > _NOTABLE:
        others.append(Other(_TAINTED, *(f"{share:.1%}" for share in shares)))
    return others


def _together(samples: Sequence[RunFigures]) -> dict[str, str]:
    values_by_fact: dict[str, dict[str, None]] = {}
    for sample in samples:
        for name, value in sample.facts.items():
            values_by_fact.setdefault(name, {})[value] = None
    return {name: " / ".join(values) for name, values in values_by_fact.items()}


def facts_of(info: RunInfo) -> dict[str, str]:
    """Return the facts of a run's origin, without those that differ in every run."""
    return dict(_facts(info))


def tainted_share(summary: Mapping[str, Figure]) -> float:
    """Return the share of its samples that the instrument's stalls could change."""
    return int(summary.get("tainted") or 0) / max(1, int(summary["count"] or 0))


def _facts(info: RunInfo) -> Iterator[tuple[str, str]]:
    plan = as_content(info.plan)
    floor = None if info.floor is None else info.floor.latency_ns_p50
    hosts = {"host": host_of(info)} if info.hosts is None else info.hosts
    labels = {} if info.about is None else as_content(info.about)
    sections: dict[str, Mapping[str, object]] = {
        "plan": {
            name: value
            for name, value in {**plan, **labels}.items()
            if name not in _NOT_OF_THE_PLAN
        },
        **{role: as_content(host) for role, host in hosts.items()},
        "clock": _only(info.clock, _CLOCK),
        "floor": {"latency_ns_p50": floor},
        "platform": _only(info.platform, _PLATFORM),
        "device": _only(info.dut, _DEVICE),
        "cpus": {} if info.instrument is None else info.instrument.cpus,
        "knobs": info.knobs or {},
    }
    for section, content in sections.items():
        for name, value in _flat(content):
            yield f"{section}: {name}", value
    yield "settings made for the run", ", ".join(_tuned(info)) or "none"
    for name in _VERSIONS:
        yield name, _text(getattr(info, name))
    yield "partial", "; ".join(info.partial) or "no"
    yield EMULATED, _text(is_emulated(info))


def _only(part: Section | None, names: Iterable[str]) -> dict[str, object]:
    return {} if part is None else {name: getattr(part, name) for name in names}


def _flat(content: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in content.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _NOT_RECORDED if value is None or value in ({}, []) else str(value)


def _tuned(info: RunInfo) -> list[str]:
    return sorted(each.knob for each in info.tuning or () if each.refused is None)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
