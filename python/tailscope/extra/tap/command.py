"""``tailscope tap``: what crosses two interfaces, matched while it comes."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from tailscope.cli.fields import option_of
from tailscope.cli.options import STANDARD, DryRun, Quiet, argument, flag, option
from tailscope.cli.panels import MEASUREMENT, OUTPUT, TRAFFIC
from tailscope.cli.status import OF_VERDICTS, UNDECIDED
from tailscope.cli.terminal import say, tell
from tailscope.exceptions import UsageError
from tailscope.units import (
    count_text,
    counted,
    duration_text,
    positive_duration_ns,
    quantity_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from tailscope.engine.analysis import Figure, Quantile
    from tailscope.extra.tap.judge import Judge
    from tailscope.extra.tap.metrics import TapMetrics
    from tailscope.extra.tap.plan import TapPlan
    from tailscope.extra.tap.session import Heard
    from tailscope.store.records.messages import TapKey, TapSecond
    from tailscope.verdict.verdict import RunVerdict

EXAMPLE = "tailscope tap eth0 eth1 --filter udp --slo 'p99.9<1ms, loss<1e-4'"

_COLUMNS = {
    "time": 8,
    "packets": 9,
    "p50": 11,
    "p99": 11,
    "p99.9": 11,
    "max": 9,
    "lost": 13,
    "missed": 7,
}
_HEADER_EVERY = 20
_SUPPORT = 10
"""Packets beyond a quantile that it takes to tell it."""
_NOTHING = "-"
_FEW_AMBIGUOUS = 100
"""One ambiguous packet of so many is not worth a word."""


def command(
    pre: Annotated[str, argument("IN", "Interface by which packets come.")],
    post: Annotated[str, argument("OUT", "Interface by which they leave.")],
    filter_text: Annotated[
        str | None,
        option("--filter", "EXPR", "Packets to match, as tcpdump selects them.", TRAFFIC),
    ] = None,
    taps: Annotated[
        bool,
        flag(
            "--taps",
            "Packets come in by OUT, too: taps or mirror ports feed both interfaces.",
            TRAFFIC,
        ),
    ] = False,
    stamps: Annotated[
        str,
        option(
            "--stamps",
            "WHO",
            "Who takes the times of frames: kernel, or with --taps card, the clock that both"
            " interfaces share.",
            TRAFFIC,
        ),
    ] = "kernel",
    match_on: Annotated[str, option_of("match_on", own_default=True)] = "auto",
    window: Annotated[str, option_of("window", own_default=True)] = "1s",
    lasts: Annotated[
        str | None,
        option("--for", "DURATION", "End after so long.  [default: Ctrl-C ends it]", MEASUREMENT),
    ] = None,
    slo: Annotated[
        list[str] | None,
        option(
            "--slo",
            "LEVEL",
            "Level, such as 'p99.9<1ms, loss<1e-4, max<2ms', or a name as of `tailscope verify`:"
            " seconds that do not meet it are alerted; repeatable.",
            MEASUREMENT,
        ),
    ] = None,
    bucket_size: Annotated[str, option_of("bucket", own_default=True)] = "100ns",
    worst: Annotated[int, option_of("worst", own_default=True)] = 5000,
    keep: Annotated[
        int,
        option(
            "--keep",
            "N",
            "Number of the worst packets, one a second at most, around which 5 ms of both"
            " interfaces are kept as captures in the run.",
            OUTPUT,
            min=0,
        ),
    ] = 20,
    out: Annotated[
        Path | None, option("--out -o", "RUN_DIR", "Write a run directory in the end.", OUTPUT)
    ] = None,
    json_file: Annotated[
        str | None,
        option(
            "--json",
            "FILE",
            "Write each second as a line of JSON, and all figures as the last one; - is standard"
            " output.",
            OUTPUT,
        ),
    ] = None,
    openmetrics: Annotated[
        str | None,
        option(
            "--openmetrics",
            "FILE|[ADDRESS]:PORT",
            "Write metrics into FILE every second, or serve them for Prometheus.",
            OUTPUT,
        ),
    ] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> int:
    """Exit status with --slo: 0: met; 2: not met; 3: not enough evidence, or nothing crossed."""
    from tailscope.extra.tap.cards import clock_of_cards
    from tailscope.extra.tap.filters import compiled
    from tailscope.extra.tap.listener import check_links
    from tailscope.extra.tap.plan import TapPlan, refuse_unknown_terms
    from tailscope.verdict.slo import parse_level

    level = parse_level(", ".join(slo)) if slo else None
    if level is not None:
        refuse_unknown_terms(level)
    if match_on == "tcp-bytes":
        raise UsageError(
            "--match-on: streams of TCP are matched once they are there as a whole",
            code="tap-streams",
            hint="capture both interfaces, and use `tailscope analyze --match-on tcp-bytes`",
        )
    window_ns = positive_duration_ns(window, "--window")
    bucket_ns = positive_duration_ns(bucket_size, "--bucket-size")
    lasts_s = None if lasts is None else positive_duration_ns(lasts, "--for") / 1e9
    check_links(pre, post)
    card_clock = clock_of_cards(stamps, (pre, post), taps=taps)
    plan = TapPlan(
        pre=pre,
        post=post,
        taps=taps,
        card_clock=card_clock,
        filter=filter_text or "",
        program=compiled(filter_text or ""),
        match_on=match_on,
        window_ns=window_ns,
        bucket_ns=bucket_ns,
        worst=worst,
        keep=keep if out is not None else 0,
        lasts_s=lasts_s,
        level=level,
        out=out,
        json_file=json_file,
        metrics=openmetrics,
    )
    if dry_run:
        for name, text in plan.lines:
            print(f"{name:<15}{text}")
        return 0
    return _run(plan, quiet=quiet)


def _run(plan: TapPlan, *, quiet: bool) -> int:
    from tailscope.extra.tap.judge import Judge
    from tailscope.extra.tap.metrics import TapMetrics, publishing
    from tailscope.extra.tap.session import listen

    judge = None if plan.level is None else Judge(plan.level, plan.limits_ns)
    metrics = TapMetrics(plan, judge)
    with ExitStack() as stack:
        file, address = stack.enter_context(publishing(metrics, plan.metrics))
        lines = stack.enter_context(_open(plan.json_file)) if plan.json_file else None
        rows = not quiet and plan.json_file != STANDARD
        if address:
            say(f"metrics at {address}", stream=sys.stderr)
        view = _View(plan, judge, metrics, file, lines, rows=rows)
        heard = listen(plan, judge, view.take)
        view.end(heard)
    if heard.analysis is None:
        tell(
            "warning",
            f"no packet that came by {plan.pre} was seen on {plan.post}: there are no figures",
        )
        tell(
            "hint",
            "IN and OUT the other way round; --taps, if packets come in by both; a wider"
            " --filter; or another --match-on",
        )
        return UNDECIDED
    if plan.json_file != STANDARD:
        _print_end(plan, heard)
    _tell_ambiguous(heard.analysis.summary)
    return 0 if heard.verdict is None else OF_VERDICTS[heard.verdict.outcome]


def _open(file: str) -> AbstractContextManager[TextIO]:
    return nullcontext(sys.stdout) if file == STANDARD else Path(file).open("w", encoding="utf-8")


class _View:
    """Shows each second, and hands it on."""

    def __init__(
        self,
        plan: TapPlan,
        judge: Judge | None,
        metrics: TapMetrics,
        file: Path | None,
        lines: TextIO | None,
        *,
        rows: bool,
    ) -> None:
        self._plan, self._judge, self._metrics = plan, judge, metrics
        self._file, self._lines, self._rows = file, lines, rows
        self._shown = 0

    def take(self, event: TapKey | TapSecond) -> None:
        from tailscope.extra.tap.metrics import write_metrics
        from tailscope.store.records.messages import TapKey

        if isinstance(event, TapKey):
            say(f"packets cross: matched on {event.match_on}", stream=sys.stderr)
            return
        changes = [] if self._judge is None else self._judge.take(event)
        self._metrics.take(event)
        write_metrics(self._metrics, self._file)
        self._write(_record_of(event))
        if self._rows:
            self._show(event)
        for term, violated in changes:
            what = "not met" if violated else "met again"
            say(f"alert: {_clock(event)} {term}: {what}", stream=sys.stderr)

    def end(self, heard: Heard) -> None:
        self._write(_record_at_end(heard))

    def _write(self, record: dict[str, object]) -> None:
        if self._lines is not None:
            self._lines.write(json.dumps(record, allow_nan=False) + "\n")
            self._lines.flush()

    def _show(self, second: TapSecond) -> None:
        if self._shown % _HEADER_EVERY == 0:
            print("  ".join(f"{name:>{width}}" for name, width in _COLUMNS.items()))
        self._shown += 1
        cells = (
            _clock(second),
            count_text(second.sent),
            *_quantile_texts(second),
            _time_text(second.latency_ns_max),
            _lost_text(second.lost, second.unresolved),
            count_text(second.missed_pre + second.missed_post),
        )
        row = zip(cells, _COLUMNS.values(), strict=True)
        print("  ".join(f"{cell:>{width}}" for cell, width in row), flush=True)


def _clock(second: TapSecond) -> str:
    return f"{datetime.fromtimestamp(second.start_unix_ns // 10**9, UTC):%H:%M:%S}"


def _quantile_texts(second: TapSecond) -> list[str]:
    """Write quantiles; one that fewer than ten packets lie beyond says nothing of other seconds."""
    from tailscope.extra.tap.listener import QUANTILES

    if not second.matched:
        return [_NOTHING] * len(QUANTILES)
    return [
        f"{_time_text(ns)}{'' if (1 - q) * second.matched >= _SUPPORT else ' *'}"
        for q, ns in zip(QUANTILES, second.latency_ns_quantiles, strict=True)
    ]


def _time_text(ns: int | None) -> str:
    return _NOTHING if ns is None else quantity_text(ns / 1e9, "s")


def _lost_text(lost: int, unresolved: int) -> str:
    """Say how many were lost: a bound, where frames were missed that tell."""
    least = count_text(lost)
    return f"{least}..{count_text(lost + unresolved)}" if unresolved else least


def _record_of(second: TapSecond) -> dict[str, object]:
    from tailscope.store.records.base import as_content

    return as_content(second)


def _record_at_end(heard: Heard) -> dict[str, object]:
    from tailscope.store.records.base import as_content

    assert heard.result is not None, "it has ended"
    summary = {} if heard.analysis is None else dict(heard.analysis.summary)
    tap = as_content(heard.result.tap)
    verdict = None if heard.verdict is None else as_content(heard.verdict.record())
    return {"event": "end", "summary": summary, "tap": tap, "verdict": verdict}


def _tell_ambiguous(summary: Mapping[str, Figure]) -> None:
    """Say why many packets are ambiguous, and what tells them apart."""
    ambiguous, sent = int(summary["ambiguous"] or 0), int(summary["sent"] or 0)
    if ambiguous * _FEW_AMBIGUOUS <= sent:
        return
    tell(
        "warning",
        f"{counted(ambiguous, 'packet')} of {count_text(sent)} are alike by {summary['match_on']},"
        " as retransmissions and empty acknowledgements of TCP are: they are neither matched nor"
        " lost",
    )
    tell(
        "hint",
        "if nothing between the interfaces changes addresses, --match-on l3; behind NAT, --filter"
        " without TCP, or capture both interfaces and use `tailscope analyze --match-on tcp-bytes`",
    )


def _print_end(plan: TapPlan, heard: Heard) -> None:
    from tailscope.cli.table import print_table
    from tailscope.extra.tap.judge import missed_by

    assert heard.analysis is not None, "packets crossed"
    assert heard.result is not None, "it has ended"
    summary, tap = heard.analysis.summary, heard.result.tap
    quantiles = heard.analysis.quantiles([0.5, 0.99, 0.999])
    times = ", ".join(
        f"{name} {_quantile_text(quantile)}"
        for name, quantile in zip(("p50", "p99", "p99.9"), quantiles, strict=True)
    )
    longest = summary["latency_ns_max"]
    print(
        f"\n{counted(int(summary['sent'] or 0), 'packet')} in {heard.lasted_s():.0f} s: {times}",
        end="",
    )
    print(f", max {duration_text(longest)}" if isinstance(longest, int) else "")
    lost = _lost_text(int(summary["lost"] or 0), int(summary["outside"] or 0))
    missed = missed_by(tap.pre) + missed_by(tap.post)
    print(f"lost {lost}, missed by the tap {count_text(missed)}, matched on {summary['match_on']}")
    flows = [
        (
            flow.flow,
            count_text(flow.sent),
            count_text(flow.lost),
            _time_text(flow.latency_ns_p50),
            _time_text(flow.latency_ns_p99),
            _time_text(flow.latency_ns_max),
        )
        for flow in tap.flows[:10]
    ]
    print()
    print_table(("flow", "sent", "lost", "p50", "p99", "max"), [flows])
    if heard.verdict is not None:
        _print_verdict(heard.verdict)
    if plan.out is not None:
        say(f"{plan.out}", stream=sys.stderr)


def _quantile_text(quantile: Quantile) -> str:
    """Write a quantile, or the least that it is where fewer than ten packets lie beyond."""
    if quantile.supported:
        return duration_text(quantile.value_ns)
    return _NOTHING if quantile.ci_low_ns is None else f"≥ {duration_text(quantile.ci_low_ns)}"


def _print_verdict(verdict: RunVerdict) -> None:
    print()
    for term in verdict.terms:
        beyond = term.as_is.beyond
        of = f"{count_text(term.as_is.packets)} packets"
        found = of if beyond is None else f"{count_text(beyond)} beyond of {of}"
        why = f": {'; '.join(term.reasons)}" if term.reasons else ""
        print(f"{term.outcome}: {term.term.text} ({found}){why}")
