"""Audit of a machine's settings against the recommended ones: read only, without privilege."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError
from tailscope.host.cpus import cpu_list, parse_cpus
from tailscope.host.knobs.catalogue import KNOBS
from tailscope.host.knobs.knob import online, others

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope.host.knobs.knob import Cpus, Knob
    from tailscope.host.machine import Machine

STATES = ("bad", "unknown", "good", "not applicable")
"""States of a knob, worst first."""


@dataclass(frozen=True)
class KnobFinding:
    """The audit's finding for one knob."""

    name: str
    title: str
    state: str
    """One of `STATES`."""
    as_is: str | None
    should_be: str | None
    """Current and recommended value; None if the knob cannot be read or does not apply."""
    why: str
    source: str
    cost: str
    risk: str
    kind: str
    """Kind of the knob: ``boot``, ``runtime``, ``held`` or ``report``."""
    permanent: list[str]
    """Settings that outlive a reboot."""
    evidence: list[str]
    """Files that were read, each with its text."""


@dataclass(frozen=True)
class Audit:
    """The findings for all knobs."""

    cpus: str
    """CPUs to keep free, as a list such as ``1,3-5``."""
    findings: list[KnobFinding]
    remarks: list[str]
    """Remarks that apply to all findings."""

    def count(self, state: str) -> int:
        """Count the knobs in a state."""
        return sum(finding.state == state for finding in self.findings)

    @property
    def score(self) -> float | None:
        """Return the share of good knobs among those that apply and can be read."""
        judged = self.count("good") + self.count("bad")
        return self.count("good") / judged if judged else None

    def record(self) -> dict[str, object]:
        """Return the audit as JSON content."""
        return {
            "score": self.score,
            "cpus": self.cpus,
            "remarks": self.remarks,
            "knobs": [asdict(finding) for finding in self.findings],
        }


def cpus_to_keep_free(machine: Machine, text: str) -> Cpus:
    """Parse the CPUs to keep free and check that the machine has them."""
    cpus = tuple(sorted(set(parse_cpus(text, "--cpus"))))
    available = online(machine)
    missing = [cpu for cpu in cpus if cpu not in available]
    if available and missing:
        raise UsageError(
            f"--cpus: got {cpu_list(missing)}, expected some of {cpu_list(available)}",
            code="no-such-cpu",
            hint="`lscpu --extended` lists the CPUs of this machine",
        )
    return cpus


def audit(machine: Machine, cpus: Cpus, knobs: Iterable[Knob] = KNOBS) -> Audit:
    """Read every knob."""
    findings = [_finding(knob, machine, cpus) for knob in knobs]
    return Audit(cpu_list(cpus), findings, remarks(machine, cpus))


def remarks(machine: Machine, cpus: Cpus) -> list[str]:
    """List remarks on keeping these CPUs free."""
    if others(machine, cpus) or not online(machine):
        return []
    return ["no CPU is left for everything else: knobs that keep CPUs free do not apply"]


def _finding(knob: Knob, machine: Machine, cpus: Cpus) -> KnobFinding:
    should_be = knob.recommended(machine, cpus)
    applies = should_be is not None
    as_is = knob.read(machine, cpus) if applies else None
    if not applies:
        state = "not applicable"
    elif as_is is None:
        state = "unknown"
    else:
        state = "good" if knob.is_good(machine, cpus) else "bad"
    return KnobFinding(
        name=knob.name,
        title=knob.title,
        state=state,
        as_is=as_is,
        should_be=should_be,
        why=knob.why,
        source=knob.source,
        cost=knob.cost,
        risk=knob.risk,
        kind=knob.kind,
        permanent=[str(setting) for setting in knob.lasting(machine, cpus)] if applies else [],
        evidence=knob.evidence(machine, cpus) if applies else [],
    )
