"""``tailscope host audit``: how each knob is, and how it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.cli.options import STANDARD, CpusToFree, JsonFile, write_json
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.host.audit import Audit

EXAMPLE = "tailscope host audit --cpus 1"


def command(cpus: CpusToFree, json_file: JsonFile = None) -> int:
    from tailscope.host.audit import audit, cpus_to_keep_free
    from tailscope.host.machine import Machine

    machine = Machine()
    audited = audit(machine, cpus_to_keep_free(machine, cpus))
    if json_file is not None:
        write_json(json_file, audited.record())
    if json_file != STANDARD:
        for line in audit_lines(audited):
            print(line)
    return 0


def audit_lines(audit: Audit) -> Iterator[str]:
    """Write an audit as a table, bad knobs first, each with the reason why."""
    from tailscope.host.audit import STATES

    rows = [
        (
            finding.state,
            finding.name,
            finding.as_is or "-",
            finding.should_be or "-",
            "" if state == "good" else finding.why,
        )
        for state in STATES[:-1]
        for finding in audit.findings
        if finding.state == state
    ]
    head = ("state", "knob", "as is", "should be", "why")
    yield from map(printable, _aligned([head, *rows]))
    spared = [each.name for each in audit.findings if each.state == STATES[-1]]
    if spared:
        yield f"not applicable: {', '.join(spared)}"
    yield from audit.remarks
    good, known = audit.count("good"), audit.count("good") + audit.count("bad")
    score = "-" if audit.score is None else f"{audit.score:.0%}"
    unknown = audit.count("unknown")
    more = f", {unknown} could not be read (root may)" if unknown else ""
    yield f"score {score}: {good} of {known} knobs are right for CPUs {audit.cpus}{more}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align columns to the left, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
