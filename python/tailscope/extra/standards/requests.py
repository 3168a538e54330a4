"""Parts that ``search`` and ``search standard`` share: options, plans, kept results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from tailscope.cli.fields import option_of
from tailscope.cli.options import option, refuse_idle_options, without_format, write_json
from tailscope.cli.panels import MEASUREMENT, OUTPUT
from tailscope.duts.dataplane import LOOP
from tailscope.exceptions import RunExistsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Struct

    from tailscope.experiment.plan import RunPlan

SET_UP = ("device", "platform", "wire", "cores", "tuning")
"""Lines of a plan that a dry run shows; the traffic is that of each trial."""

WarmUp: TypeAlias = Annotated[
    str,
    option_of(
        "warm_up", "Warm-up before each trial, at its rate.", own_default=True, panel=MEASUREMENT
    ),
]
Width: TypeAlias = Annotated[
    float, option("--width", "RATIO", "Width of the result, relative to the rate.", MEASUREMENT)
]
OutFolder: TypeAlias = Annotated[
    Path | None, option("--out -o", "DIR", "Folder for the results.", OUTPUT)
]


def trial_plan(fields: Mapping[str, object], **own: object) -> RunPlan:
    """Plan a trial, in which there must be a device."""
    from tailscope.experiment.fields import plan_of

    refuse_idle_options(fields)
    plan = plan_of({**fields, **own})
    if plan.dut == LOOP:
        raise UsageError(f"--dut: got {plan.dut!r}, expected a device", code="dut-loop")
    return plan


def refuse_results(out: Path | None, name: str) -> None:
    """Refuse a folder that has results of this name."""
    if out is not None and (out / name).exists():
        raise RunExistsError(f"{out}: already contains a {name}", hint="choose another --out")


def keep(record: Struct, json_file: str | None, out: Path | None, pages: Mapping[str, str]) -> None:
    """Write the results as ``--json`` and ``--out`` ask for them."""
    from tailscope.store.atomic import write_text

    if json_file is not None:
        write_json(json_file, without_format(record))
    if out is not None:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in pages.items():
            write_text(out / name, text)
