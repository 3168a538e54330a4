"""A laboratory as the bench of an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.experiment.campaign.bench import Bench, MeasuredCell
from tailscope.extra.laboratory import machines
from tailscope.extra.laboratory.boot.boots import Boots, boot_lines, grouped, runs_of
from tailscope.registry import require
from tailscope.units import long_text, positive_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.experiment.campaign.campaign import Campaign
    from tailscope.experiment.campaign.cell import Cell
    from tailscope.experiment.campaign.spec import Document
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.instance import Progress
    from tailscope.extra.laboratory.hosts import Hosts
    from tailscope.host.boot_line import BootLine
    from tailscope.store.directory import Draw
    from tailscope.testbed.clean import Leftover

_REACHED_S = 4.0
"""Time to connect to the machines by ssh, in seconds."""


class Laboratory(Bench):
    """A bench of up to three machines, of which the device's may be rebooted between cells."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._lines: dict[str, BootLine] | None = None
        self._boots: Boots | None = None
        self.starts_s = (
            _REACHED_S if any(host.ssh for host in machines.by_role(hosts).values()) else 0.0
        )

    def added_fields(self, fields: Mapping[str, object], document: Document) -> dict[str, object]:
        """Return the wire: cables between cards."""
        return machines.cables(self._hosts, fields, document)

    def check_plan(self, plan: RunPlan) -> None:
        """Check that several machines can carry out a plan."""
        machines.check_plan(plan)

    def check(self, plan: RunPlan, document: Document) -> None:
        """Check that the machines are described as a plan needs them."""
        machines.check_hosts(self._hosts, plan, document)

    def check_packages(self) -> None:
        """Check that ssh can be spoken, if a machine is to be reached by it."""
        if any(host.ssh for host in machines.by_role(self._hosts).values()):
            require("lab")

    def prepare(self, cells: Sequence[Cell], document: Document) -> None:
        """Determine the boots that the cells need."""
        if self._hosts.dut.boot is not None:
            self._lines = boot_lines(cells, self._hosts.dut, document)
            self.boots = True

    def arranged(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return cells in an order that needs few boots."""
        return [*cells] if self._lines is None else grouped(cells, self._lines)

    def lacking(self, plan: RunPlan) -> list[str]:
        """List what this machine lacks for its own roles."""
        return machines.lacking(self._hosts, plan)

    def described(self, cells: Sequence[Cell]) -> Iterator[tuple[str, str]]:
        """Describe the boots, and what is not known of the machines yet."""
        if self._lines is not None:
            yield from _described_boots(runs_of(cells, self._lines), self._hosts)
        plans = [cell.plan for cell in cells]
        for question in machines.not_known_yet(self._hosts, plans, self._lines):
            yield "not known yet", question

    def content(self, cells: Sequence[Cell]) -> dict[str, object]:
        """Return the boots."""
        if self._lines is None:
            return {}
        boots = [
            {
                "kernel": line.kernel,
                "release": line.release,
                "parameters": " ".join(line.parameters),
                "cells": [cell.name for cell in run],
            }
            for line, run in runs_of(cells, self._lines)
        ]
        return {"boots": boots}

    def clean(self) -> Iterator[Leftover]:
        """Remove what an earlier try left behind on all machines."""
        from tailscope.extra.laboratory.control import clean_hosts

        yield from super().clean()
        yield from clean_hosts(self._hosts)

    def look(self, _left: Sequence[Cell]) -> list[str]:
        """Return nothing: agents check their machines themselves."""
        return []

    def begin(
        self,
        campaign: Campaign,
        left: list[Cell],
        say: Callable[[str], None],
        show: Callable[[str], None],
    ) -> list[Cell]:
        """Return the cells with those first that need no boot."""
        if self._lines is None:
            return left
        self._boots = Boots(self._hosts.dut, self._lines, campaign, say, show)
        return self._boots.sorted(left)

    def measure(
        self, cell: Cell, out: Path, draw: Draw, progress: Progress, ending: Callable[[], None]
    ) -> MeasuredCell:
        """Boot the device's machine if necessary, and carry out the plan of a cell."""
        from tailscope.extra.laboratory.control import execute_in_lab

        if self._boots is not None:
            self._boots.boot_for(cell)
        run = execute_in_lab(
            cell.plan, self._hosts, out=out, draw=draw, progress=progress, ending=ending
        )
        return MeasuredCell([run], run.info.warnings)


def _described_boots(
    boots: Sequence[tuple[BootLine, Sequence[Cell]]], hosts: Hosts
) -> Iterator[tuple[str, str]]:
    boot = hosts.dut.boot
    assert boot is not None, "it is booted"
    most_s = positive_duration_ns(boot.wait, "wait") / 1e9
    yield (
        "boots",
        f"{len(boots)} of the DuT's machine, one less if it runs one of them;"
        f" up to {long_text(most_s)} each (boot.wait)",
    )
    for number, (line, run) in enumerate(boots, 1):
        many = "1 cell" if len(run) == 1 else f"{len(run)} cells"
        yield f"{number:>14}.", f"{line}: {many}"
