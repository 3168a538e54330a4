"""Other programs on the device's CPU, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.host.cpus import cpu_list
from tailscope.store.info import neighbours_of
from tailscope.units import duration_text, share_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.store.records.run import RunInfo

_NAMED = 2
"""Maximum number of programs in a sentence."""


def named_programs(names: Sequence[str]) -> str:
    """Call other programs by their names, the first ones of many."""
    named = ", ".join([*names[:_NAMED], *(["…"] if len(names) > _NAMED else [])])
    return f"other programs ({named})" if named else "other programs"


def programs_text(info: RunInfo) -> str:
    """Name the neighbours of the device."""
    record = neighbours_of(info)
    return named_programs([] if record is None else [each.name for each in record.programs])


def held_text(info: RunInfo) -> str:
    """Say how long neighbours held the device's CPU; empty where they did not."""
    record = neighbours_of(info)
    if record is None or not record.held_ns:
        return ""
    share = min(1.0, record.held_ns / max(1, record.watched_ns))
    return f"{programs_text(info)} held the device's CPU {share_text(share)} of the time"


def unusable_text(info: RunInfo) -> str:
    """Say for what a run is not usable because of neighbours; empty where it is for everything."""
    record = neighbours_of(info)
    if record is None or not record.unusable:
        return ""
    return f"Not usable for {', '.join(record.unusable)}: {held_text(info)}"


def elsewhere_text(elsewhere_ns: Mapping[str, int] | None, own_cpus: str) -> str:
    """Say that a device ran on other CPUs than its own; empty where it did not."""
    if not elsewhere_ns:
        return ""
    where, ran_ns = cpu_list(map(int, elsewhere_ns)), sum(elsewhere_ns.values())
    return (
        f"the device ran on CPU {where} for {duration_text(ran_ns)}, longer than on its own, CPU"
        f" {own_cpus}: what kept it from its work there is not known; place its threads by {{cpus}}"
        " in its command"
    )
