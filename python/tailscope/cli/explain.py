"""``tailscope explain``: what the tail of a run waited for, or one of its packets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.options import (
    STANDARD,
    Exact,
    JsonFile,
    Keep,
    Verbose,
    argument,
    named_files,
    option,
    tail_quantile,
    without_format,
    write_json,
)
from tailscope.cli.view import View
from tailscope.exceptions import UsageError
from tailscope.units import count_text, duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.noise.attribution import Blocked
    from tailscope.noise.captures import Recordings
    from tailscope.noise.story import Story
    from tailscope.store.packets import Latencies, Packets
    from tailscope.store.records.explanation import ExplainedStages, Explanation
    from tailscope.store.records.run import RunInfo

EXAMPLE = "tailscope explain runs/first"

_MOST_DETAILS = 3
"""Number of details shown for a cause; `--json` has all."""
_SMALL = 0.005
"""Share of a delay below which a cause is added up with the others."""
_FEWEST_ADDED_UP = 2


_Interrupts = Annotated[
    list[str] | None,
    option(
        "--interrupts",
        "[NAME=]FILE",
        "Interrupt counters that were polled during the captures (the authors' CSV,"
        " copies of /proc/interrupts, or .parquet); repeatable.",
    ),
]
_Traces = Annotated[
    list[str] | None,
    option(
        "--trace",
        "[NAME=]FILE",
        "Kernel events that were recorded during the captures (trace.dat, perf.data,"
        " text of perf script, or a folder with CTF); repeatable.",
    ),
]
_OwnWork = Annotated[
    list[str] | None,
    option(
        "--own-work",
        "CAUSE",
        "Cause in the traces that is the device's own work, such as 'task l2fwd' or"
        " 'softirq NET_RX'; repeatable.  [default: the task that has a CPU for more than half"
        " of the time]",
    ),
]


def command(
    context: typer.Context,
    run: Annotated[Path, argument("RUN", "A run directory.")],
    packet: Annotated[
        int | None, option("--packet", "SEQ", "Packet to explain.  [default: the worst]", min=0)
    ] = None,
    quantile: Annotated[
        str | None,
        option(
            "--quantile",
            "Q",
            "Start of the tail.  [default: p99.9; with --interrupts p99.99, or the highest with 10"
            " packets beyond; of captures alone the same from p99.9 down]",
        ),
    ] = None,
    interrupts: _Interrupts = None,
    trace: _Traces = None,
    cpus: Annotated[
        list[str] | None,
        option(
            "--cpus -c",
            "[NAME=]LIST",
            "CPUs of the device in all files, or in NAME: counters of other CPUs are not tested.",
        ),
    ] = None,
    own_work: _OwnWork = None,
    offset: Annotated[
        list[str] | None,
        option(
            "--offset",
            "[NAME=]TIME",
            "Offset from the times of all files, or of NAME, to those of the captures,"
            " such as -25.8s.",
        ),
    ] = None,
    offset_error: Annotated[
        str, option("--offset-error", "TIME", "Uncertainty of `--offset`.")
    ] = "0s",
    keep: Keep = False,
    json_file: JsonFile = None,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    beginning = None if quantile is None else tail_quantile(quantile)
    if beginning is not None and not 0 <= beginning < 1:
        raise UsageError(
            f"--quantile: got {beginning:g}, expected at least 0 and less than 1", code="quantile"
        )
    recordings = _recordings(
        interrupts or [], trace or [], cpus or [], tuple(own_work or ()), offset or [], offset_error
    )
    if recordings is None and keep:
        raise UsageError(
            "--keep requires --interrupts or --trace: a measurement keeps its own",
            code="requires-recording",
        )
    command = (context.obj or ()) if keep else None
    view = View(exact, verbose)
    _run(ExplainRequest(run, packet, beginning, recordings, command, json_file, view))
    return 0


@dataclass(frozen=True)
class ExplainRequest:
    """The run to explain, with the options that apply."""

    run: Path
    packet: int | None
    quantile: float | None
    recordings: Recordings | None
    kept_by: Sequence[str] | None
    json_file: str | None
    view: View


def _recordings(
    interrupts: list[str],
    traces: list[str],
    cpus: list[str],
    own_work: tuple[str, ...],
    offsets: list[str],
    offset_error: str,
) -> Recordings | None:
    """Return the recordings beside captures; None if none was named."""
    if not (interrupts or traces):
        given = {"--cpus": cpus, "--own-work": own_work, "--offset": offsets}
        if idle := [option for option, value in given.items() if value]:
            raise UsageError(
                f"{idle[0]} requires --interrupts or --trace", code="requires-recording"
            )
        return None
    from tailscope.host.cpus import parse_cpus
    from tailscope.noise.captures import Recordings, TraceRequest
    from tailscope.noise.clocks import by_name, offsets_of

    counters, events = named_files(interrupts, "--interrupts"), named_files(traces, "--trace")
    if shared := counters.keys() & events.keys():
        raise UsageError(
            f"--trace: got {min(shared)} twice", code="name-twice", hint="name it: NAME=FILE"
        )
    listed = by_name(cpus, [*counters, *events], "--cpus")
    of_device = {
        name: tuple(parse_cpus(listed.get(name, listed.get("", "")), "--cpus"))
        for name in [*counters, *events]
        if name in listed or "" in listed
    }
    for name in events:
        if name not in of_device:
            raise UsageError(
                f"--trace {name}: expected --cpus, the CPUs of the device in it",
                code="requires-cpus",
            )
    if not events and own_work:
        raise UsageError("--own-work requires --trace", code="requires-trace")
    return Recordings(
        counters,
        {name: TraceRequest(path, of_device[name]) for name, path in events.items()},
        {name: of_device[name] for name in counters if name in of_device},
        offsets_of(offsets, offset_error, [*counters, *events]),
        own_work,
    )


def _run(request: ExplainRequest) -> None:
    from tailscope.noise.attribution import NEVER
    from tailscope.noise.explanation import TAIL_QUANTILE, explain_tail
    from tailscope.noise.stages import read_stages
    from tailscope.noise.story import tell
    from tailscope.noise.table import read_blocked
    from tailscope.registry import offered
    from tailscope.store.reader import open_packets, read_figures
    from tailscope.store.records.plan import MeasurementPlan
    from tailscope.verdict.trust import trust_of
    from tailscope.words.figures import order_text, relative_text

    figures = read_figures(request.run)
    for text in filter(None, (relative_text(figures.summary), order_text(figures.summary))):
        if request.json_file != STANDARD:
            request.view.say(text)
            request.view.say("")
    is_alone = request.recordings is None and not isinstance(figures.info.plan, MeasurementPlan)
    if is_alone and request.packet is None and _told_by_packets(request, figures.info):
        return
    blocked = None
    if is_alone and request.packet is not None:
        blocked = NEVER
    elif request.recordings is None:
        blocked = read_blocked(request.run, figures.info)
    stages = read_stages(request.run, figures.info)
    with open_packets(request.run, figures.info) as packets:
        latencies = packets.latencies()
        if request.recordings is not None:
            of_captures = _of_captures(
                request, request.recordings, packets, latencies, figures.info
            )
            tail, blocked = of_captures
        else:
            assert blocked is not None, "it was read"
            start = TAIL_QUANTILE if request.quantile is None else request.quantile
            tail = explain_tail(packets, latencies, blocked, start, stages)
        story = None
        if blocked is not None:
            story = tell(packets, latencies, blocked, request.packet, stages)
    if request.json_file is not None:
        story_record = None if story is None else story.record()
        write_json(request.json_file, {"tail": without_format(tail), "packet": story_record})
    if request.json_file != STANDARD:
        _print(request, tail, story, figures.info)
        if blocked is not None and request.packet is None and tail.parts_ns.get("unexplained"):
            for say in offered("unnamed_stalls"):
                if text := say(request.run, figures.info, tail, blocked):
                    request.view.say(text)
        if trust := trust_of(figures.summary, figures.info).text:
            request.view.say_named("trust", trust)


def _told_by_packets(request: ExplainRequest, info: RunInfo) -> bool:
    """Print what packets of captures say by themselves, if a folder of the wing knows."""
    from tailscope.registry import offered

    for service in ("kept_explanation", "packets_alone"):
        found = [explain(request.run, info, request.quantile) for explain in offered(service)]
        told = [each for each in found if each is not None]
        if not told:
            continue
        record = {name: part for parts, _ in told for name, part in parts.items()}
        write_json(request.json_file, {"tail": None, "packet": None, **record})
        if request.json_file != STANDARD:
            for _, show in told:
                show(request.view)
        return True
    return False


def _of_captures(
    request: ExplainRequest,
    recordings: Recordings,
    packets: Packets,
    latencies: Latencies,
    info: RunInfo,
) -> tuple[Explanation, Blocked | None]:
    from tailscope.noise.captures import explain_captures
    from tailscope.store import layout
    from tailscope.store.kept import keep
    from tailscope.store.records.plan import MeasurementPlan

    if isinstance(info.plan, MeasurementPlan):
        raise UsageError(
            f"{request.run}: --interrupts and --trace explain captures: this run was measured, and"
            " has recorded what there is",
            code="run-was-measured",
            hint="explain it without these options",
        )
    if request.packet is not None and not recordings.traces:
        raise UsageError(
            "--packet requires --trace: counters that are polled say nothing of single packets",
            code="requires-trace",
        )
    tail, blocked = explain_captures(packets, latencies, recordings, request.quantile)
    if request.kept_by is not None:
        keep(request.run, info, layout.EXPLANATION, tail, command=request.kept_by)
    return tail, blocked


def _print(request: ExplainRequest, tail: Explanation, story: Story | None, info: RunInfo) -> None:
    from tailscope.words.figures import clock_rows, clocks_text
    from tailscope.words.neighbours import elsewhere_text

    view = request.view
    if request.packet is None:
        print_tail(tail, view)
    if story is not None:
        _print_story(story, view)
    if clocks := clocks_text(tail):
        view.say(clocks)
        print()
        header = ("clock of", "by", "bounds", "offset", "drift", "error", "")
        view.print_table(header, [clock_rows(info)], ("bounds", "drift"))
    no_stages = None if info.noise is None else info.noise.stages_missing_because
    if no_stages is not None:
        view.say_named("note", f"stages were not recorded: {no_stages}")
    elsewhere_ns = None if info.noise is None else info.noise.elsewhere_ns
    own_cpus = "" if info.instrument is None else info.instrument.cpus.get("DuT", "")
    if elsewhere := elsewhere_text(elsewhere_ns, own_cpus):
        view.say_named("warning", elsewhere)
    why_not = None if info.noise is None else info.noise.events_missing_because
    if why_not is not None:
        view.say_named("warning", f"causes cannot be named: {why_not}")
        view.say("stalls of the DuT may be tailscope's own work, if both share a CPU")


def print_tail(tail: Explanation, view: View) -> None:
    """Print what is known to have delayed the tail, and what is associated with that."""
    from tailscope.noise.words import trace_lines
    from tailscope.words.figures import cause_rows, explained_answer, explained_text

    if tail.evidence is not None:
        if answer := explained_answer(tail):
            view.say(answer)
        view.say(explained_text(tail))
        if rows := cause_rows(tail):
            print()
            shown, others = _largest([cause.share for cause in tail.causes], view)
            rows = [rows[at] for at in shown]
            if others:
                rest = [tail.causes[at] for at in others]
                total = duration_text(sum(cause.total_ns for cause in rest))
                share = f"{sum(cause.share for cause in rest):.1%}"
                rows.append((_others_text(others), share, "", total, ""))
            header = ("waited for", "share", "packets", "total", "largest")
            view.print_table(header, [rows], ("largest", "packets"))
        for line in trace_lines(tail):
            view.say(line)
    if tail.stages is not None:
        _print_stages(tail.stages, view)
    if tail.associated is not None:
        if tail.evidence is not None:
            print()
        print_association(tail, view)


def _print_stages(stages: ExplainedStages, view: View) -> None:
    """Print how long packets were in each stage, and why the kernel dropped some."""
    from tailscope.words.figures import (
        DROP_HEADER,
        STAGE_HEADER,
        drop_rows,
        stage_rows,
        stages_text,
    )

    view.say(stages_text(stages))
    print()
    view.print_table(STAGE_HEADER, [stage_rows(stages)], STAGE_HEADER[:2:-1])
    if rows := drop_rows(stages):
        view.print_table(DROP_HEADER, [rows])


def print_association(tail: Explanation, view: View) -> None:
    """Print which counters move when packets are slow."""
    from tailscope.noise.words import COUNTER_HEADER, association_lines, counter_rows, regular_lines

    associated = tail.associated
    assert associated is not None, "it has counters"
    for line in association_lines(associated):
        view.say(line)
    rows = counter_rows(associated)
    if rows:
        print()
        view.print_table(COUNTER_HEADER, [rows], ("p", "ratio", "95 % interval"))
        if len(rows) < len(associated.counters):
            view.say(f"and {len(associated.counters) - len(rows)} more, none of them associated")
    if associated.regular:
        print()
    for line in regular_lines(associated):
        view.say(line)


def _print_story(story: Story, view: View) -> None:
    from tailscope.words.figures import part_text

    view.say(
        f"packet {story.seq}, sent {duration_text(story.sent_after_ns)} after the first: rank"
        f" {count_text(story.rank)} of {count_text(story.packets)} by latency. It took"
        f" {duration_text(story.latency_ns)}{_stalled_text(story)}:"
    )
    print()
    shown, others = _largest([line.share for line in story.lines], view)
    rows = [
        (
            part_text(line.part, line.cause),
            duration_text(line.waited_ns),
            f"{line.share:.1%}",
            _listed(line.details),
        )
        for line in (story.lines[at] for at in shown)
    ]
    if others:
        rest = [story.lines[at] for at in others]
        waited, share = sum(line.waited_ns for line in rest), sum(line.share for line in rest)
        rows.append((_others_text(others), duration_text(waited), f"{share:.1%}", ""))
    rows.append(("total", duration_text(story.latency_ns), "100.0%", ""))
    view.print_table(("waited for", "time", "share", "details"), [rows], ("details",))
    if story.stages_ns is None:
        return
    passed = [
        (stage, duration_text(ns), f"{ns / story.latency_ns:.1%}" if story.latency_ns else "")
        for stage, ns in story.stages_ns.items()
    ]
    view.print_table(("stage", "time", "share"), [passed])


def _stalled_text(story: Story) -> str:
    """Say how much of a packet's time may be the instrument's, if that is more than is named."""
    from tailscope.words.figures import is_doubtful

    named_ns = sum(line.waited_ns for line in story.lines if line.part == "instrument")
    if not is_doubtful(story.stalled_ns, named_ns, story.latency_ns):
        return ""
    return (
        f"; for {duration_text(story.stalled_ns)} of it the instrument itself stalled, so the"
        " packet may have left the device before, and its causes have less"
    )


def _largest(shares: Sequence[float], view: View) -> tuple[list[int], list[int]]:
    """Return the places of what is shown, and of what is added up: small shares, if several."""
    if view.verbose:
        return list(range(len(shares))), []
    others = [at for at, share in enumerate(shares) if share < _SMALL]
    if len(others) < _FEWEST_ADDED_UP:
        return list(range(len(shares))), []
    return [at for at in range(len(shares)) if at not in others], others


def _others_text(others: Sequence[int]) -> str:
    return f"{len(others)} others (-v lists them)"


def _listed(details: Sequence[str]) -> str:
    """Return the first few details of a cause."""
    more = len(details) - _MOST_DETAILS
    shown = [*details[:_MOST_DETAILS], *([f"and {more} more"] if more > 0 else [])]
    return "; ".join(shown)
