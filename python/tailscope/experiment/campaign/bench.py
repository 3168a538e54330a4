"""The place where an experiment's cells are measured: here, unless its file says where."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import OtherKernelError, TailscopeError
from tailscope.experiment.notice import load_notice, rate_notice
from tailscope.registry import bench_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.experiment.campaign.campaign import Campaign
    from tailscope.experiment.campaign.cell import Cell
    from tailscope.experiment.campaign.spec import Document, Experiment
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.instance import Progress
    from tailscope.experiment.run.measured import Measured
    from tailscope.store.directory import Draw
    from tailscope.testbed.clean import Leftover


class MeasuredCell(NamedTuple):
    """The outcome of a cell."""

    runs: Sequence[Measured]
    warnings: Sequence[str] = ()
    """Things that the machines lack; the same in every cell."""
    doubts: Sequence[str] = ()
    """Results of this cell that are not usable."""


class Bench:
    """Measures on this machine; other benches say what is different on theirs."""

    starts_s = 0.0
    """Additional time that a cell takes to begin, in seconds."""
    boots = False
    """True if machines are booted between cells, which takes longer than can be told."""

    def added_fields(self, _fields: Mapping[str, object], _document: Document) -> dict[str, object]:
        """Return the fields of a cell that follow from the bench."""
        return {}

    def check_plan(self, plan: RunPlan) -> None:
        """Refuse a plan that cannot be carried out here, whatever machines there are."""

    def check(self, plan: RunPlan, document: Document) -> None:
        """Refuse machines that are not described as a plan needs them."""

    def check_packages(self) -> None:
        """Refuse to measure without a Python package that the bench needs."""

    def prepare(self, cells: Sequence[Cell], document: Document) -> None:
        """Take notice of all cells, before any is chosen."""

    def arranged(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return cells in the order in which they are best measured."""
        return [*cells]

    def lacking(self, plan: RunPlan) -> list[str]:
        """List what a plan needs and this machine lacks, with what to do about it."""
        return plan.missing()

    def described(self, _cells: Sequence[Cell]) -> Iterator[tuple[str, str]]:
        """Say what a dry run tells of the bench: titles, and lines."""
        return iter(())

    def content(self, _cells: Sequence[Cell]) -> dict[str, object]:
        """Return what ``--dry-run --json`` tells of the bench."""
        return {}

    def clean(self) -> Iterator[Leftover]:
        """Remove what an earlier try left behind."""
        from tailscope.testbed.clean import clean

        yield from clean()

    def look(self, left: Sequence[Cell]) -> list[str]:
        """Look at the bench before anything is started; return what to say of it.

        It is refused if nothing that is left can run on the kernel that runs.
        """
        if not left:
            return []
        _refuse_other_kernel(left)
        rates = dict.fromkeys(filter(None, (rate_notice(cell.plan) for cell in left)))
        load = load_notice(left[0].plan)
        return [*rates, *([load] if load else [])]

    def begin(
        self,
        _campaign: Campaign,
        left: list[Cell],
        _say: Callable[[str], None],
        _show: Callable[[str], None],
    ) -> list[Cell]:
        """Make ready for the cells that are left, and return them in their order."""
        return left

    def measure(
        self, cell: Cell, out: Path, draw: Draw, progress: Progress, ending: Callable[[], None]
    ) -> MeasuredCell:
        """Carry out the plan of a cell."""
        from tailscope.experiment.run.execute import execute
        from tailscope.words.neighbours import unusable_text

        cores = cell.plan.cores()
        runs = execute(cell.plan, cores, out=out, draw=draw, progress=progress, ending=ending)
        doubts = [text for each in runs if (text := unusable_text(each.info))]
        return MeasuredCell(runs, doubts=doubts)


def bench_of(experiment: Experiment) -> Bench:
    """Make the bench that an experiment asks for."""
    made = (bench_for(name)(section) for name, section in experiment.sections.items())
    return next(made, Bench())


def _refuse_other_kernel(left: Sequence[Cell]) -> None:
    reasons = []
    for cell in left:
        try:
            cell.plan.device.make_platform().check()
        except OtherKernelError as error:
            reasons.append(error)
        except TailscopeError:
            return
        else:
            return
    if reasons:
        raise reasons[0]
