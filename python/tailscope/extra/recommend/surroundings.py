"""Surroundings of a device: technology, kernel, optimisation, and who shares its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.host.cpus import cpu_list, parse_cpus
from tailscope.plan.fields import PlanFields
from tailscope.store.info import about_of, host_of, technology

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tailscope.plan.fields import AboutFields
    from tailscope.store.records.run import RunInfo

SINGLE_THREAD = ("l2fwd", "l3fwd", "delay", "work", "testpmd", "snort")
"""Devices with one polling thread on each of their CPUs (limbo2022, Recommendation III)."""
SEVERAL_THREADS = ("suricata",)
"""Devices whose threads share CPUs (limbo2022 §6.2)."""

_IN_KERNEL = ("mirred", "bridge", "router", "nftables", "xdp", "wireguard", "ipsec")
_KERNEL_MODES = ("af-packet", "afpacket")

# containers2024 Table 2, by the kernel's own names; those that name CPUs count whatever they name.
_PARAMETERS = (
    *("rcu_nocbs", "rcu_nocb_poll", "irqaffinity", "idle=poll", "tsc=reliable", "mce=ignore_ce"),
    *("audit=0", "nmi_watchdog=0", "skew_tick=1", "nosoftlockup", "nosmt"),
)
_NAMES_CPUS = ("rcu_nocbs", "irqaffinity")
_AT_RUN_TIME = {
    "nmi_watchdog=0": ("nmi-watchdog", ("0",)),
    "nosoftlockup": ("soft-watchdog", ("0",)),
    "nosmt": ("smt", ("off", "forceoff")),
}
ENOUGH_PARAMETERS = 6
"""Number of the eleven parameters of containers2024 Table 2 that makes a host optimised: more than
half.
"""

_DEVICE = "DuT"
_CACHE_KNOB, _OWN_PARTS = "cache-allocation", "own parts"


def networking(plan: PlanFields | AboutFields) -> str:
    """Return whether packets pass the kernel's network stack at the device.

    Of captures and imports it is unknown for devices that are none of ours.
    """
    in_kernel = (
        plan.dut in _IN_KERNEL
        or plan.dut_options.get("mode") in _KERNEL_MODES
        or plan.wire == "veth"
    )
    if in_kernel:
        return "kernel space"
    is_known = isinstance(plan, PlanFields) or plan.dut in (*SINGLE_THREAD, *SEVERAL_THREADS)
    return "user space" if is_known else "unknown networking"


def optimised(info: RunInfo) -> tuple[bool | None, str]:
    """Return whether host and kernel were set for latency; None if that is not known.

    They were if settings were made for the run (``--tune``), or if at least `ENOUGH_PARAMETERS` of
    containers2024 Table 2 were in force on the kernel that the device ran on. Which kernel that is
    does not matter: it is told apart by itself.
    """
    made = sum(each.refused is None for each in info.tuning or ())
    if made:
        return True, f"{made} settings made for the run"
    line, knobs = host_of(info).kernel_command_line, info.knobs or {}
    if technology(info) == "vm" and info.instrument is not None:
        line, knobs = None if info.platform is None else info.platform.parameters, {}
    if line is None:
        return None, "the kernel's command line was not recorded"
    parameters = sum(_in_force(each, line.split(), knobs) for each in _PARAMETERS)
    text = f"{parameters} of the {len(_PARAMETERS)} parameters of containers2024 Table 2"
    return parameters >= ENOUGH_PARAMETERS, text


def _in_force(parameter: str, words: list[str], knobs: Mapping[str, str | None]) -> bool:
    if parameter in _NAMES_CPUS:
        return any(word.partition("=")[0] == parameter for word in words)
    knob, values = _AT_RUN_TIME.get(parameter, ("", ()))
    return parameter in words or knobs.get(knob) in values


def device_cpus(info: RunInfo) -> frozenset[int]:
    """Return the CPUs that worked for the device; none if that was not recorded."""
    cpus = _polling(info)
    return _all_cpus(cpus[name] for name in (_DEVICE,) if name in cpus)


def pollers(info: RunInfo) -> frozenset[int]:
    """Return the CPUs that polled: the instrument's, and the device's."""
    return _all_cpus(_polling(info).values())


def _polling(info: RunInfo) -> Mapping[str, str]:
    return {} if info.instrument is None else info.instrument.cpus


def _all_cpus(lists: Iterable[str]) -> frozenset[int]:
    return frozenset(cpu for each in lists if each for cpu in parse_cpus(each))


def cache(info: RunInfo) -> tuple[str, str]:
    """Return whether the device shares its last-level cache with other CPUs."""
    if (label := about_of(info).cache) is not None:
        return label, "so its user says"
    if (info.knobs or {}).get(_CACHE_KNOB) == _OWN_PARTS:
        return "separated", "a part of it was allocated to the device"
    listed, own = host_of(info).last_level_caches, device_cpus(info)
    if listed is None or not own:
        return "unknown", "the machine's caches were not recorded"
    caches = [set(parse_cpus(each)) for each in listed.split(";")]
    others = set().union(*(each for each in caches if each & own)) - own
    if not others:
        return "separated", "no other CPU shares it"
    return "shared", f"CPU {cpu_list(others)} shares it with CPU {cpu_list(own)}"
