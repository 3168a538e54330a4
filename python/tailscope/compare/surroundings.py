"""What else differs between runs that are compared: plan, machine, instrument, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tailscope.store.run import EMULATED, is_emulated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tailscope.compare.sample import RunFigures

__all__ = ["Other", "surroundings"]

_NOT_OF_THE_PLAN = ("command", "pre", "post", "out", "json", "csv", "figures")
_CLOCK = ("source", "pre_resolution", "post_resolution")
_PLATFORM = ("name", "representative", "realtime", "nohz_full_cpus", "parameters")
_DEVICE = ("name", "version")
_VERSIONS = ("tailscope_version", "python_version")
_NOTABLE = 0.01
"""A share of tainted samples, or a difference of rates, from which on it is said."""
_NOT_RECORDED = "-"


class Other(NamedTuple):
    """Something that is not the same in both.

    Attributes
    ----------
    name : str
    baseline, candidate : str
        What it is there; of runs that differ among themselves all that it is.
    """

    name: str
    baseline: str
    candidate: str


def surroundings(baseline: Sequence[RunFigures], candidate: Sequence[RunFigures]) -> list[Other]:
    """What else differs between runs, in the order of ``run.json``."""
    one, other = _together(baseline), _together(candidate)
    found = [
        Other(name, one.get(name, _NOT_RECORDED), other.get(name, _NOT_RECORDED))
        for name in {**one, **other}
        if one.get(name) != other.get(name)
    ]
    both = (baseline, candidate)
    rates = [_mean(sample.summary.get("pre_rate_pps") for sample in each) for each in both]
    if max(rates) - min(rates) > _NOTABLE * max(rates):
        found.append(Other("measured rate", *(f"{rate:,.0f} packets/s" for rate in rates)))
    shares = [_mean(map(_tainted, each)) for each in both]
    if max(shares) - min(shares) > _NOTABLE:
        found.append(Other("tainted samples", *(f"{share:.1%}" for share in shares)))
    return found


def _together(samples: Sequence[RunFigures]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for sample in samples:
        for name, value in _facts(sample.info):
            found.setdefault(name, {})[value] = None
    return {name: " / ".join(values) for name, values in found.items()}


def _facts(info: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a run says of where it comes from, without what is another in every run."""
    plan = {name: value for name, value in info["plan"].items() if name not in _NOT_OF_THE_PLAN}
    hosts = info.get("hosts") or {"host": info.get("host")}
    floor = info.get("floor")
    sections = {
        "plan": plan,
        **hosts,
        "clock": _only(info.get("clock"), _CLOCK),
        "floor": {"latency_ns_p50": None if floor is None else floor.get("latency_ns_p50")},
        "platform": _only(info.get("platform"), _PLATFORM),
        "device": _only(info.get("dut"), _DEVICE),
        "cpus": (info.get("instrument") or {}).get("cpus"),
        "knobs": info.get("knobs"),
    }
    for section, content in sections.items():
        for name, value in _flat(content or {}):
            yield f"{section}: {name}", value
    yield "settings made for the run", ", ".join(_tuned(info)) or "none"
    for name in _VERSIONS:
        yield name, _text(info.get(name))
    yield "partial", "; ".join(info.get("partial", ())) or "no"
    yield EMULATED, _text(is_emulated(info))


def _only(content: Mapping[str, Any] | None, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in (content or {}).items() if name in names}


def _flat(content: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in content.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _NOT_RECORDED if value is None or value in ({}, []) else str(value)


def _tuned(info: Mapping[str, Any]) -> list[str]:
    return sorted(str(each["knob"]) for each in info.get("tuning") or () if each["refused"] is None)


def _tainted(sample: RunFigures) -> float:
    return int(sample.summary.get("tainted") or 0) / max(1, int(sample.summary["count"] or 0))


def _mean(values: Iterable[Any]) -> float:
    numbers = [float(value or 0) for value in values]
    return sum(numbers) / len(numbers)
