"""``tailscope analyze``: two captures, or a folder full of pairs."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailscope.cli.options import STANDARD, JsonFile, write_json
from tailscope.exceptions import TailscopeError, UsageError
from tailscope.values import positive_duration_ns

if TYPE_CHECKING:
    from tailscope.analysis import Analysis, Sink
    from tailscope.cli.pairs import Pair

__all__ = ["command"]


def command(
    captures: Annotated[
        list[str],
        typer.Argument(
            metavar="PRE POST | DIR",
            help="Captures before and after the device (pcap or pcapng, plain, gzip or zstd; - is "
            "standard input), or a folder with pairs *-pre-* and *-post-*.",
        ),
    ],
    match_on: Annotated[
        str,
        typer.Option(
            "--match-on",
            metavar="KEY",
            help="What a packet is recognised by: auto, frame, l3, probe, or bytes:OFF+LEN,...",
        ),
    ] = "auto",
    trim: Annotated[
        str,
        typer.Option(
            "--trim", metavar="TIME", help="Drop what left up to this long after the first packet."
        ),
    ] = "0s",
    window: Annotated[
        str, typer.Option("--window", metavar="TIME", help="How long a packet may take.")
    ] = "5s",
    bucket_size: Annotated[
        str,
        typer.Option("--bucket-size", "-b", metavar="TIME", help="Bucket of the histograms."),
    ] = "100ns",
    worst: Annotated[
        int,
        typer.Option("--worst", min=0, metavar="N", help="How many of the worst packets to keep."),
    ] = 5000,
    json_file: JsonFile = None,
    csv_folder: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="DIR", help="Write the CSV files of the papers' authors into DIR."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="RUN_DIR", help="Write a run directory with a report."),
    ] = None,
) -> int:
    """Latency, loss and order between two captures of the same traffic.

    Times are written 1s, 5ms, 100ns.
    """
    from tailscope.analysis import duration_ns

    options = Options(
        match_on=match_on,
        trim_ns=duration_ns(trim, "--trim"),
        window_ns=positive_duration_ns(window, "--window"),
        bucket_ns=positive_duration_ns(bucket_size, "--bucket-size"),
        worst=worst,
        json_file=json_file,
        csv_folder=csv_folder,
        out=out,
    )
    if len(captures) == 1 and Path(captures[0]).is_dir():
        return _run_folder(Path(captures[0]), options)
    return _run_pair(_plan_pair(captures, options))


@dataclass(frozen=True)
class Options:
    """What was asked for, understood."""

    match_on: str
    trim_ns: int
    window_ns: int
    bucket_ns: int
    worst: int
    json_file: str | None
    csv_folder: Path | None
    out: Path | None


@dataclass(frozen=True)
class Plan:
    """What will be done with one pair."""

    pre: str
    post: str
    options: Options
    csv_folder: Path | None
    out: Path | None

    def record(self) -> dict[str, Any]:
        """The resolved options as ``run.json`` keeps them."""
        options = self.options
        return {
            "command": "analyze",
            "pre": self.pre,
            "post": self.post,
            "match_on": options.match_on,
            "trim_ns": options.trim_ns,
            "window_ns": options.window_ns,
            "bucket_ns": options.bucket_ns,
            "worst": options.worst,
        }


def _plan_pair(captures: list[str], options: Options) -> Plan:
    if len(captures) != 2:
        raise UsageError(
            f"expected two captures or one folder, got {len(captures)}: {', '.join(captures)}",
            hint="tailscope analyze PRE POST, or tailscope analyze DIR",
        )
    pre, post = captures
    if pre == post == STANDARD:
        raise UsageError("only one of the captures can be standard input")
    if pre == STANDARD and options.csv_folder is not None:
        raise UsageError(
            "--csv: PRE is read a second time for the keys of the worst packets, so it cannot be -"
        )
    return Plan(pre, post, options, options.csv_folder, options.out)


def _plan_found(folder: Path, pair: Pair, options: Options) -> Plan:
    """Plan one pair of a folder: its results go where the pair lies, seen from the folder."""
    for found, kind, like in ((pair.pre, "pre", pair.post), (pair.post, "post", pair.pre)):
        if found is None:
            raise UsageError(f"no {kind} capture for {like}")
    below = pair.name.relative_to(folder)
    return Plan(
        str(pair.pre),
        str(pair.post),
        options,
        options.csv_folder and options.csv_folder / below.parent,
        options.out and options.out / below.parent / below.name.split(".pcap")[0],
    )


def _run_pair(plan: Plan) -> int:
    from tailscope.cli.table import print_table

    analysis = _analyze(plan)
    json_file = plan.options.json_file
    if json_file is not None:
        write_json(json_file, _figures(analysis))
    if json_file != STANDARD:
        print_table(analysis, {"plan": plan.record()}, written=[plan.csv_folder, plan.out])
    return 0


def _run_folder(folder: Path, options: Options) -> int:
    from tailscope.cli.pairs import find_pairs
    from tailscope.cli.table import one_line
    from tailscope.text import printable

    everything: list[dict[str, Any]] = []
    failed = 0
    for pair in find_pairs(folder):
        name = str(pair.name.relative_to(folder))
        try:
            analysis = _analyze(_plan_found(folder, pair, options))
        except (TailscopeError, OSError) as error:
            failed += 1
            everything.append({"pair": name, "error": str(error)})
            print(printable(f"error: {name}: {error}"), file=sys.stderr)
            if hint := getattr(error, "hint", None):
                print(f"hint: {hint}", file=sys.stderr)
            continue
        everything.append({"pair": name, **_figures(analysis)})
        if options.json_file != STANDARD:
            print(one_line(name, analysis), flush=True)
    if options.json_file is not None:
        write_json(options.json_file, everything)
    return 1 if failed else 0


def _analyze(plan: Plan) -> Analysis:
    """Analyse one pair and write what was asked for; a failure leaves nothing behind."""
    from tailscope.analysis import analyze
    from tailscope.cli.progress import ProgressBar

    options = plan.options
    with ExitStack() as stack:
        csv_writer = run_writer = None
        sinks: list[Sink] = []
        if plan.csv_folder is not None:
            from tailscope.store.authors import CsvWriter

            csv_writer = stack.enter_context(
                CsvWriter(
                    plan.csv_folder,
                    Path(plan.pre),
                    trim_ns=options.trim_ns,
                    bucket_ns=options.bucket_ns,
                    worst=options.worst,
                )
            )
            sinks.append(csv_writer.sink)
        if plan.out is not None:
            from tailscope.store.directory import RunWriter

            run_writer = stack.enter_context(RunWriter(plan.out))
            sinks.append(run_writer.sink)
        bar = stack.enter_context(ProgressBar("analysing"))
        analysis = analyze(
            plan.pre,
            plan.post,
            match_on=options.match_on,
            trim=options.trim_ns,
            window=options.window_ns,
            worst=options.worst,
            series=False,
            sink=_to_all(sinks),
            progress=bar.callback,
        )
        if csv_writer is not None:
            csv_writer.finish(analysis)
        if run_writer is not None:
            from tailscope.report.page import page
            from tailscope.store.provenance import run_info

            run_writer.finish(
                analysis,
                info=run_info(plan.record(), analysis.summary),
                bucket_ns=options.bucket_ns,
                report=lambda run: page([run]),
            )
    return analysis


def _to_all(sinks: list[Sink]) -> Sink | None:
    if len(sinks) < 2:
        return sinks[0] if sinks else None

    def sink(*columns: Any) -> None:
        for each in sinks:
            each(*columns)

    return sink


def _figures(analysis: Analysis) -> dict[str, Any]:
    return {**analysis.summary, "warnings": list(analysis.warnings)}
