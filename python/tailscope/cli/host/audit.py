"""``tailscope host audit``: how each knob is, and how it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.cli.options import STANDARD, CpusToFree, JsonFile, write_json
from tailscope.cli.table import print_table
from tailscope.cli.terminal import say
from tailscope.registry import offered

if TYPE_CHECKING:
    from tailscope.host.audit import Audit

EXAMPLE = "tailscope host audit --cpus 1"

_HEADER = ("state", "knob", "as is", "should be", "why")


def command(cpus: CpusToFree, json_file: JsonFile = None) -> int:
    from tailscope.host.audit import audit, cpus_to_keep_free
    from tailscope.host.knobs.catalogue import KNOBS
    from tailscope.host.machine import Machine

    machine = Machine()
    knobs = [*KNOBS, *(knob for added in offered("reported-knobs") for knob in added)]
    audited = audit(machine, cpus_to_keep_free(machine, cpus), knobs)
    write_json(json_file, audited.record())
    if json_file != STANDARD:
        print_audit(audited)
    return 0


def print_audit(audit: Audit) -> None:
    """Print an audit as a table, bad knobs first, each with the reason why."""
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
    print_table(_HEADER, [rows], left=len(_HEADER))
    spared = [each.name for each in audit.findings if each.state == STATES[-1]]
    if spared:
        say(f"not applicable: {', '.join(spared)}")
    for remark in audit.remarks:
        say(remark)
    good, known = audit.count("good"), audit.count("good") + audit.count("bad")
    score = "-" if audit.score is None else f"{audit.score:.0%}"
    unknown = audit.count("unknown")
    more = f", {unknown} could not be read (root may)" if unknown else ""
    say(f"score {score}: {good} of {known} knobs are right for CPUs {audit.cpus}{more}")
