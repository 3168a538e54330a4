"""``tailscope runs publish``: a campaign as a static site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.options import argument, flag
from tailscope.cli.progress import ProgressBar
from tailscope.cli.terminal import say, say_named, tell
from tailscope.registry import require
from tailscope.units import count_text, counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope.extra.publish.neutral import Odd, Removed, Review
    from tailscope.extra.publish.site import Publication

EXAMPLE = "tailscope runs publish runs/mine site"

_AT_MOST = 20
"""Lines of each kind that are printed when a site is written; a dry run prints them all."""
_WIDTH = 100


def command(
    campaign: Annotated[Path, argument("CAMPAIGN", "The directory of a campaign.")],
    out: Annotated[Path, argument("DIR", "Empty folder, or an earlier publication to replace.")],
    packets: Annotated[
        bool | None,
        flag(
            "--with-packets/--without-packets",
            "Publish single packets and captures.  [default: if they are 100 MiB at most]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, flag("--dry-run", "Only list the files, what is taken out, and what looks odd.")
    ] = False,
) -> int:
    from tailscope.extra.publish.site import check_place, plan_site, review_site, unread, write_site

    if not dry_run:
        require("plot")
    plan = plan_site(campaign, packets=packets)
    for problem in plan.material.problems():
        tell("warning", problem)
    review = review_site(plan)
    if dry_run:
        check_place(plan, out.resolve())
        _describe(plan)
        _say_private(review)
        return 0
    _say_private(review, at_most=_AT_MOST)
    with ProgressBar("publishing", unit="runs") as bar:
        write_site(plan, out, bar.callback)
    _say_left_out(plan)
    say_named("written", str(out / "index.html"))
    if missing := list(unread(plan)):
        tell("warning", f"not published, as it cannot be used: {', '.join(missing)}")
    return 1 if missing else 0


def _describe(plan: Publication) -> None:
    total = 0
    for name, size in plan.files():
        total += size or 0
        text = "made" if size is None else count_text(size)
        say(f"{text:>15}  {name}")
    say(f"{count_text(total):>15}  bytes of data, plus generated files")
    _say_left_out(plan)


def _say_left_out(plan: Publication) -> None:
    if plan.left_out:
        size = count_text(sum(plan.left_out.values()))
        count = count_text(len(plan.left_out))
        say_named("left out", f"{count} files of single packets, {size} bytes; see --with-packets")


def _say_private(review: Review, at_most: int | None = None) -> None:
    """Show what was taken out, secrets first, and what a person has to judge."""
    from tailscope.extra.publish.private import FOLDER

    removed = sorted(review.removed, key=lambda each: (each.what == (FOLDER,), each))
    _say("taken out", ((each, review.removed[each], each.what) for each in removed[:at_most]))
    _say_rest("taken out", removed[len(removed[:at_most]) :])
    odd = sorted(review.odd)
    _say("odd", ((each, review.odd[each], each.why) for each in odd[:at_most]))
    _say_rest("odd", odd[len(odd[:at_most]) :])
    if odd:
        tell(
            "warning",
            f"{counted(len(odd), 'line')} marked odd: published as shown, so check before you put"
            " the site on a server",
        )


def _say(title: str, found: Iterable[tuple[Removed | Odd, int, Iterable[str]]]) -> None:
    is_any = False
    for each, count, reasons in found:
        times = f", {count_text(count)} times" if count > 1 else ""
        line = f"{each.where}: {_excerpt(each.shown)}  ({', '.join(reasons)}{times})"
        say_named(title, line)
        is_any = True
    if not is_any:
        say_named(title, "nothing")


def _say_rest(title: str, rest: Iterable[Removed | Odd]) -> None:
    if count := len([*rest]):
        say_named(title, f"and {counted(count, 'more line')}; --dry-run lists them all")


def _excerpt(line: str) -> str:
    """A long line around what was taken out of it."""
    from tailscope.extra.publish.private import REMOVED

    line = line.strip()
    begin = max(0, min(line.find(REMOVED) - _WIDTH // 2, len(line) - _WIDTH))
    end = begin + _WIDTH
    return f"{'... ' * (begin > 0)}{line[begin:end]}{' ...' * (end < len(line))}"
