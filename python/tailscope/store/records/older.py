"""Files of older formats, made into those of this one.

Format 2 renamed neighbours to co-runners and durations of stalls as `summary.json` has them, gave
every file its format, and had a laboratory fill what a measurement on one machine fills. Format 3
of `run.json` carries a checksum of its own.
"""

from __future__ import annotations

from tailscope.store import layout
from tailscope.units import QUANTILES

_CO_RUNNERS = {"neighbours": "co_runners", "neighbour_cpus": "co_runner_cpus"}
_STALLS = {"stall_total_ns": "stall_ns_total", "stall_longest_ns": "stall_ns_max"}
_ALL_STALLS = {"total_ns": "stall_ns_total", "longest_ns": "stall_ns_max"}
_COUNTED_SINCE = ("outside", "repeated", "reverse", "local", "post_reverse", "post_outside")
"""Counts of ``summary.json`` since its format 3."""
_BEFORE_BOUNDS = 3
_LEAST = tuple(
    f"least_latency_ns_{name}"
    for name in (
        *("mean", "max"),
        *(f"{q}{end}" for q in QUANTILES for end in ("", "_ci_low", "_ci_high")),
    )
)
_IN_KERNEL = ("mirred", "bridge", "router")
_LAB_ROLES = {"loadgen": "generator", "dut": "DuT"}


def with_format(content: dict[str, object]) -> dict[str, object]:
    """A file of format 1, which had none written in it, as one of format 2."""
    return {**{name: _renamed(value) for name, value in content.items()}, "format": layout.FORMAT}


def _renamed(value: object) -> object:
    """Durations of stalls by their names of today, wherever they are."""
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    if not isinstance(value, dict):
        return value
    names = {**_STALLS, **(_ALL_STALLS if "longest_ns" in value else {})}
    return {names.get(name, name): _renamed(one) for name, one in value.items()}


def upgraded_summary(content: dict[str, object]) -> dict[str, object]:
    """``summary.json`` of format 1 to 3 as one of format 4."""
    found = content if content.get("format") == _BEFORE_BOUNDS else _with_counts(content)
    return _with_bounds(found)


def _with_bounds(content: dict[str, object]) -> dict[str, object]:
    """``summary.json`` of format 3 as one of format 4.

    Format 3 told latencies without tainted samples, which bound nothing. Without any such sample,
    the least that latencies can have been is what they are; with some it is not known.
    """
    kept = {
        name: value
        for name, value in content.items()
        if not name.startswith("untainted_latency_ns_")
    }
    least = {
        name: content.get(name.removeprefix("least_")) if content.get("tainted") == 0 else None
        for name in _LEAST
    }
    return {**kept, **(least if "tainted" in content else {}), "format": layout.SUMMARY_FORMAT}


def without_untainted(value: object) -> object:
    """``verdict.json``, where it judged without tainted samples, which bound nothing.

    The least that packets can have taken is not known there.
    """
    if isinstance(value, list):
        return [without_untainted(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: without_untainted(one) for name, one in value.items() if name != "untainted"}
    return {**found, "least": None} if "untainted" in value else found


def _with_counts(content: dict[str, object]) -> dict[str, object]:
    """``summary.json`` of format 1 or 2 as one of format 3.

    There a packet that was seen too early counted as lost, and nothing was outside of what both
    captures saw.
    """
    later = dict.fromkeys(_COUNTED_SINCE, 0)
    return {
        **with_format(content),
        **later,
        "negative": 0,
        "post_negative": content.get("negative"),
    }


def with_plan(content: dict[str, object]) -> dict[str, object]:
    """The same of a file with a plan."""
    plan = {"plan": _plan(content["plan"])} if "plan" in content else {}
    return {**with_format(content), **plan}


def upgraded_run(content: dict[str, object]) -> dict[str, object]:
    """``run.json`` of format 1 or 2 as one of format 3."""
    found = content if content.get("format") == layout.FORMAT else _run_of_format_2(content)
    return {**found, "format": layout.RUN_FORMAT}


def _run_of_format_2(content: dict[str, object]) -> dict[str, object]:
    """``run.json`` of format 1 as one of format 2."""
    found: dict[str, object] = {"partial": [], "warnings": [], **with_plan(content)}
    plan, floor, dut = (found.get(name) for name in ("plan", "floor", "dut"))
    if isinstance(floor, dict):
        found["floor"] = with_format(floor)
    name = plan.get("dut") if isinstance(plan, dict) else None
    if isinstance(dut, dict):
        found["dut"] = {
            "name": name,
            "instance": None,
            **dut,
            "result": counted(name, dut.get("result")),
        }
    instrument = found.get("instrument")
    if isinstance(instrument, dict):
        found["instrument"] = _instrument(instrument, in_lab="hosts" in content)
    return found


def _plan(plan: object) -> object:
    if not isinstance(plan, dict):
        return plan
    return {_CO_RUNNERS.get(name, name): value for name, value in plan.items()}


def counted(name: object, result: object) -> object:
    """What a device counted, with the program that counted it."""
    if not isinstance(result, dict) or "program" in result:
        return result
    if name in ("suricata", "snort"):
        return {"program": name, **result}
    return {"program": "kernel" if name in _IN_KERNEL else "none", **result}


def _instrument(instrument: dict[str, object], *, in_lab: bool) -> dict[str, object]:
    cpus, generator = instrument.get("cpus"), instrument.get("generator")
    found = {**instrument}
    if in_lab and isinstance(cpus, dict):
        found["cpus"] = {_LAB_ROLES.get(role, role): listed for role, listed in cpus.items()}
    if in_lab and isinstance(generator, dict):
        found["generator"] = {
            name: value for name, value in generator.items() if name not in ("event", "priority")
        }
    return found
