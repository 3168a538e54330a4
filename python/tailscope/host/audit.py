"""How a machine is set, beside how it should be: read only, without privilege."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError
from tailscope.host.cpus import cpu_list, parse_cpus
from tailscope.host.knobs.catalogue import KNOBS
from tailscope.host.knobs.knob import online, others

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus, Knob
    from tailscope.host.machine import Machine

STATES = ("bad", "unknown", "good", "not applicable")
"""What can be said of a knob, worst first."""


@dataclass(frozen=True)
class KnobFinding:
    """What was found at one knob."""

    name: str
    title: str
    state: str
    """One of `STATES`."""
    as_is: str | None
    should_be: str | None
    """None where it cannot be read, or does not apply."""
    why: str
    source: str
    cost: str
    risk: str
    kind: str
    """Of the knob."""
    permanent: list[str]
    """What makes it last."""
    evidence: list[str]
    """What was read, and where."""


@dataclass(frozen=True)
class Audit:
    """What was found at all knobs."""

    cpus: str
    """The CPUs to keep free, as a list."""
    findings: list[KnobFinding]
    remarks: list[str]
    """What is to be known of all of them."""

    def count(self, state: str) -> int:
        """How many knobs are in a state."""
        return sum(finding.state == state for finding in self.findings)

    @property
    def score(self) -> float | None:
        """Share of the knobs that apply and can be read which are as they should be."""
        known = self.count("good") + self.count("bad")
        return self.count("good") / known if known else None

    def record(self) -> dict[str, object]:
        """For JSON."""
        return {
            "score": self.score,
            "cpus": self.cpus,
            "remarks": self.remarks,
            "knobs": [asdict(finding) for finding in self.findings],
        }


def cpus_to_keep_free(machine: Machine, text: str) -> Cpus:
    """Read the CPUs that something shall be done for."""
    cpus = tuple(sorted(set(parse_cpus(text, "--cpus"))))
    there = online(machine)
    missing = [cpu for cpu in cpus if cpu not in there]
    if there and missing:
        raise UsageError(
            f"--cpus: got {cpu_list(missing)}, expected some of {cpu_list(there)}",
            code="no-such-cpu",
            hint="`lscpu --extended` lists the CPUs of this machine",
        )
    return cpus


def audit(machine: Machine, cpus: Cpus) -> Audit:
    """Read every knob."""
    findings = [_finding(knob, machine, cpus) for knob in KNOBS]
    return Audit(cpu_list(cpus), findings, remarks(machine, cpus))


def remarks(machine: Machine, cpus: Cpus) -> list[str]:
    """Say what is to be known where these CPUs are kept free."""
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
        permanent=[str(each) for each in knob.lasting(machine, cpus)] if applies else [],
        evidence=knob.evidence(machine, cpus) if applies else [],
    )
