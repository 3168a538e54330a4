"""``tailscope analyze``: two captures, several pairs, or a folder full of pairs."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tailscope.cli.fields import option_of
from tailscope.cli.options import (
    STANDARD,
    AboutFile,
    Exact,
    JsonFile,
    Labelled,
    NamedBy,
    Verbose,
    argument,
    labels,
    option,
    write_json,
)
from tailscope.cli.status import UNDECIDED
from tailscope.cli.terminal import tell
from tailscope.exceptions import SwappedError, TailscopeError, UsageError, said
from tailscope.paths import hint_of
from tailscope.units import duration_ns, positive_duration_ns, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tailscope.cli.pairs import Pair
    from tailscope.cli.view import View
    from tailscope.experiment.run.pair import Figures, PairPlan
    from tailscope.store.about import Labels

    Plans = Mapping[str, PairPlan | UsageError]

GROUPED_BY = ("flow", "dst_port", "protocol", "size", "vlan", "tos")
"""What packets may be grouped by."""

STAMPS = ("capture", "trailer")
"""Whose times of packets are taken."""

EXAMPLE = "tailscope analyze pre.pcap post.pcap --out runs/mine"

_Captures = Annotated[
    list[str] | None,
    argument(
        "PRE POST | BOTH | DIR",
        "Captures before and after the device (pcap, pcapng, ERF, snoop or mscap, compressed or "
        "not; - is standard input), a pcapng with an interface for each, or a folder with pairs "
        "*-pre-* and *-post-*.",
    ),
]
_PreCaptures = Annotated[
    list[str] | None,
    option(
        "--pre",
        "FILE[:INTERFACE]...",
        "Capture before the device: a file, or several files or a pattern such as 'ring_*.pcap', "
        "merged by time; of a pcapng with several interfaces, the name, number or description of "
        "one; repeatable: the first --pre and the first --post are a pair, and so on.",
    ),
]
_PostCaptures = Annotated[
    list[str] | None,
    option("--post", "FILE[:INTERFACE]...", "Capture behind the device, likewise; repeatable."),
]


def command(
    captures: _Captures = None,
    pre: _PreCaptures = None,
    post: _PostCaptures = None,
    match_on: Annotated[str, option_of("match_on", own_default=True)] = "auto",
    clocks: Annotated[str, option_of("clocks", own_default=True)] = "detect",
    clock_log: Annotated[
        list[str] | None,
        option(
            "--clock-log",
            "SIDE=FILE[@SECONDS]",
            "Log of what kept the clock of pre or post: of ptp4l, phc2sys or chronyd, or what "
            "chronyc printed; packets of times at which it was off, or nothing is said, are set "
            "apart. SECONDS are added to the log's times; repeatable.",
        ),
    ] = None,
    clock_limit: Annotated[
        str,
        option(
            "--clock-limit",
            "TIME",
            "Largest offset in a --clock-log with which packets still have a latency.",
        ),
    ] = "100us",
    stamps: Annotated[
        str,
        option(
            "--stamps",
            "capture|trailer",
            "Times of packets: those of the captures, or those that a switch or a tap has put "
            "behind frames.",
        ),
    ] = "capture",
    trim: Annotated[str, option_of("trim", own_default=True)] = "0s",
    window: Annotated[str, option_of("window", own_default=True)] = "5s",
    bucket_size: Annotated[str, option_of("bucket", own_default=True)] = "100ns",
    worst: Annotated[int, option_of("worst", own_default=True)] = 5000,
    by: Annotated[
        list[str] | None,
        option(
            "--by",
            "FIELD",
            "Show figures of packets that have something in common: flow, dst_port, protocol, "
            "size, vlan or tos; repeatable.",
        ),
    ] = None,
    json_file: JsonFile = None,
    csv_folder: Annotated[
        Path | None, option("--csv", "DIR", "Write the CSV files of the papers' authors into DIR.")
    ] = None,
    out: Annotated[
        Path | None, option("--out -o", "RUN_DIR", "Write a run directory with a report.")
    ] = None,
    about: AboutFile = None,
    define: Labelled = None,
    name_pattern: NamedBy = None,
    scheduler: Annotated[
        str | None,
        option(
            "--scheduler",
            "ADDRESS",
            "Analyse several pairs on the workers of this Dask scheduler: tcp://..., "
            "tls://..., or local[:N] for N processes on this machine.",
        ),
    ] = None,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    """Write times as 1s, 5ms or 100ns."""
    from tailscope.cli.view import View
    from tailscope.engine.analysis import clock_difference

    clock_difference(clocks)
    options = Options(
        match_on=match_on,
        clocks=clocks,
        stamps=stamps,
        clock_logs=tuple(clock_log or ()),
        clock_limit_ns=positive_duration_ns(clock_limit, "--clock-limit"),
        trim_ns=duration_ns(trim, "--trim"),
        window_ns=positive_duration_ns(window, "--window"),
        bucket_ns=positive_duration_ns(bucket_size, "--bucket-size"),
        worst=worst,
        by=tuple(by or ()),
        json_file=json_file,
        csv_folder=csv_folder,
        out=out,
        scheduler=scheduler,
        labels=labels(about, define, name_pattern),
        view=View(exact, verbose),
    )
    named = captures or []
    if pre or post:
        pairs = _named_pairs(pre or [], post or [], named)
        if len(pairs) > 1:
            return _run_pairs(_plan_named(pairs, options), options)
        [named] = pairs
    if len(named) == 1 and Path(named[0]).is_dir():
        from tailscope.cli.pairs import find_pairs

        folder = Path(named[0]).absolute()
        return _run_pairs(_plans(folder, find_pairs(folder), options), options)
    if len(named) == 1:
        return _run_both(named[0], options)
    return _run_pair(_plan_pair(named, options), options)


def _named_pairs(pre: list[str], post: list[str], captures: list[str]) -> list[list[str]]:
    """Pair the captures of ``--pre`` and ``--post`` in the order in which they were given."""
    if captures:
        raise UsageError(
            f"--pre and --post name all captures: expected nothing else, got {captures[0]}",
            code="pre-post-with-captures",
        )
    if len(pre) != len(post):
        raise UsageError(
            f"--pre, --post: got {len(pre)} and {len(post)} captures, expected as many of each",
            code="pairs-uneven",
            hint="the first --pre and the first --post are a pair, and so on",
        )
    return [[before, behind] for before, behind in zip(pre, post, strict=True)]


def _run_both(path: str, options: Options) -> int:
    """Analyse a capture of two interfaces, one before and one behind the device."""
    from tailscope.cli.pairs import alike
    from tailscope.engine.analysis import interfaces

    used = [interface for interface in interfaces(path) if interface.packets]
    by_device = len({interface.number for interface in used}) < len(used)
    names = [str(one.name if by_device else one.number) for one in used]
    if len(used) == 2:
        found = [(0, 1)]
    else:
        found = alike([f"{path}:{name}" for name in names], [one.packets for one in used])
    if len(found) != 1:
        held = ", ".join(
            name if by_device else f"{name} {one.name or one.description or ''}".strip()
            for name, one in zip(names, used, strict=True)
        )
        carry = [f"{names[one]} and {names[other]}" for one, other in found]
        same = f"; the same packets are in {', '.join(carry)}" if carry else ""
        raise UsageError(
            f"{path}: expected a second capture, or packets of two interfaces in this one, got "
            f"{len(used)}{': ' if held else ''}{held}{same}",
            code="second-capture",
            hint="tailscope analyze PRE POST, or --pre FILE:INTERFACE --post FILE:INTERFACE",
        )
    before, behind = (f"{path}:{names[at]}" for at in found[0])
    if len(used) > 2:
        tell("note", f"{before} and {behind} carry the same packets, others do not")
    try:
        return _run_pair(_plan_pair([before, behind], options), options)
    except SwappedError:
        return _run_pair(_plan_pair([behind, before], options), options)


@dataclass(frozen=True)
class Options:
    """The options of an analysis."""

    match_on: str
    clocks: str
    stamps: str
    clock_logs: tuple[str, ...]
    clock_limit_ns: int
    trim_ns: int
    window_ns: int
    bucket_ns: int
    worst: int
    by: tuple[str, ...]
    json_file: str | None
    csv_folder: Path | None
    out: Path | None
    scheduler: str | None
    labels: Labels | None
    view: View

    def __post_init__(self) -> None:
        if self.out is None and self.labels is not None:
            raise UsageError(
                "--about, -D and --name-pattern describe a run: they require --out",
                code="requires-out",
            )
        for by in self.by:
            refuse_unknown("--by", by, GROUPED_BY, "by")
        refuse_unknown("--stamps", self.stamps, STAMPS, "stamps")
        if self.stamps == "trailer" and self.scheduler is not None:
            raise UsageError(
                "--stamps trailer reads a capture as a whole: expected no --scheduler",
                code="stamps-scheduler",
            )

    def plan(self, pre: str, post: str, csv_folder: Path | None, out: Path | None) -> PairPlan:
        """Plan the analysis of one pair."""
        from tailscope.cli.pairs import stem_of
        from tailscope.engine.analysis import TRAILER
        from tailscope.experiment.run.pair import PairPlan

        run_labels = None if self.labels is None else self.labels.of(Path(pre), stem_of(pre))
        stamped = TRAILER if self.stamps == "trailer" else ""
        return PairPlan(
            pre=f"{pre}{stamped}",
            post=f"{post}{stamped}",
            match_on=self.match_on,
            clocks=self.clocks,
            trim_ns=self.trim_ns,
            window_ns=self.window_ns,
            bucket_ns=self.bucket_ns,
            worst=self.worst,
            by=self.by or (() if self.json_file == STANDARD else ("protocol",)),
            csv_folder=csv_folder,
            out=out,
            about=run_labels,
        )


def _plan_pair(captures: list[str], options: Options) -> PairPlan:
    if len(captures) != 2:
        raise UsageError(
            f"expected two captures or one folder, got {len(captures)}: {', '.join(captures)}",
            code="captures",
            hint="tailscope analyze PRE POST, tailscope analyze BOTH.pcapng, or tailscope analyze "
            "DIR",
        )
    if options.scheduler is not None:
        raise UsageError(
            "--scheduler: expected several pairs or a folder of them, got two captures",
            code="scheduler-without-pairs",
            hint="tailscope analyze DIR --scheduler local",
        )
    pre, post = captures
    if pre == post == STANDARD:
        raise UsageError(
            "only one of the captures can be standard input", code="standard-input-twice"
        )
    if pre == STANDARD and options.csv_folder is not None:
        raise UsageError(
            "--csv: PRE is read a second time for the keys of the worst packets, so it cannot be -",
            code="csv-standard-input",
        )
    plan = options.plan(pre, post, options.csv_folder, options.out)
    if not options.clock_logs:
        return plan
    from tailscope.registry import service

    clock_doubts = service("clock_doubts", "--clock-log")
    sides = {"pre": plan.pre, "post": plan.post}
    doubts = clock_doubts(options.clock_logs, options.clock_limit_ns, sides)
    return replace(plan, clock_doubts=doubts)


def _plan_named(pairs: list[list[str]], options: Options) -> Plans:
    """Plan several pairs as those of the folder that all of them lie in."""
    from tailscope.cli.pairs import Pair

    if STANDARD in {capture for pair in pairs for capture in pair}:
        raise UsageError(
            "--pre, --post: got -, expected files: there are several pairs",
            code="pairs-standard-input",
        )
    named_pairs = [Pair(*(Path(capture).absolute() for capture in pair)) for pair in pairs]
    names = [pair.name for pair in named_pairs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"--pre: got {name} twice: results are called after it", code="pair-name-twice"
            )
    return _plans(Path(os.path.commonpath([name.parent for name in names])), named_pairs, options)


def _plans(folder: Path, pairs: list[Pair], options: Options) -> Plans:
    if options.clock_logs:
        raise UsageError(
            f"--clock-log: got {options.clock_logs[0]} for {len(pairs)} pairs, expected one pair",
            code="clock-log-pairs",
        )
    return {
        str(pair.name.relative_to(folder)): _plan_found(folder, pair, options) for pair in pairs
    }


def _plan_found(folder: Path, pair: Pair, options: Options) -> PairPlan | UsageError:
    """Plan one pair of a folder: its results go where the pair lies, seen from the folder."""
    for capture, kind, like in ((pair.pre, "pre", pair.post), (pair.post, "post", pair.pre)):
        if capture is None:
            return UsageError(f"no {kind} capture for {like}", code="capture-unpaired")
    from tailscope.cli.pairs import stem_of

    below = pair.name.relative_to(folder)
    try:
        return options.plan(
            str(pair.pre),
            str(pair.post),
            options.csv_folder and options.csv_folder.absolute() / below.parent,
            options.out and options.out.absolute() / below.parent / stem_of(below.name),
        )
    except UsageError as error:
        return error


def _run_pair(plan: PairPlan, options: Options) -> int:
    from tailscope.cli.figures import print_groups, print_table
    from tailscope.cli.progress import ProgressBar
    from tailscope.experiment.run.pair import analyze_pair
    from tailscope.report.of_run import page_of, prepared_page
    from tailscope.words.figures import nothing_told

    draw = page_of if plan.out is None else prepared_page()
    with ProgressBar("analysing") as bar:
        figures = analyze_pair(plan, draw, bar.callback)
    if options.json_file is not None:
        write_json(options.json_file, figures.record())
    if options.json_file != STANDARD:
        protocols = figures.groups.get("protocol", ())
        print_table(figures, plan.record(), [plan.csv_folder, plan.out], options.view, protocols)
        print_groups(figures, options.by, options.view)
    return UNDECIDED if nothing_told(figures.summary) else 0


def _run_pairs(plans: Plans, options: Options) -> int:
    from tailscope.cli.figures import one_line

    everything: list[dict[str, Any]] = []
    failed = 0
    with closing(_analyses(plans, options)) as analyses:
        for name, figures in zip(plans, analyses, strict=True):
            if isinstance(figures, Exception):
                failed += 1
                everything.append({"pair": name, "error": said(figures)})
                tell("error", f"{name}: {said(figures)}")
                if hint := hint_of(figures):
                    tell("hint", hint)
                continue
            everything.append({"pair": name, **figures.record()})
            if options.json_file != STANDARD:
                options.view.say(one_line(name, figures, figures.groups.get("protocol", ())))
                sys.stdout.flush()
    if options.json_file is not None:
        write_json(options.json_file, everything)
    return 1 if failed else 0


def _analyses(plans: Plans, options: Options) -> Generator[Figures | Exception]:
    """Return the figures of each pair in their order, or the reason why it has none."""
    if options.scheduler is None:
        return _in_turn(plans)
    folders = [folder.absolute() for folder in (options.out, options.csv_folder) if folder]
    return _on_workers(plans, options.scheduler, folders)


def _in_turn(plans: Plans) -> Generator[Figures | Exception]:
    from tailscope.cli.progress import ProgressBar
    from tailscope.experiment.run.pair import analyze_pair
    from tailscope.report.of_run import page_of

    for plan in plans.values():
        if isinstance(plan, UsageError):
            yield plan
            continue
        figures: Figures | Exception
        try:
            with ProgressBar("analysing") as bar:
                figures = analyze_pair(plan, page_of, bar.callback)
        except (TailscopeError, OSError) as error:
            figures = error
        yield figures


def _on_workers(
    plans: Plans, scheduler: str, folders: list[Path]
) -> Generator[Figures | Exception]:
    from tailscope.cli.progress import TasksBar
    from tailscope.registry import service

    analyze_pairs = service("analyze_pairs", "--scheduler")
    planned = [plan for plan in plans.values() if not isinstance(plan, UsageError)]
    with TasksBar("pairs") as bar:
        analyses = analyze_pairs(scheduler, planned, folders, progress=bar.show)
        with closing(analyses):
            for plan in plans.values():
                yield plan if isinstance(plan, UsageError) else next(analyses)
