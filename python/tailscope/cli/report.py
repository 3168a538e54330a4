"""``tailscope report``: one page, or figures, of runs together or of a campaign."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailscope.cli.options import RunLabels, argument, flag, labelled, option
from tailscope.cli.terminal import say, tell
from tailscope.exceptions import UsageError
from tailscope.registry import formats as added_formats
from tailscope.registry import require, service, writer_of
from tailscope.report.formats import FORMATS, STYLES
from tailscope.store.layout import REPORT
from tailscope.units import did_you_mean, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tailscope.report.campaign.material import CampaignReading

EXAMPLE = "tailscope report runs/1 runs/2 --out both.html"

_TRACE = ".pftrace"
_FIGURES = ",".join(FORMATS)


def command(
    runs: Annotated[
        list[Path],
        argument("RUN...|CAMPAIGN", "Run directories, folders of them, or a campaign's."),
    ],
    label: RunLabels = None,
    out: Annotated[
        Path | None,
        option(
            "--out -o",
            "FILE",
            "File of the page; report.html (in a campaign's directory) unless --figures is given.",
        ),
    ] = None,
    figures: Annotated[
        Path | None, option("--figures", "DIR", "Write each figure, and a CSV of its data.")
    ] = None,
    formats: Annotated[
        str,
        option(
            "--format",
            "LIST",
            "Formats of the figures; or one that an addition writes a run in, such as perfetto:"
            " with --out PAGE.html beside the page, which leads to it.",
        ),
    ] = _FIGURES,
    style: Annotated[
        str, option("--style", "NAME", "Style: screen, or paper for one of two columns.")
    ] = STYLES[0],
    trace: Annotated[
        bool,
        typer.Option("--trace", hidden=True),
    ] = False,
    pages: Annotated[
        bool, flag("--pages", "For a campaign: also redraw the page of each run.")
    ] = False,
    scheduler: Annotated[
        str | None,
        option(
            "--scheduler",
            "ADDRESS",
            "For a campaign: read and draw its runs on the workers of this Dask"
            " scheduler: tcp://..., tls://..., or local[:N] for N processes on this machine.",
        ),
    ] = None,
) -> int:
    if trace:
        tell("note", "`report --trace` is now `report --format perfetto --out PAGE.html`")
    elif formats in added_formats() and out is not None and out.suffix == ".html":
        trace, formats = True, _FIGURES
    if formats in added_formats():
        others = (label, figures, trace, pages, scheduler)
        return _write_as(formats, runs, out, alone=not any(others) and style == STYLES[0])
    plan = _plan(runs, label, out, figures, formats, style, trace, pages, scheduler)
    written = _run_campaign(plan) if plan.campaign is not None else _run(plan)
    for path in written:
        say(str(path))
    return 0


def _write_as(name: str, runs: list[Path], out: Path | None, *, alone: bool) -> int:
    """Write a run in a format that a folder of the wing has, and say what was written."""
    if len(runs) > 1 or not alone:
        raise UsageError(
            f"--format {name}: expected a single run, and no other option than --out",
            code="format-alone",
        )
    for line in writer_of(name)(runs[0], out):
        say(line)
    return 0


@dataclass(frozen=True)
class ReportRequest:
    """The figures to draw: of runs by label, or of a campaign."""

    runs: dict[str, Path]
    campaign: Path | None
    out: Path | None
    figures: Path | None
    formats: tuple[str, ...]
    style: str
    trace: Path | None
    pages: bool
    scheduler: str | None


def _plan(
    runs: list[Path],
    label: list[str] | None,
    out: Path | None,
    figures: Path | None,
    formats: str,
    style: str,
    trace: bool,
    pages: bool,
    scheduler: str | None,
) -> ReportRequest:
    wanted = tuple(dict.fromkeys(name.strip().lower() for name in formats.split(",")))
    for name in wanted:
        if name not in FORMATS:
            raise UsageError(
                f"--format: got {name!r}, expected some of {', '.join(FORMATS)}",
                code="format",
                hint=did_you_mean(name, [*FORMATS, *added_formats()]),
            )
    refuse_unknown("--style", style, STYLES, "style")
    if figures is not None:
        require("plot")
    from tailscope.store.campaign import is_campaign
    from tailscope.store.files import runs_at

    runs = [each for path in runs for each in (not is_campaign(path) and runs_at(path)) or [path]]
    campaigns = [path for path in runs if is_campaign(path)]
    if campaigns and len(runs) > 1:
        raise UsageError(
            f"expected runs or a single campaign, got {campaigns[0]} with others",
            code="campaign-with-others",
        )
    campaign = campaigns[0] if campaigns else None
    if campaign is None and (pages or scheduler is not None):
        raise UsageError("--pages and --scheduler require a campaign", code="requires-campaign")
    if campaign is not None and label:
        raise UsageError(
            "--label names runs; the page of a campaign names them by what was varied",
            code="label-campaign",
        )
    if out is None and figures is None:
        out = Path(REPORT) if campaign is None else campaign / REPORT
        _refuse_other(out)
    if trace and (out is None or campaign is not None or len(runs) > 1):
        raise UsageError(
            "--format perfetto --out PAGE.html requires a single run, and no campaign",
            code="requires-single-run",
        )
    beside = out.with_suffix(_TRACE) if trace and out is not None else None
    labels = {} if campaign else labelled(runs, label)
    return ReportRequest(labels, campaign, out, figures, wanted, style, beside, pages, scheduler)


def _refuse_other(page: Path) -> None:
    """Raise an error for a file that nobody named and that is no page of tailscope's."""
    from tailscope.report.page import is_page

    if page.exists() and not is_page(page):
        raise UsageError(
            f"{page} is there already, and is no page of tailscope's",
            code="other-page",
            hint="--out FILE names another file, or this one, which is replaced then",
        )


def _run_campaign(plan: ReportRequest) -> list[Path]:
    from tailscope.report.campaign.material import read_material

    assert plan.campaign is not None
    read_runs = None if plan.scheduler is None else service("read_runs", "--scheduler")
    material = read_material(plan.campaign.absolute(), partial(_readings, plan, read_runs))
    for problem in material.problems():
        tell("warning", problem)
    written: list[Path] = []
    if plan.figures is not None:
        from tailscope.report.campaign.files import write_families

        written += write_families(material, plan.figures, plan.formats, plan.style)
    if plan.out is not None:
        from tailscope.report.campaign.page import campaign_page
        from tailscope.report.page import address_of
        from tailscope.store.atomic import write_text

        way = os.path.relpath(plan.campaign.resolve(), plan.out.resolve().parent)
        text = campaign_page(material, lambda name: address_of(f"{way}/{name}/{REPORT}"))
        write_text(plan.out, text)
        written.append(plan.out)
    return written


def _readings(
    plan: ReportRequest, read_runs: Any, path: Path, names: Sequence[str]
) -> Iterable[CampaignReading]:
    """Read the runs of a campaign, here or on workers."""
    from tailscope.report.campaign.material import draw_one, read_one

    take = partial(draw_one if plan.pages else read_one, path)
    if read_runs is None:
        return map(take, names)
    return _with_progress(
        partial(read_runs, plan.scheduler, path, names, take, is_written=plan.pages)
    )


def _with_progress(
    read_runs: Callable[..., Iterable[CampaignReading]],
) -> Iterator[CampaignReading]:
    from tailscope.cli.progress import TasksBar

    with TasksBar("runs", "runs") as bar:
        yield from read_runs(progress=bar.show)


def _run(plan: ReportRequest) -> list[Path]:
    from tailscope.store.reader import read_run

    write_trace = None if plan.trace is None else service("write_trace", "--trace")
    runs = [read_run(path, label=label) for label, path in plan.runs.items()]
    written: list[Path] = []
    if plan.figures is not None:
        from tailscope.report.drawing import write_pictures
        from tailscope.report.figures import pictures
        from tailscope.report.formats import LOOKS
        from tailscope.report.material import Material

        drawn = pictures([Material(run) for run in runs])
        written += write_pictures(drawn, plan.figures, plan.formats, LOOKS[plan.style])
    if plan.out is not None:
        from tailscope.report.page import address_of, page
        from tailscope.store.atomic import replacing, write_text

        address = ""
        if plan.trace is not None and write_trace is not None:
            with replacing(plan.trace) as file:
                write_trace(next(iter(plan.runs.values())), file)
            written.append(plan.trace)
            address = address_of(plan.trace.name)
        write_text(plan.out, page(runs, trace=address))
        written.append(plan.out)
    measured = [run for run in runs if run.info.instrument is not None]
    if measured:
        from tailscope.words.figures import reading

        say(reading([(run.summary, run.info) for run in measured]))
    return written
