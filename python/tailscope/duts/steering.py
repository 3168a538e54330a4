"""Which CPUs handle what arrives at the links of a device of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError
from tailscope.host.cpus import cpu_list, parse_cpus
from tailscope.testbed.places import Here
from tailscope.testbed.rights import Capability, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.duts.dut import DutContext
    from tailscope.testbed.places import Place
    from tailscope.testbed.wires import Side

_LINK = "/sys/class/net/{}"
_SET = ("sh", "-c", 'printf %s "$1" > "$2"', "sh")
_POLLERS = ("sh", "-c", 'grep -ls "^napi/$1-" /proc/[0-9]*/comm || true', "sh")


def steer(context: DutContext) -> bool:
    """Have the device's CPUs handle what arrives; return True if threads of the kernel do.

    Over veth the sender's CPU would do it. To isolated CPUs, the kernel steers no packets.
    """
    cpus, place = context.working, context.place
    refused = [link for link in context.side.links if not _steered(place, link, cpus)]
    if refused and context.generator is not None:
        _join_packets(place, refused, context.generator)
    for link in refused:
        _poll(place, link, cpus)
    return bool(refused)


def _steered(place: Place, link: str, cpus: Sequence[int]) -> bool:
    """Steer the packets of a link; return False if the kernel refuses because of isolated CPUs."""
    mask = _mask(cpus)
    groups = [mask[max(0, end - 8) : end] for end in range(len(mask), 0, -8)]
    path = f"{_LINK.format(link)}/queues/rx-0/rps_cpus"
    try:
        place.run([*_SET, ",".join(reversed(groups)), path])
    except TestbedError:
        if isinstance(place, Here):
            needed = (Capability.DAC_OVERRIDE, Capability.NET_ADMIN)
            otherwise = "use a device of DPDK: --dut l2fwd"
            require(f"dut: CPUs of {link}", *needed, otherwise=otherwise, of_machine=True)
        isolated = place.run(["cat", "/sys/devices/system/cpu/isolated"]).strip()
        if isolated and set(cpus) <= set(parse_cpus(isolated)):
            return False
        raise
    return True


def _join_packets(place: Place, links: Sequence[str], generator: Side) -> None:
    """Have links of veth join packets, so that they take them by polling.

    They do so only from links that divide no packets themselves.
    """
    sender = Here(place.folder, generator.command)
    for link in generator.links:
        sender.run(["ethtool", "-K", link, "tso", "off"])
    for link in links:
        place.run(["ethtool", "-K", link, "gro", "on"])


def _poll(place: Place, link: str, cpus: Sequence[int]) -> None:
    """Have threads of the kernel poll a link, and keep them on CPUs."""
    # In a container, threads of the kernel cannot be seen.
    machine = Here(place.folder) if isinstance(place, Here) else place
    before = _pollers(machine, link)
    try:
        place.run([*_SET, "1", f"{_LINK.format(link)}/threaded"])
    except TestbedError as error:
        raise _refusal(cpus, str(error)) from None
    found = _pollers(machine, link)
    if not found:
        raise _refusal(cpus, f"no thread polls {link}")
    # Links in other namespaces may have the same name; those of a card keep their threads.
    for thread in found - before or found:
        machine.run(["taskset", "-p", _mask(cpus), thread])


def _pollers(machine: Place, link: str) -> set[str]:
    return {path.split("/")[2] for path in machine.run([*_POLLERS, link]).split()}


def _mask(cpus: Sequence[int]) -> str:
    return f"{sum(1 << cpu for cpu in cpus):x}"


def _refusal(cpus: Sequence[int], why: str) -> TestbedError:
    return TestbedError(
        f"dut: the kernel takes no packets of a link on isolated CPUs ({cpu_list(cpus)}): {why}",
        code="isolated-cpus",
        remedy="give it another CPU (--cpus dut=N), or use a device of DPDK: --dut l2fwd",
    )
