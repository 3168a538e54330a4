"""The boots of the device's machine that an experiment needs."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tailscope.exceptions import OtherKernelError, TailscopeError, UsageError
from tailscope.host.boot_line import boot_line, expanded
from tailscope.units import positive_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tailscope.experiment.campaign.campaign import Campaign
    from tailscope.experiment.campaign.cell import Cell
    from tailscope.experiment.campaign.spec import Document
    from tailscope.experiment.plan import RunPlan
    from tailscope.extra.laboratory.boot.booting import Rebooter
    from tailscope.extra.laboratory.hosts import Boot, Dut
    from tailscope.host.boot_line import Booted, BootLine


def boot_lines(cells: Sequence[Cell], dut: Dut, document: Document) -> dict[str, BootLine]:
    """Return the kernel and parameters of the device's machine for each cell, by its name."""
    where = ["hosts", "dut"]
    if dut.ssh is None:
        raise document.error(
            [*where, "boot"],
            "expected ssh beside it: tailscope cannot reboot its own machine",
            code="boot-without-ssh",
        )
    lines = {}
    for cell in cells:
        try:
            lines[cell.name] = _line_of(cell.plan, dut)
        except _LacksError as lacks:
            text = f"{lacks} (cell {cell.name})"
            raise document.error([*where, *lacks.field], text, code="boot-lacks-field") from None
        except UsageError as error:
            text = f"{document.path}: cell {cell.name}: {error}"
            raise UsageError(text, code=error.code) from None
    return lines


class _LacksError(Exception):
    """The lack of a field that a cell needs."""

    def __init__(self, field: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.field = field


def _line_of(plan: RunPlan, dut: Dut) -> BootLine:
    # A guest has its own kernel, so its host boots as usual, unless it is to be like its guest.
    asks = plan.platform != "vm" or plan.platform_options.get("host") == "same"
    kernel = plan.kernel if asks else None
    parameters = expanded(kernel, plan.boot) if asks else ""
    if "{cpus}" in parameters:
        if dut.cpus is None:
            raise _LacksError(["cpus"], "it is missing: boot parameters have {cpus} in them")
        parameters = parameters.replace("{cpus}", str(dut.cpus))
    assert dut.boot is not None, "there are no boots without the block"
    return boot_line(kernel, _release(dut.boot, kernel, parameters), parameters)


def _release(boot: Boot, kernel: str | None, parameters: str) -> str | None:
    """Return the release of a kernel."""
    if kernel is None and not parameters:
        return None
    name = kernel or "default"
    release = boot.kernels.get(name) or boot.kernels.get(name.replace("nohz", "vanilla"))
    if release is None and boot.how != "command":
        raise _LacksError(
            ["boot", "kernels"],
            f"no {name} in it: expected the release of that kernel, such as {name}: 6.1.0-13-amd64",
        )
    return release


def grouped(
    cells: Sequence[Cell], lines: Mapping[str, BootLine], first: BootLine | None = None
) -> list[Cell]:
    """Sort cells for the fewest boots, and keep their order otherwise."""
    order = list(dict.fromkeys(lines[cell.name] for cell in cells))
    if first in order:
        order = [first, *(line for line in order if line != first)]
    return sorted(cells, key=lambda cell: order.index(lines[cell.name]))


def runs_of(
    cells: Sequence[Cell], lines: Mapping[str, BootLine]
) -> list[tuple[BootLine, list[Cell]]]:
    """Return the boots that cells need in their order, each with its cells."""
    return [(line, list(run)) for line, run in groupby(cells, lambda cell: lines[cell.name])]


class Boots:
    """The boots of a campaign."""

    def __init__(
        self,
        dut: Dut,
        lines: Mapping[str, BootLine],
        campaign: Campaign,
        say: Callable[[str], None],
        show: Callable[[str], None],
    ) -> None:
        self._lines, self._campaign, self._say = lines, campaign, say
        self._rebooter = _rebooter(dut, say, show)
        self._failed: dict[BootLine, TailscopeError] = {}
        self._is_settled = False

    def sorted(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return cells sorted by their boots, those first that need none."""
        if not cells:
            return []
        running = self._running()
        wanted = dict.fromkeys(self._lines[cell.name] for cell in cells)
        first = next((line for line in wanted if not running.lacks(line)), None)
        return grouped(cells, self._lines, first)

    def boot_for(self, cell: Cell) -> None:
        """Boot the machine for a cell, unless it already runs the right kernel."""
        wanted = self._lines[cell.name]
        running = self._running()
        if not self._is_settled:
            self._rebooter.settle()
            self._is_settled = True
        if not running.lacks(wanted):
            return
        if wanted in self._failed:
            error = self._failed[wanted]
            raise OtherKernelError(str(error), code=error.code, hint=error.hint)
        self._campaign.begin_boot(wanted)
        try:
            self._rebooter.boot(wanted, running)
        except TailscopeError as error:
            self._failed[wanted] = error
            raise error.retold(str(error), OtherKernelError) from None
        self._campaign.end_boot()
        self._say(f"booted {wanted}")

    def _running(self) -> Booted:
        """Ask for the running kernel; a boot that an earlier process began may go on."""
        boots = self._campaign.boots
        if boots and boots[-1].lasted_s is None and not self._is_settled:
            return self._rebooter.awaited()
        return self._rebooter.running()


def _rebooter(dut: Dut, say: Callable[[str], None], show: Callable[[str], None]) -> Rebooter:
    from tailscope.extra.laboratory.boot.boot_loaders import BOOT_LOADERS
    from tailscope.extra.laboratory.boot.booting import Rebooter
    from tailscope.extra.laboratory.remote import SshMachine

    boot = dut.boot
    assert boot is not None and dut.ssh is not None, "checked with the lines"
    loader = BOOT_LOADERS.get(boot.how)
    return Rebooter(
        SshMachine("dut", dut.ssh, dut.port),
        None if loader is None else loader(),
        boot.command,
        wait_s=positive_duration_ns(boot.wait, "wait") / 1e9,
        power_cycle=boot.power_cycle,
        say=say,
        show=show,
    )
