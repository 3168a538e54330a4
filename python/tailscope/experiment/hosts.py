"""What an experiment says of its machines, seen to before any of them is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailscope.duts.dataplane import LOOP
from tailscope.exceptions import UsageError
from tailscope.host.cpus import cpu_list, cpus_by_role, parse_cpus
from tailscope.testbed.wires import are_links
from tailscope.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.spec import Document, Host, Hosts
    from tailscope.testbed.protocol import Role

__all__ = ["by_role", "cables", "check_hosts", "check_roles", "cpus_of"]

_POLLING: dict[Role, str] = {"dut": "dut", "loadgen": "generator"}
"""What CPUs are called that the machines poll on."""


def by_role(hosts: Hosts) -> dict[Role, Host]:
    """The machines, in the order in which they are started."""
    return {"dut": hosts.dut, "timestamper": hosts.timestamper, "loadgen": hosts.loadgen}


def cables(hosts: Hosts, fields: Mapping[str, Any], document: Document) -> dict[str, Any]:
    """The wire of a laboratory: cables between cards.

    Parameters
    ----------
    hosts : Hosts
    fields : Mapping
        Those of a run.
    document : Document
        The experiment, for errors.

    Raises
    ------
    UsageError
        If a run with these fields requires a single machine.
    """
    for name in ("wire", "wire_options"):
        if name in fields:
            raise document.error(["hosts"], f"hosts have cards: remove {name}")
    alone = {
        "several instances": fields.get("instances", 1) > 1,
        "dut: loop": fields.get("dut") == LOOP,
        "direction: both": fields.get("direction") == "both",
        "replay": fields.get("replay") is not None,
    }
    for what, is_wanted in alone.items():
        if is_wanted:
            raise document.error(["hosts"], f"{what} requires a single machine: remove hosts")
    named = {"generator": hosts.loadgen.cards, "dut": hosts.dut.cards}
    return {"wire": "pci", "wire_options": {role: "+".join(own) for role, own in named.items()}}


def check_hosts(hosts: Hosts, plan: RunPlan, document: Document) -> None:
    """See whether machines are described as a run needs them.

    Parameters
    ----------
    hosts : Hosts
    plan : RunPlan
    document : Document
        The experiment, for errors.

    Raises
    ------
    UsageError
        If they are not: with file, line and field.
    """
    for role, host in by_role(hosts).items():
        if host.cpus is not None:
            where = ["hosts", role, "cpus"]
            try:
                given = set(parse_cpus(str(host.cpus)))
            except UsageError as error:
                raise document.error(where, str(error)) from None
            needed = plan.make_dut().cpus if role == "dut" else 1
            if len(given) < needed and _planned_cpus(role, plan) is None:
                polling = f"{counted(needed, 'CPU')}: {plan.dut} polls on as many"
                raise document.error(where, f"got {host.cpus!r}, expected {polling}")
    dut = hosts.dut
    has_links = dut.vfs == "kernel" or (dut.vfs is None and are_links(dut.cards))
    if plan.platform == "vm" and has_links:
        got = "vfs: kernel" if dut.vfs == "kernel" else " and ".join(dut.cards)
        raise document.error(
            ["hosts", "dut", "cards"],
            f"got links ({got}), expected PCI addresses, or vfs: vfio-pci beside it: a guest"
            " (platform: vm) is given cards",
        )


def check_roles(plan: RunPlan) -> None:
    """See whether CPUs are given by role: several machines have no common list.

    Raises
    ------
    UsageError
        If they are not.
    """
    if plan.cpus is not None and "" in cpus_by_role(plan.cpus, "--cpus"):
        raise UsageError(
            f"--cpus: got {plan.cpus!r}, expected CPUs by role with hosts, such as"
            " generator=2,dut=4-5"
        )


def cpus_of(role: Role, plan: RunPlan, host: Host) -> str | None:
    """The CPUs that a machine is to poll on; None leaves the choice to it."""
    planned = _planned_cpus(role, plan)
    return str(host.cpus) if planned is None and host.cpus is not None else planned


def _planned_cpus(role: Role, plan: RunPlan) -> str | None:
    """The CPUs that the plan gives a machine by its role."""
    roles = {} if plan.cpus is None else cpus_by_role(plan.cpus, "--cpus")
    name = _POLLING.get(role, "")
    return f"{name}={cpu_list(roles[name]) or 'any'}" if name in roles else None
