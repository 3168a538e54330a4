"""``tailscope watch``: the same run again and again, for days."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.fields import with_fields
from tailscope.cli.options import DryRun, Quiet, option, refuse_idle_options
from tailscope.cli.panels import MEASUREMENT, OUTPUT, TRAFFIC
from tailscope.cli.status import INTERRUPTED
from tailscope.cli.terminal import print_lines, print_plan, say
from tailscope.units import (
    count_text,
    counted,
    long_text,
    positive_duration_ns,
    quantity_text,
)

if TYPE_CHECKING:
    from tailscope.cli.live import LiveLine
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.measured import Measured
    from tailscope.extra.watch.books import Account
    from tailscope.extra.watch.figures import WatchFigures
    from tailscope.extra.watch.records import WatchedRun
    from tailscope.extra.watch.runs import Watch
    from tailscope.store.records.explanation import Explanation
    from tailscope.testbed.cores import Cores

EXAMPLE = "tailscope watch --dut l2fwd"


@with_fields("watch")
def command(
    *,
    fields: dict[str, object],
    rate: Annotated[str, option("--rate", "RATE", "Packets per second.", TRAFFIC)] = "1k",
    every: Annotated[
        str, option("--every", "DURATION", "Duration of each run.", MEASUREMENT)
    ] = "1h",
    lasts: Annotated[
        str | None,
        option(
            "--for",
            "DURATION",
            "Begin no further run after so long.  [default: go on until Ctrl-C]",
            MEASUREMENT,
        ),
    ] = None,
    keep: Annotated[
        int,
        option(
            "--keep",
            "N",
            "Number of the newest runs that keep every packet; older ones keep their figures,"
            " histograms, worst packets, stalls and kernel events.",
            OUTPUT,
            min=1,
        ),
    ] = 24,
    listen: Annotated[
        str,
        option(
            "--listen", "ADDRESS:PORT", "Where Prometheus reads metrics; none for nowhere.", OUTPUT
        ),
    ] = "127.0.0.1:9464",
    out: Annotated[
        Path | None,
        option("--out -o", "DIR", "Folder of the runs; a watch that is there goes on.", OUTPUT),
    ] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> int:
    """The first Ctrl-C, or SIGTERM, ends the run and keeps it."""
    from tailscope.experiment.fields import no_device, plan_of
    from tailscope.extra.watch.listening import place_of

    if fields.get("dut") is None:
        raise no_device()
    refuse_idle_options(fields)
    own = {"rate": rate, "duration": every, "noise": fields.get("noise") or "stalls"}
    plan = plan_of({**fields, **own, "power": "none"})
    lasts_s = None if lasts is None else positive_duration_ns(lasts, "--for") / 1e9
    where = place_of(listen)
    cores = plan.cores()
    out = out or Path("runs") / f"watch-{plan.dut}-{plan.wire}-{plan.rate_pps}pps"
    if dry_run:
        return _describe(plan, cores, out, listen)
    return _watch(plan, cores, out, keep, lasts_s, where, quiet=quiet)


def _watch(
    plan: RunPlan,
    cores: Cores,
    out: Path,
    keep: int,
    lasts_s: float | None,
    where: tuple[str, int] | None,
    *,
    quiet: bool,
) -> int:
    from tailscope.cli.live import LiveLine
    from tailscope.extra.watch.books import Account, Books
    from tailscope.extra.watch.figures import WatchFigures
    from tailscope.extra.watch.listening import address_text
    from tailscope.extra.watch.runs import Watch
    from tailscope.extra.watch.server import serving
    from tailscope.testbed.clean import clean
    from tailscope.testbed.cores import confined

    line = LiveLine(quiet=quiet)
    figures = WatchFigures(_labels(plan))
    with ExitStack() as stack:
        books = stack.enter_context(Books.open(out))
        watch = Watch(plan, cores, books, keep, lasts_s)
        watch.check()
        for left in clean():
            line.say(left.sentence)
        for run in watch.take_up(("tailscope", *sys.argv[1:])):
            _print_run(run)
        stack.enter_context(confined(cores.housekeeping))
        if where is not None:
            port = stack.enter_context(serving(figures, *where))
            line.say(f"metrics at {address_text(where[0], port)}/metrics")
        try:
            with line:
                interrupted = _follow(watch, figures, line)
        finally:
            if books.runs:
                _print_account(Account.of(books.runs), out)
    if interrupted:
        say("interrupted: everything measured until then was kept", stream=sys.stderr)
    return INTERRUPTED if interrupted else 0


def _follow(watch: Watch, figures: WatchFigures, line: LiveLine) -> bool:
    """Report a watch until it ends; return True if somebody has ended it."""
    from tailscope.cli.live import Pace
    from tailscope.store.records.messages import GeneratorProgress

    plan = watch.plan
    pace = Pace(plan.warm_up_ns / 1e9, plan.duration_ns / 1e9)

    def progress(event: GeneratorProgress) -> None:
        figures.progress(event)
        line.show(pace.parts(event))

    for run, measured in watch.runs(progress, line.say_finishing):
        figures.ended(run, _explanation(measured))
        line.clear()
        _print_run(run)
        if measured is not None and measured.interrupted:
            return True
    return False


def _explanation(measured: Measured | None) -> Explanation | None:
    """Return the explanation of a run's tail, if it was kept and explained."""
    from tailscope.store.reader import read_run

    if measured is None or measured.out is None:
        return None
    return read_run(measured.out).explanation


def _labels(plan: RunPlan) -> dict[str, str]:
    return {
        "dut": plan.dut,
        "platform": plan.platform,
        "wire": plan.wire,
        "rate_pps": str(plan.rate_pps),
    }


def _print_run(run: WatchedRun) -> None:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started_unix_ns / 1e9))
    parts: list[str] = [run.state]
    if run.figures is not None:
        latencies = (
            ("p50", run.figures.latency_ns_p50),
            ("p99.9", run.figures.latency_ns_p999),
            ("max", run.figures.latency_ns_max),
        )
        parts += [
            f"{name} {quantity_text(value / 1e9, 's')}"
            for name, value in latencies
            if value is not None
        ]
        parts.append(f"lost {count_text(run.figures.lost)} of {count_text(run.figures.sent)}")
    if run.reason is not None:
        parts.append(run.reason)
    say(f"{began}  {', '.join(parts)}")


def _print_account(account: Account, out: Path) -> None:
    times = (
        f"{long_text(account.watched_s)} of {long_text(account.lasted_s)}"
        f" in {counted(account.runs, 'run')}"
    )
    failed = f", of which {count_text(account.failed)} failed" if account.failed else ""
    packets = (
        f"{count_text(account.sent)} sent, {count_text(account.lost)} lost,"
        f" {count_text(account.unsent)} unsent"
    )
    print_lines([("watched", f"{times}{failed}"), ("packets", packets), ("written", str(out))])


def _describe(plan: RunPlan, cores: Cores, out: Path, listen: str) -> int:
    each_run = long_text(plan.duration_ns / 1e9)
    print_plan(plan, cores, [("each run", each_run), ("metrics", listen), ("out", str(out))])
    return 0
