"""``tailscope verify``: whether runs meet a service level."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.options import (
    STANDARD,
    Exact,
    JsonFile,
    JunitFile,
    Keep,
    Verbose,
    argument,
    flag,
    option,
    without_format,
    write_json,
)
from tailscope.cli.status import LEVELS, OF_VERDICTS
from tailscope.cli.terminal import tell
from tailscope.cli.view import MARK, View
from tailscope.exceptions import RunError, UsageError
from tailscope.units import (
    QUANTILES,
    count_text,
    counted,
    did_you_mean,
    duration_text,
    printable,
    refuse_unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.store.records.verdict import VerdictRecord
    from tailscope.verdict.slo import Level, Term
    from tailscope.verdict.verdict import Finding, Outcome, RunVerdict, TermVerdict

EXAMPLE = "tailscope verify runs/first --slo 'p99.9<1ms, loss<1e-3'"

_FORMATS = ("text", "github")
_LEAST_USUAL = 0.5
_COMMANDS = {"pass": "notice", "fail": "error", "inconclusive": "warning"}
_HEADER = ("term", "found", "beyond", "of", "share beyond", "allowed", "a burst", "verdict")
_SHORT_HEADER = ("run", "term", "found", "95 % interval", "limit", "verdict")
_OBSERVED_NOTE = "* describes only the packets of this run"
_USUAL = View()
_NOTHING = "-"
_NEVER = "never came"
_NEIGHBOURS_HINT = (
    "Measure again without the other programs, or judge the device with them by --as-it-is."
)


def command(
    context: typer.Context,
    runs: Annotated[
        list[Path], argument("RUN...", "Run directories, folders of them, or campaigns.")
    ],
    slo: Annotated[
        list[str] | None,
        option(
            "--slo",
            "LEVEL",
            "Level, such as 'p99.999<1ms, loss<1e-5, max<2ms, reordered=0', or a name:"
            " urllc-itu, urllc-22.104, nf-350us; repeatable: all must be met."
            "  [default: a campaign's service_levels]",
        ),
    ] = None,
    json_file: JsonFile = None,
    junit_file: JunitFile = None,
    text_format: Annotated[
        str, option("--format", "NAME", "text, or github for its annotations.")
    ] = "text",
    keep: Keep = False,
    as_it_is: Annotated[
        bool,
        flag(
            "--as-it-is",
            "Judge the device with the other programs that held its CPU: they are named, not"
            " discounted.",
        ),
    ] = False,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    """Exit status 0: they meet it; 2: they do not; 3: there is not enough evidence."""
    plan = replace(
        _plan(runs, slo, json_file, junit_file, text_format),
        as_it_is=as_it_is,
        view=View(exact, verbose),
    )
    return _run(plan, (context.obj or ()) if keep else None)


@dataclass(frozen=True)
class VerifyRequest:
    """The runs to judge, with service level and output."""

    runs: tuple[Path, ...]
    level: Level
    json_file: str | None
    junit_file: Path | None
    text_format: str
    as_it_is: bool = False
    view: View = _USUAL


def _plan(
    runs: list[Path],
    slo: list[str] | None,
    json_file: str | None,
    junit_file: Path | None,
    text_format: str,
) -> VerifyRequest:
    from tailscope.verdict.slo import parse_level

    refuse_unknown("--format", text_format, _FORMATS, "format")
    level = parse_level(", ".join(slo) if slo else _level_of(runs))
    _doubt(level)
    return VerifyRequest(tuple(runs), level, json_file, junit_file, text_format)


def _doubt(level: Level) -> None:
    """Warn of a quantile that nobody means: most packets may be slower."""
    for term in level.terms:
        if term.quantile is not None and term.quantile < _LEAST_USUAL:
            name = term.text.partition("<")[0]
            meant = did_you_mean(name, QUANTILES.values())
            more = f"; {meant}" if meant else ""
            tell("warning", f"--slo: {name} is below the median{more}")


def _level_of(runs: list[Path]) -> str:
    """Return the service levels that all of these campaigns were made for."""
    from tailscope.store.campaign import campaign_content, is_campaign

    levels = {
        ", ".join(campaign_content(path).experiment.service_levels) if is_campaign(path) else ""
        for path in runs
    }
    if len(levels) == 1 and (level := levels.pop()):
        return level
    got = "several" if len(levels) > 1 else "none"
    raise UsageError(
        f"--slo: got none, and of these runs {got} in service_levels of an experiment",
        code="slo-missing",
        hint="name a level, such as --slo 'p99.9<1ms, loss<1e-3'",
    )


def _run(plan: VerifyRequest, command: Sequence[str] | None) -> int:
    from tailscope.verdict.verdict import worst

    named_verdicts = _verdicts(plan)
    verdicts = [verdict for _, verdict in named_verdicts]
    outcome = worst(run_verdict.outcome for run_verdict in verdicts)
    write_json(plan.json_file, without_format(_record(plan, verdicts)))
    if command is not None:
        _keep(plan, named_verdicts, command)
    if plan.junit_file is not None:
        from tailscope.store.atomic import write_text
        from tailscope.verdict.junit import Case, Suite, junit

        suites = [
            Suite(
                run_verdict.name,
                [Case(*about, sentence) for about, sentence in _sentences(run_verdict)],
            )
            for run_verdict in verdicts
        ]
        write_text(plan.junit_file, junit(f"tailscope verify {plan.level.text}", suites))
    if plan.json_file != STANDARD:
        _print(plan, verdicts, outcome)
        _say_next_run(plan, named_verdicts)
    return OF_VERDICTS[outcome]


def _record(plan: VerifyRequest, verdicts: list[RunVerdict]) -> VerdictRecord:
    from tailscope.models.estimate import LEVEL
    from tailscope.store.records.verdict import VerdictRecord
    from tailscope.verdict.verdict import worst

    return VerdictRecord(
        slo=plan.level.text,
        verdict=worst(run_verdict.outcome for run_verdict in verdicts).value,
        level=LEVEL,
        as_it_is=plan.as_it_is,
        runs=tuple(verdict.record() for verdict in verdicts),
    )


def _keep(
    plan: VerifyRequest,
    named_verdicts: list[tuple[Path | None, RunVerdict]],
    command: Sequence[str],
) -> None:
    """Keep in each run what was said of it."""
    from tailscope.store import layout
    from tailscope.store.kept import keep
    from tailscope.store.reader import read_info

    for path, verdict in named_verdicts:
        if path is not None:
            keep(path, read_info(path), layout.VERDICT, _record(plan, [verdict]), command=command)


def _verdicts(plan: VerifyRequest) -> list[tuple[Path | None, RunVerdict]]:
    from tailscope.verdict.verdict import Outcome, RunVerdict

    named_runs = [named for path in plan.runs for named in _named(path)]
    if not named_runs:
        raise RunError("there is no run to judge: the campaign has no cell", code="no-run")
    paths = [path.resolve() for _, path, _ in named_runs if path is not None]
    if len(set(paths)) != len(paths):
        raise UsageError("the same run is named twice", code="run-named-twice")
    verdicts: list[tuple[Path | None, RunVerdict]] = []
    for name, path, reason in named_runs:
        if path is None:
            missing = RunVerdict(name, Outcome.INCONCLUSIVE, reason=f"no run: {reason}")
            verdicts.append((None, missing))
            continue
        verdicts.append((path, _judged(plan, path, name, len(named_runs))))
    return verdicts


def _judged(plan: VerifyRequest, path: Path, name: str, runs: int) -> RunVerdict:
    """Judge a run by its packets, or an import by what it holds."""
    from tailscope.store.info import foreign_text
    from tailscope.store.reader import check_sizes, read_info, read_run
    from tailscope.verdict.evidence import read_evidence
    from tailscope.verdict.imported import judge_import
    from tailscope.verdict.verdict import judge

    info, level = read_info(path), plan.level
    if foreign_text(info) is not None:
        judged = judge_import(level, read_run(path, label=name), runs=runs)
    else:
        evidence = read_evidence(path, level, name=name, with_neighbours=plan.as_it_is)
        judged = judge(level, evidence, runs=runs)
    check_sizes(path, info)
    return judged


def _named(path: Path) -> Iterator[tuple[str, Path | None, str | None]]:
    """Return the runs at a path, under names that tell them apart."""
    from tailscope.store.campaign import is_campaign, read_campaign
    from tailscope.store.files import campaigns_below, runs_at

    if is_campaign(path):
        for run in read_campaign(path):
            yield run.name, run.path, run.unfinished
        return
    runs, campaigns = runs_at(path), campaigns_below(path)
    for each in runs if runs or campaigns else [path]:
        yield str(each), each, None
    for campaign in campaigns:
        for run in read_campaign(campaign):
            yield f"{campaign}/{run.name}", run.path, run.unfinished


def _print(plan: VerifyRequest, verdicts: list[RunVerdict], outcome: Outcome) -> None:
    if plan.text_format == "github":
        for verdict in verdicts:
            for about, sentence in _sentences(verdict):
                print(_annotation(verdict.name, *about, sentence))
        return
    view = plan.view
    outcomes = [str(verdict.outcome) for verdict in verdicts]
    if len(verdicts) == 1:
        view.say(_answer(verdicts[0], plan.level, verbose=view.verbose), LEVELS[outcome])
        is_said = bool(verdicts[0].neighbours) and not view.verbose
        if is_said:
            view.say_named("warning", f"{verdicts[0].neighbours}.")
        if trust := verdicts[0].trust:
            view.say_named("trust", trust.partition(":")[0] if is_said else trust)
    else:
        counts = ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes))
        view.say(f"{len(verdicts)} runs: {outcome} ({counts}).", LEVELS[outcome])
    print()
    for verdict in verdicts:
        if verdict.reason is not None:
            view.say_named(verdict.outcome, f"{verdict.name}: {verdict.reason}")
    if view.verbose:
        for verdict in verdicts:
            if verdict.reason is None:
                _print_details(verdict, view)
        _print_promises(plan, verdicts)
    elif sections := [_short_rows(verdict) for verdict in verdicts if verdict.reason is None]:
        observed = any(term.is_observed for term in plan.level.terms)
        notes = [_OBSERVED_NOTE] if observed else []
        notes += _never_came_notes(verdicts)
        start = 1 if len(verdicts) == 1 else 0
        rows = [row[start:] for section in sections for row in section]
        view.print_table(_SHORT_HEADER[start:], [rows], notes=notes, mark_note=_mark_note(verdicts))


def _mark_note(verdicts: Sequence[RunVerdict]) -> str:
    """Say what a range is, and what it depends on."""
    spoilt = {verdict.spoilt for verdict in verdicts if verdict.spoilt}
    why = f"; it depends on {spoilt.pop()}" if len(spoilt) == 1 else " (-v says why)"
    return f"{MARK} the least and the most that it can be{why}"


def _never_came_notes(verdicts: Sequence[RunVerdict]) -> list[str]:
    """Say that packets without a latency count, where quantiles are judged."""
    never_came = sum(
        verdict.never_came
        for verdict in verdicts
        if any(term.term.quantile is not None for term in verdict.terms)
    )
    if not never_came:
        return []
    packets = counted(never_came, "packet")
    return [
        f"quantiles count {packets} without a latency (such as lost, late or unsent ones) as slower"
        " than all others; the table of a run has those that came alone"
    ]


def _answer(verdict: RunVerdict, level: Level, *, verbose: bool = False) -> str:
    """Say in a sentence whether a run meets its service level, and where it does not."""
    name, outcome = verdict.name, str(verdict.outcome)
    decisive = [
        f"{term.term.name} {_is(_found(term))}" for term in verdict.terms if term.outcome == outcome
    ]
    if outcome == "pass":
        return f"{name}: pass, it meets {level.text}."
    if outcome == "fail":
        failed = [term for term in verdict.terms if term.outcome == outcome]
        why = "" if verbose else _why(failed)
        return f"{name}: fail, {' and '.join(decisive)}{why}."
    open_terms = [term for term in verdict.terms if term.outcome == outcome]
    names = ", ".join(term.term.name for term in open_terms)
    about = f" about {names}" if names else ""
    if verbose:
        return f"{name}: inconclusive, not enough evidence{about}."
    why = _why(open_terms)
    reasons = {reason for term in open_terms for reason in term.reasons}
    more = "" if len(reasons) == 1 else " (-v says more)"
    return f"{name}: inconclusive, not enough evidence{about}{why}{more}."


def _why(terms: Sequence[TermVerdict]) -> str:
    """Say what leaves all terms open, or else the first of them that has a reason."""
    shared = [
        reason
        for reason in (terms[0].reasons if terms else ())
        if all(reason in term.reasons for term in terms)
    ]
    if shared:
        return f": {shared[-1]}"
    return next((f"; {term.term.name}: {term.reasons[-1]}" for term in terms if term.reasons), "")


def _short_rows(verdict: RunVerdict) -> list[tuple[str, ...]]:
    return [
        (
            verdict.name if number == 0 else "",
            term.term.name + (" *" if term.term.is_observed else ""),
            _found(term),
            _interval(term),
            term.term.text.removeprefix(term.term.name),
            str(term.outcome),
        )
        for number, term in enumerate(verdict.terms)
    ]


def _print_promises(plan: VerifyRequest, verdicts: list[RunVerdict]) -> None:
    """Say how often verdicts are right, where levels are from, and what to do about neighbours."""
    from tailscope.verdict.slo import PROFILES
    from tailscope.words.promises import kept

    if any(not term.is_observed for term in plan.level.terms):
        plan.view.say(kept("verdict"))
    for name in plan.level.profiles:
        plan.view.say(f"{name} is {PROFILES[name].text}: {PROFILES[name].source}")
    if any(
        run_verdict.neighbours and str(run_verdict.outcome) == "inconclusive"
        for run_verdict in verdicts
    ):
        plan.view.say(_NEIGHBOURS_HINT)


def _say_next_run(plan: VerifyRequest, named: Sequence[tuple[Path | None, RunVerdict]]) -> None:
    """Say what a model kept beside a run expects of a further one."""
    from tailscope.registry import offered

    paths = [path for path, _ in named if path is not None and plan.view.verbose]
    terms = [term for term in plan.level.terms if term.kind == "latency"]
    for tell_next in offered("next_run") if paths and terms else ():
        said = (tell_next(path, term.quantile, term.limit) for path in paths for term in terms)
        for sentence in filter(None, said):
            plan.view.say(sentence)


def _print_details(verdict: RunVerdict, view: View) -> None:
    """Print how the verdict on a run came about."""
    view.say(f"{verdict.name}: {verdict.outcome}")
    if verdict.neighbours:
        view.say_named("warning", f"{verdict.neighbours}.")
    notes = [
        f"{term.term.text}: {view.text(reason)}"
        for term in verdict.terms
        for reason in term.reasons
    ]
    if any(each.term.is_observed for each in verdict.terms):
        notes.append(_OBSERVED_NOTE)
    notes += _never_came_notes([verdict])
    view.print_table(
        _HEADER, [map(_row, verdict.terms)], notes=notes, mark_note=_mark_note([verdict])
    )


def _row(verdict: TermVerdict) -> tuple[str, ...]:
    term, finding = verdict.term, verdict.as_is
    return (
        term.text + (" *" if term.is_observed else ""),
        _found(verdict),
        _beyond(verdict),
        count_text(finding.packets),
        _share(verdict),
        _NOTHING if term.allowed is None else f"{term.allowed:.4g}",
        _NOTHING if finding.design_effect is None else f"{finding.design_effect:.1f}",
        str(verdict.outcome),
    )


def _ends(verdict: TermVerdict) -> tuple[Finding, Finding]:
    """Return the figure at both ends of what the instrument leaves open."""
    return verdict.as_is if verdict.least is None else verdict.least, verdict.as_is


def _found(verdict: TermVerdict) -> str:
    from tailscope.words.figures import instrument_text

    least, found = (each.found for each in _ends(verdict))
    if verdict.term.is_time and found is not None:
        return instrument_text(least, found)
    return _both(*(_found_at(verdict.term, end) for end in _ends(verdict)))


def _is(found: str) -> str:
    """Say what a figure is; a packet that did not come out has none."""
    if found == _NEVER:
        return "counts packets that never came"
    return (
        f"is {found.removesuffix(f' to {_NEVER}')} or never came"
        if _NEVER in found
        else f"is {found}"
    )


def _found_at(term: Term, finding: Finding) -> str:
    if finding.found is None:
        return _NOTHING if finding.beyond is None or not finding.is_known else _NEVER
    if term.is_time:
        return duration_text(finding.found)
    return f"{finding.found:.3g}" if term.kind == "loss" else count_text(int(finding.found))


def _interval(verdict: TermVerdict) -> str:
    """Return the range that decides: a limit above it is met, and one below it is not."""
    from tailscope.words.figures import interval_text

    if verdict.term.is_observed or not verdict.term.is_time:
        return _share(verdict)
    least, most = (end.between for end in _ends(verdict))
    if least is None or most is None:
        return _NOTHING
    low, high = least[0], most[1]
    if math.isinf(high):
        return _NEVER if math.isinf(low) else f"{duration_text(low)} or more"
    return interval_text(low, high)


def _beyond(verdict: TermVerdict) -> str:
    ends = (_NOTHING if end.beyond is None else count_text(end.beyond) for end in _ends(verdict))
    return _both(*ends)


def _share(verdict: TermVerdict) -> str:
    """Return the share beyond the limit, from its lower to its upper end."""
    least, share = (end.share for end in _ends(verdict))
    if share is None or least is None:
        return _NOTHING
    return f"{min(least.ci_low, share.ci_low):.3g} to {share.ci_high:.3g}"


def _both(least: str, most: str) -> str:
    return most if least == most else f"{least} to {most}"


def _sentences(verdict: RunVerdict) -> list[tuple[tuple[str, Outcome], str]]:
    """Return the text, the outcome and a sentence for each term."""
    if verdict.reason is not None:
        return [(("", verdict.outcome), verdict.reason)]
    return [
        ((term.term.text, term.outcome), _sentence(term, verdict.neighbours))
        for term in verdict.terms
    ]


def _sentence(verdict: TermVerdict, neighbours: str) -> str:
    finding, term = verdict.as_is, verdict.term
    parts = [f"found {_found(verdict)}"]
    if finding.beyond is not None:
        parts.append(f"{_beyond(verdict)} of {count_text(finding.packets)} packets are beyond")
    if finding.share is not None:
        parts.append(f"a share of {_share(verdict)}, {term.allowed:.6g} is allowed")
    return "; ".join([*parts, *verdict.reasons, *([neighbours] if neighbours else [])])


def _annotation(run: str, term: str, outcome: Outcome, sentence: str) -> str:
    """Return a workflow command of GitHub; its title reserves more characters than its message."""
    title = printable(f"{run} {term}".strip()).replace("%", "%25")
    title = title.replace(":", "%3A").replace(",", "%2C")
    message = printable(f"{outcome}: {sentence}").replace("%", "%25")
    return f"::{_COMMANDS[outcome]} title={title}::{message}"
