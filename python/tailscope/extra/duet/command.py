"""``tailscope compare duet``: two set-ups by turns, until it is clear which of them is slower."""

from __future__ import annotations

import math
import os
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from tailscope.cli.fields import with_fields
from tailscope.cli.options import (
    STANDARD,
    DryRun,
    JsonFile,
    JunitFile,
    Quiet,
    argument,
    option,
    write_json,
)
from tailscope.cli.panels import MEASUREMENT, OUTPUT
from tailscope.cli.status import INTERRUPTED, OF_VERDICTS
from tailscope.cli.terminal import say
from tailscope.exceptions import EvidenceError, TestbedError, UsageError
from tailscope.units import counted, duration_text, long_text, positive_duration_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.compare.limits import Limit
    from tailscope.experiment.plan import RunPlan
    from tailscope.extra.duet.judge import Finding, Judge
    from tailscope.extra.duet.paired import Block
    from tailscope.testbed.cores import Cores

    Side = tuple[RunPlan, Cores]

EXAMPLE = "tailscope compare duet old.yaml new.yaml --fail-on 'p99>+5%'"

_LIMITS = ("p50>+3%", "p99>+3%")
_ALL = 0.995
"""Share of the packets from which they count as all."""
_WORDS = {False: ("is slower", "is faster"), True: ("loses more", "loses fewer")}


class _Measured(NamedTuple):
    """A duet that has ended."""

    judge: Judge
    lasted_s: float
    interrupted: bool


@with_fields("compare duet")
def command(
    a: Annotated[
        str,
        argument(
            "A", "Baseline set-up: fields as in an experiment, '{dut: l2fwd}', or a file of them."
        ),
    ],
    b: Annotated[str, argument("B", "Candidate set-up, in the same way.")],
    *,
    fields: dict[str, object],
    block: Annotated[
        str, option("--block", "DURATION", "Traffic of each block.", MEASUREMENT)
    ] = "1s",
    warm_up: Annotated[
        str, option("--warm-up", "DURATION", "Traffic before each block.", MEASUREMENT)
    ] = "50ms",
    most: Annotated[
        str, option("--for", "DURATION", "Begin no further pair after so long.", MEASUREMENT)
    ] = "10min",
    fail_on: Annotated[
        list[str] | None,
        option(
            "--fail-on",
            "LIMIT",
            "Limits for B, such as 'p99.9>+10%, p99>+5us, lost>+0.1%'; repeatable."
            f"  [default: {', '.join(_LIMITS)}]",
            OUTPUT,
        ),
    ] = None,
    json_file: JsonFile = None,
    junit_file: JunitFile = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> int:
    """Other options hold for both, where A and B do not say otherwise.

    Exit status 2: B is slower than a limit allows; 3: there is not enough evidence.
    """
    from tailscope.compare.limits import parse_limits

    limits = parse_limits(fail_on or _LIMITS)
    common = {**fields, "duration": block, "warm_up": warm_up, "noise": "stalls", "power": "none"}
    sides = _side(a, common, "A"), _side(b, common, "B")
    most_s = positive_duration_ns(most, "--for") / 1e9
    if dry_run:
        return _describe(sides, limits)
    measured = _measure(sides, limits, most_s, quiet=quiet)
    status = _tell(measured.judge, measured.lasted_s, json_file, junit_file)
    return INTERRUPTED if measured.interrupted else status


def _side(given: str, common: dict[str, object], name: str) -> Side:
    from tailscope.experiment.fields import FIELDS, plan_of
    from tailscope.plan.yaml_file import read_yaml, yaml_of

    path = Path(given)
    content = (read_yaml(path) if path.is_file() else yaml_of(given, name)).content
    if not isinstance(content, dict):
        raise UsageError(
            f"{name}: got {given!r}, expected fields or a file of them",
            code="duet-setup",
            hint="such as '{dut: command, dut_options: {run: ./new}}'",
        )
    own = {}
    for key, value in content.items():
        if key not in FIELDS or key in ("duration", "warm_up", "noise", "power"):
            raise UsageError(
                f"{name}: {key}: expected a field of the device, wire or traffic", code="duet-field"
            )
        own[key] = value
    plan = plan_of({**common, **own})
    if plan.runs > 1:
        raise UsageError(
            f"{name}: expected one device, and traffic in one direction", code="one-device"
        )
    return plan, plan.cores()


def _measure(
    sides: tuple[Side, Side], limits: Sequence[Limit], most_s: float, *, quiet: bool
) -> _Measured:
    from tailscope.cli.live import LiveLine
    from tailscope.extra.duet.judge import Judge
    from tailscope.extra.duet.pairs import pairs
    from tailscope.testbed.clean import clean_if_dead

    judge, interrupted = Judge(limits), False
    with LiveLine(quiet=quiet) as line, closing(pairs(*sides, sides[0][0].seed)) as measuring:
        for left in clean_if_dead():
            line.say(left.sentence)
        began_s = time.monotonic()
        try:
            while time.monotonic() - began_s < most_s and not judge.is_decided:
                pair = next(measuring)
                _check_answers(pair.a)
                judge.add(pair)
                lasted_s = time.monotonic() - began_s
                left_s = max(0.0, most_s - lasted_s)
                if judge.is_hopeless(left_s * judge.pairs / lasted_s):
                    break
                progress = (
                    " ".join(map(_short, judge.findings)) or f"{judge.left} to the first look"
                )
                line.show(
                    {
                        "what": f"pair {judge.pairs}: {progress}",
                        "left": f"{long_text(left_s)} left",
                    }
                )
        except KeyboardInterrupt:
            if not judge.findings:
                raise
            interrupted = True
    judge.finish()
    lasted_s = time.monotonic() - began_s
    if not judge.findings:
        pair_s = lasted_s / max(1, judge.pairs)
        enough_s = math.ceil(pair_s * (judge.pairs + judge.left)) + 1
        raise EvidenceError(
            f"--for: {counted(judge.pairs, 'pair')} of blocks in {long_text(lasted_s)},"
            f" expected {judge.pairs + judge.left} or more",
            code="duet-too-short",
            hint=f"`--for {enough_s}s` allows for them, or a shorter --block",
        )
    return _Measured(judge, lasted_s, interrupted)


def _check_answers(a: Block) -> None:
    """See that the known set-up answers at all: what is slower than nothing cannot be told."""
    if a.lost == len(a.latency_ns):
        raise TestbedError(
            f"A: none of the {counted(a.lost, 'packet')} of a block came back",
            code="nothing-came-back",
            hint="`tailscope run` with the same fields says where they went",
        )


def _tell(judge: Judge, lasted_s: float, json_file: str | None, junit_file: Path | None) -> int:
    from tailscope.models.estimate import LEVEL
    from tailscope.verdict.verdict import Outcome, worst

    outcome = worst(finding.outcome for finding in judge.findings)
    if json_file != STANDARD:
        for finding in judge.findings:
            say(f"{finding.limit.text}: {finding.outcome}: {_sentence(finding, lasted_s)}")
        say(
            f"{counted(judge.pairs, 'pair')} of blocks in {long_text(lasted_s)}; all of this"
            f" holds together with {LEVEL:.0%}, however often it was looked at"
        )
        if outcome is Outcome.INCONCLUSIVE and judge.is_busy:
            say(_why_busy(judge))
        quantiles = [finding.limit.figure.quantile for finding in judge.findings]
        if any(q is not None and max(judge.lost_shares) > 1 - q for q in quantiles):
            lost = (
                f"{name} {share:.1%}" for name, share in zip("AB", judge.lost_shares, strict=True)
            )
            say(
                "packets that never came back count as the longest latency that is waited for:"
                f" {', '.join(lost)} of them"
            )
    if junit_file is not None:
        _write_junit(junit_file, judge.findings, lasted_s)
    if json_file is not None:
        content: dict[str, object] = {
            "verdict": str(outcome),
            "level": LEVEL,
            "pairs": judge.pairs,
            "lasted_s": lasted_s,
            "stalled_share": judge.stalled_share,
            "others_cpu_share": judge.others,
            "limits": [finding.record() for finding in judge.findings],
        }
        write_json(json_file, content)
    return OF_VERDICTS[outcome]


def _short(finding: Finding) -> str:
    low, high = finding.difference[1:]
    is_known = math.isfinite(low) and math.isfinite(high)
    ends = f"{_text(finding, low)} to {_text(finding, high)}" if is_known else "not known"
    return f"{finding.limit.figure.name} {ends}"


def _sentence(finding: Finding, lasted_s: float) -> str:
    _, low, high = finding.difference
    if not finding.is_real:
        most = max(0.0, -low, high)
        sentence = (
            f"no difference larger than {_text(finding, most).removeprefix('+')}"
            if math.isfinite(most)
            else "nothing can be said of a difference"
        )
    else:
        words = _WORDS[finding.limit.figure.quantile is None]
        word, ends = (words[0], (low, high)) if low > 0 else (words[1], (-high, -low))
        least, most_text = (_text(finding, end).removeprefix("+") for end in ends)
        sentence = f"B {word}, by {least} to {most_text}"
    if finding.pairs and finding.compared_share < _ALL:
        share = f"{finding.compared_share:.0%} of the packets"
        is_theirs = not finding.undiscounted
        sentence += f", in the {share} that met no other program" if is_theirs else f", in {share}"
    if finding.undiscounted:
        blocks = counted(finding.undiscounted, "pair")
        sentence += f"; all packets of {blocks} count, as too few met no other program"
    if finding.set_aside:
        blocks = counted(finding.set_aside, "pair")
        sentence += f"; {blocks} set aside, in which the instrument stalled"
    if finding.pairs_to_settle is not None:
        more = max(1, finding.pairs_to_settle - finding.pairs)
        more_s = more * lasted_s / finding.pairs
        sentence += f"; about {long_text(more_s)} more would settle it, if it stays so"
    return sentence


def _why_busy(judge: Judge) -> str:
    stood = f"this machine is too busy: the generator stood still for {judge.stalled_share:.0%}"
    if judge.others is None:
        is_root = os.geteuid() == 0
        cause = "" if is_root else "; root can leave out the packets that met other programs"
    else:
        shares = (f"{name} {share:.0%}" for name, share in judge.others.items())
        cause = f", and others had its CPUs and the device's: {', '.join(shares) or 'none'}"
    return (
        f"{stood} of the time{cause}; end other programs, or give the duet CPUs of its own (--cpus)"
    )


def _text(finding: Finding, value: float) -> str:
    if not math.isfinite(value):
        return "unbounded"
    if finding.limit.share or finding.limit.figure.quantile is None:
        return f"{value:+.2%}"
    return ("+" if value > 0 else "") + duration_text(value)


def _write_junit(file: Path, findings: list[Finding], lasted_s: float) -> None:
    from tailscope.store.atomic import write_text
    from tailscope.verdict.junit import Case, Suite, junit

    cases = [
        Case(finding.limit.text, finding.outcome, _sentence(finding, lasted_s))
        for finding in findings
    ]
    write_text(file, junit("tailscope compare duet", [Suite("B against A", cases)]))


def _describe(sides: tuple[Side, Side], limits: Sequence[Limit]) -> int:
    from tailscope.doctor.measurable import lacks_of

    for name, (plan, cores) in zip("AB", sides, strict=True):
        for what, text in plan.describe(cores).items():
            say(f"{name}  {what:<10}{text}")
        for lack in lacks_of(plan, cores):
            say(f"{name}  {'missing':<10}{lack}")
    for limit in limits:
        say(f"   {'limit':<10}{limit.text}")
    return 0
