"""A tap from its first packet to its run directory."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tailscope.engine.slices import Part, merge
from tailscope.extra.tap import RECORD, WORST
from tailscope.extra.tap.judge import missed_by
from tailscope.extra.tap.listener import Listener
from tailscope.extra.tap.records import TapRecord
from tailscope.extra.tap.watch import Watch
from tailscope.host.cards import stamping
from tailscope.report.of_run import page_of
from tailscope.signals import patient
from tailscope.store import layout
from tailscope.store.atomic import write_text
from tailscope.store.directory import RunWriter, check_whole
from tailscope.store.provenance import links_info
from tailscope.store.records.base import encode
from tailscope.store.records.messages import TapKey, TapResult, TapSecond
from tailscope.store.records.plan import AnalysisPlan
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.engine.analysis import Analysis
    from tailscope.extra.tap.judge import Judge
    from tailscope.extra.tap.plan import TapPlan
    from tailscope.extra.tap.watch import Watched
    from tailscope.verdict.verdict import RunVerdict

_FIGURES = "figures"


@dataclass
class Heard:
    """What a tap has heard so far, and in the end."""

    judge: Judge | None
    seconds: int = 0
    seconds_missed: int = 0
    unresolved: int = 0
    result: TapResult | None = None
    analysis: Analysis | None = None
    verdict: RunVerdict | None = None
    _begun_s: float = field(default_factory=time.monotonic)

    def take(self, event: TapKey | TapSecond) -> None:
        """Take what is told."""
        if isinstance(event, TapSecond):
            self.seconds += 1
            self.seconds_missed += bool(event.missed_pre or event.missed_post)
            self.unresolved += event.unresolved

    def lasted_s(self) -> float:
        """Return for how long it has been heard."""
        return time.monotonic() - self._begun_s


def listen(plan: TapPlan, judge: Judge | None, take: Callable[[TapKey | TapSecond], None]) -> Heard:
    """Hear two interfaces until the time is over or somebody ends it, and write what was asked for.

    `take` hears of everything as it comes.
    """
    heard = Heard(judge)

    def both(event: TapKey | TapSecond) -> None:
        heard.take(event)
        take(event)
        if watch is not None and isinstance(event, TapSecond):
            watch.look()

    with ExitStack() as stack:
        writer = captures = watch = None
        if plan.out is not None:
            writer = stack.enter_context(RunWriter(plan.out, draw=page_of, has_packets=False))
            captures = plan.out.absolute() / WORST
            captures.mkdir(exist_ok=True)
            stack.push(partial(_remove_unless_kept, writer, captures))
        folder = stack.enter_context(RunFolder())
        figures = folder.path / _FIGURES
        place = Here(folder.path)
        if captures is not None and plan.keep:
            watch = stack.enter_context(Watch(folder, captures, plan))
        if plan.card_clock is not None:
            for link in (plan.pre, plan.post):
                stack.enter_context(stamping(link))
        with (
            patient(lambda: None) as patience,
            Listener(plan, figures, captures, place=place) as listener,
        ):
            listener.follow(
                both,
                lambda: (
                    patience.asked
                    or (plan.lasts_s is not None and heard.lasted_s() >= plan.lasts_s)
                ),
            )
            heard.result = listener.finish()
        if heard.result.tap.joined:
            heard.analysis = merge([Part.from_bytes(figures.read_bytes())])
            watched = None if watch is None else watch.finish(heard.analysis.summary)
            _conclude(plan, heard, writer, watched)
        elif writer is not None:
            writer.withdraw()
            _clear(plan.out)
    return heard


def _conclude(
    plan: TapPlan, heard: Heard, writer: RunWriter | None, watched: Watched | None
) -> None:
    assert heard.analysis is not None, "packets crossed"
    assert heard.result is not None, "it has ended"
    summary, result = heard.analysis.summary, heard.result
    tap = result.tap
    if heard.judge is not None:
        missed = missed_by(tap.pre)
        name = "tap" if plan.out is None else plan.out.name
        heard.verdict = heard.judge.judge(name, summary, missed)
    if writer is None:
        return
    record = TapRecord(
        match_on=str(summary["match_on"]),
        filter=plan.filter,
        seconds=heard.seconds,
        seconds_missed=heard.seconds_missed,
        unresolved=heard.unresolved,
        pre=tap.pre,
        post=tap.post,
        flows=tuple(tap.flows),
        alerts=() if heard.judge is None else tuple(heard.judge.end()),
        worst=() if watched is None else watched.packets,
        events_missing_because=None if watched is None else watched.missing_because,
        events_lost=0 if watched is None else watched.events_lost,
        verdict=None if heard.verdict is None else heard.verdict.record(),
    )
    write_text(writer.path / RECORD, encode(record))
    captures = sorted((writer.path / WORST).iterdir())
    writer.add([RECORD, *(f"{WORST}/{path.name}" for path in captures)])
    asked = AnalysisPlan(
        pre=plan.pre,
        post=plan.post,
        match_on=plan.match_on,
        clocks="0ns",
        trim_ns=0,
        window_ns=plan.window_ns,
        bucket_ns=plan.bucket_ns,
        worst=plan.worst,
    )
    info = replace(
        links_info(asked, summary), partial=tuple(result.partial), left_out=(layout.LATENCY,)
    )
    lacks = writer.finish(heard.analysis, info=info, bucket_ns=plan.bucket_ns)
    check_whole(writer.path, lacks)


def _remove_unless_kept(
    writer: RunWriter, captures: Path, kind: type[BaseException] | None, *_error: object
) -> None:
    """Remove captures of a tap that failed; a run that lacks only its page is kept."""
    if kind is not None and not writer.is_whole:
        remove_tree(captures)


def _clear(out: Path | None) -> None:
    """Remove the folders of a run that has no packets."""
    if out is None:
        return
    for folder in (out / WORST, out):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
