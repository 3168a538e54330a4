"""Files of older formats, made into those of this one.

Format 2 renamed neighbours to co-runners, gave every file its format, and had a laboratory fill
what a measurement on one machine fills.
"""

from __future__ import annotations

from tailscope.store import layout

__all__ = ["counted", "upgraded_run", "with_format", "with_plan"]

_CO_RUNNERS = {"neighbours": "co_runners", "neighbour_cpus": "co_runner_cpus"}
_IN_KERNEL = ("mirred", "bridge", "router")
_LAB_ROLES = {"loadgen": "generator", "dut": "DuT"}


def with_format(content: dict[str, object]) -> dict[str, object]:
    """A file of format 1, which had none written in it, as one of format 2."""
    return {**content, "format": layout.FORMAT}


def with_plan(content: dict[str, object]) -> dict[str, object]:
    """The same of a file with a plan."""
    plan = {"plan": _plan(content["plan"])} if "plan" in content else {}
    return {**with_format(content), **plan}


def upgraded_run(content: dict[str, object]) -> dict[str, object]:
    """``run.json`` of format 1 as one of format 2.

    Parameters
    ----------
    content : dict
        As it was read. What is not as format 1 has it is left alone: whoever decodes the result
        says what is wrong with it.
    """
    plan, floor, dut = content.get("plan"), content.get("floor"), content.get("dut")
    found = {"partial": [], "warnings": [], **with_plan(content)}
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
    instrument = content.get("instrument")
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
