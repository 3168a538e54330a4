"""The command that measures or analyses a run once more."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tailscope.plan.field import fields_of
from tailscope.plan.fields import AnalysisFields, PairFields, PlanFields
from tailscope.store import layout
from tailscope.store.about import words_of
from tailscope.store.info import about_of
from tailscope.store.records.plan import AnalysisPlan, ImportPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msgspec import Struct

    from tailscope.store.records.plan import MeasurementPlan
    from tailscope.store.records.run import RunInfo


def command_of(info: RunInfo) -> str | None:
    """The command, for a shell; None where nothing repeats it.

    All options are spelled out: defaults may change. A laboratory is named by a file alone, a log
    of a clock is not kept, and neither are packets that were matched while they came.
    """
    if info.hosts is not None or layout.CLOCK_DOUBTS in info.files:
        return None
    plan = info.plan
    if isinstance(plan, AnalysisPlan):
        if not info.inputs:
            return None  # Nobody kept the packets.
        words = ["tailscope", "analyze", plan.pre, plan.post, *_options(plan, PairFields)]
        return shlex.join([*words, *_described(info)])
    if isinstance(plan, ImportPlan):
        file = next(iter(info.inputs.values())).file
        return shlex.join(
            ["tailscope", "runs", "import", file, "--unit", plan.unit, *_described(info)]
        )
    return shlex.join(["tailscope", "run", *_options(plan, PlanFields, without=AnalysisFields)])


def _described(info: RunInfo) -> Iterator[str]:
    """Labels, and a directory for the run that they describe."""
    words = [*words_of(about_of(info))]
    if words or isinstance(info.plan, ImportPlan):
        yield from (*words, "--out", "repeated")


def _options(
    plan: AnalysisPlan | MeasurementPlan, struct: type[Struct], without: type[Struct] | None = None
) -> Iterator[str]:
    left_out = {} if without is None else fields_of(without)
    for name, declared in fields_of(struct).items():
        if declared.on and name not in left_out:
            value = getattr(plan, name)
            if value is None and declared.otherwise is not None:
                value = getattr(plan, declared.otherwise)
            yield from declared.words(value)
