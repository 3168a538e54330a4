"""Reports of the programs that discipline a machine's clock: chrony and linuxptp."""

from __future__ import annotations

import math
import re
import subprocess
from typing import TYPE_CHECKING

from tailscope.store.records.clocks import ClockReport
from tailscope.testbed.programs import search_path, which

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_S = 3.0
_MOST_CHARACTERS = 2000
_CHRONYC = ("chronyc", "-n", "-c", "tracking")
_CHRONYC_FIELDS = 14
_STRATUM, _OFFSET, _DELAY, _DISPERSION, _LEAP = 2, 4, 10, 11, 13
_PMC = ("pmc", "-u", "-b", "0", "GET TIME_STATUS_NP")
_MASTER_OFFSET = re.compile(r"^\s*master_offset\s+(-?\d{1,18})\s*$", re.MULTILINE)
_PRESENT = re.compile(r"^\s*gmPresent\s+(\w+)\s*$", re.MULTILINE)


def clock_reports() -> list[ClockReport]:
    """Return the reports of the programs that run and answer."""
    programs: tuple[tuple[tuple[str, ...], Callable[[str], ClockReport | None]], ...] = (
        (_CHRONYC, parse_chronyc),
        (_PMC, parse_pmc),
    )
    reports = []
    for command, parse in programs:
        output = _output(command)
        report = None if output is None else parse(output)
        if report is not None:
            reports.append(report)
    return reports


def parse_chronyc(output: str) -> ClockReport | None:
    """Read ``chronyc -c tracking``; None if chrony follows no source.

    The error is the bound of chrony's documentation: the sum of the offset, the root dispersion and
    half of the root delay. The name of the source is left out.
    """
    fields = output.strip().split(",")
    if len(fields) != _CHRONYC_FIELDS or fields[_LEAP] == "Not synchronised":
        return None
    try:
        offset_s, delay_s, dispersion_s = (
            float(fields[at]) for at in (_OFFSET, _DELAY, _DISPERSION)
        )
    except ValueError:
        return None
    bound_s = abs(offset_s) + dispersion_s + delay_s / 2
    if not (math.isfinite(bound_s) and bound_s >= 0):
        return None
    return ClockReport(
        program="chronyc",
        offset_ns=round(offset_s * 1e9),
        error_ns=math.ceil(bound_s * 1e9),
        said=",".join(fields[_STRATUM:])[:_MOST_CHARACTERS],
    )


def parse_pmc(output: str) -> ClockReport | None:
    """Read ``pmc 'GET TIME_STATUS_NP'`` of linuxptp; None if ``ptp4l`` does not answer."""
    offset, present = _MASTER_OFFSET.search(output), _PRESENT.search(output)
    if offset is None or present is None:
        return None
    followed = present[1] == "true"
    return ClockReport(
        program="pmc",
        offset_ns=int(offset[1]) if followed else None,
        said=f"master_offset {offset[1]}, gmPresent {present[1]}",
    )


def _output(command: tuple[str, ...]) -> str | None:
    program = which(command[0])
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603
            [str(program), *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
            env={"PATH": search_path(), "LC_ALL": "C.UTF-8"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
