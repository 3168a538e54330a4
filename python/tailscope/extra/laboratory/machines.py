"""Checks of an experiment's machines before any of them is reached."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tailscope.duts.dataplane import LOOP
from tailscope.exceptions import UsageError
from tailscope.experiment.plan import failures
from tailscope.host.cpus import cpu_list, cpus_by_role, parse_cpus
from tailscope.plan.fields import STAGES
from tailscope.testbed.cores import pick_cores, read_topology
from tailscope.testbed.wires import are_links, check_cards
from tailscope.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tailscope.experiment.campaign.spec import Document
    from tailscope.experiment.plan import RunPlan
    from tailscope.extra.laboratory.hosts import Host, Hosts
    from tailscope.extra.laboratory.protocol import Role
    from tailscope.host.boot_line import BootLine

_POLLING: dict[Role, str] = {"dut": "dut", "loadgen": "generator"}
"""Names of the roles in ``--cpus``."""


def by_role(hosts: Hosts) -> dict[Role, Host]:
    """Return the machines in the order of their start."""
    return {"dut": hosts.dut, "timestamper": hosts.timestamper, "loadgen": hosts.loadgen}


def cables(hosts: Hosts, fields: Mapping[str, Any], document: Document) -> dict[str, object]:
    """Return the fields for the wire of a laboratory: cables between cards."""
    for name in ("wire", "wire_options"):
        if name in fields:
            raise document.error(
                ["hosts"], f"hosts have cards: remove {name}", code="wire-of-hosts"
            )
    alone = {
        "several instances": fields.get("instances", 1) > 1,
        "dut: loop": fields.get("dut") == LOOP,
        "direction: both": fields.get("direction") == "both",
        "replay": fields.get("replay") is not None,
        "stages": fields.get("stages", STAGES[0]) != STAGES[0],
    }
    for what, is_wanted in alone.items():
        if is_wanted:
            text = f"{what} requires a single machine: remove hosts"
            raise document.error(["hosts"], text, code="single-machine")
    named = {"generator": hosts.loadgen.cards, "dut": hosts.dut.cards}
    return {"wire": "pci", "wire_options": {role: "+".join(own) for role, own in named.items()}}


def check_hosts(hosts: Hosts, plan: RunPlan, document: Document) -> None:
    """Check that the machines are described as a run needs them."""
    for role, host in by_role(hosts).items():
        if host.cpus is not None:
            where = ["hosts", role, "cpus"]
            try:
                given = set(parse_cpus(str(host.cpus)))
            except UsageError as error:
                raise document.error(where, str(error), code=error.code) from None
            needed = plan.device.make_dut().cpus if role == "dut" else 1
            if len(given) < needed and _planned_cpus(role, plan) is None:
                polling = f"{counted(needed, 'CPU')}: {plan.dut} polls on as many"
                text = f"got {host.cpus!r}, expected {polling}"
                raise document.error(where, text, code="too-few-cpus")
    dut = hosts.dut
    driver = dut.functions(plan.platform)
    has_links = driver == "kernel" or (driver is None and are_links(dut.cards))
    if plan.platform == "vm" and has_links:
        got = "vfs: kernel" if driver == "kernel" else " and ".join(dut.cards)
        raise document.error(
            ["hosts", "dut", "cards"],
            f"got links ({got}), expected PCI addresses, or vfs: vfio-pci beside it: a guest"
            " (platform: vm) is given cards",
            code="links-for-a-guest",
        )


def check_plan(plan: RunPlan) -> None:
    """Check that several machines can carry out a run, whichever they are."""
    if plan.device.make_dut().ports == 1:
        raise UsageError(
            "--dut-option: got one port, expected two with hosts: packets come by one card and"
            " leave by the other",
            code="single-port",
        )
    if plan.cpus is not None and "" in cpus_by_role(plan.cpus, "--cpus"):
        raise UsageError(
            f"--cpus: got {plan.cpus!r}, expected CPUs by role with hosts, such as"
            " generator=2,dut=4-5",
            code="cpus-without-roles",
        )


def cpus_of(role: Role, plan: RunPlan, host: Host) -> str | None:
    """Return the CPUs on which a machine polls; None leaves the choice to it."""
    planned = _planned_cpus(role, plan)
    return str(host.cpus) if planned is None and host.cpus is not None else planned


def lacking(hosts: Hosts, plan: RunPlan) -> list[str]:
    """List what this machine lacks for its own roles, with hints.

    Other machines are checked when they are reached, before anything starts there.
    """
    topology = read_topology()
    checks: list[Callable[[], object]] = []
    for role, host in by_role(hosts).items():
        if host.ssh is not None:
            continue
        if role != "dut" or hosts.dut.vfs is None:
            checks.append(partial(check_cards, role, host.cards))
        polling = [_POLLING.get(role, role)] * (plan.device.make_dut().cpus if role == "dut" else 1)
        checks.append(partial(pick_cores, topology, polling, cpus_of(role, plan, host)))
        if role == "dut":
            checks += [plan.device.make_platform().check, plan.device.make_dut().check]
            checks += plan.recording_checks().values()
    return failures(checks)


def not_known_yet(
    hosts: Hosts, plans: Sequence[RunPlan], lines: Mapping[str, BootLine] | None
) -> list[str]:
    """List the questions about other machines that are open until they are reached."""
    questions: list[str] = []
    for role, host in by_role(hosts).items():
        if host.ssh is None:
            continue
        cpus = [(cpus_of(role, plan, host) or "any").rpartition("=")[2] for plan in plans]
        has = [f"the cards {' and '.join(host.cards)}"]
        has += [f"CPU {cpu}" for cpu in cpus if cpu != "any"]
        if role == "dut":
            has += [f"the kernel {line.release}" for line in (lines or {}).values() if line.release]
        questions += [f"whether {host.ssh} has {part}" for part in has]
    if hosts.dut.ssh is not None:
        for plan in plans:
            asks = plan.platform != "vm" and lines is None
            kernel = f"runs the kernel {plan.kernel}" if asks and plan.kernel else ""
            boot = f"was booted with {plan.boot}" if asks and plan.boot else ""
            can = [f"can do {part}" for part in (f"dut: {plan.dut}", *plan.recording_checks())]
            properties = filter(None, (kernel, boot, *can))
            questions += [f"whether {hosts.dut.ssh} {text}" for text in properties]
    return list(dict.fromkeys(questions))


def _planned_cpus(role: Role, plan: RunPlan) -> str | None:
    """Return the CPUs that the plan gives a machine by its role; None without any."""
    roles = {} if plan.cpus is None else cpus_by_role(plan.cpus, "--cpus")
    name = _POLLING.get(role, "")
    return f"{name}={cpu_list(roles[name]) or 'any'}" if name in roles else None
