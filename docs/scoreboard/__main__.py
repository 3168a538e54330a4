"""``python -m docs.scoreboard FILE``: the page of what ``calibrate --instruments`` wrote."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from docs.scoreboard import pictures

from tailscope.report.drawing import write_pictures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAGE = Path(__file__).parents[1] / "scoreboard.md"
FOLDER = PAGE.parent / "pictures"
TEMPLATE = Path(__file__).with_name("template.txt")
METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
OURS = ("tailscope-memif", "tailscope")
_DOUBTFUL_SHARE = 0.1
_DOUBT = (
    "**The devices could not keep their laws beside so much else: this run shows what the page has"
    " to show, and does not rank the instruments.**\n"
)
_UNITS = {"s": 1e9, "ms": 1e6, "µs": 1e3}
QUANTILES = ("p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "p99.9999")


def page(board: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    return TEMPLATE.read_text().format(
        instruments=len(board["instruments"]),
        truths=len(board["truths"]),
        rate=board["rate_pps"],
        duration=f"{board['duration_ns'] / 1e9:g} s",
        repeats=_repeats(board),
        cpus=board["cpus"],
        others=f"{board['others_cpu_share']:.1%}",
        doubt=_DOUBT if board["others_cpu_share"] > _DOUBTFUL_SHARE else "",
        picture_quantile=pictures.QUANTILE,
        devices=_table(("name", "device"), board["truths"].items()),
        tables="\n\n".join(_truth(board, truth) for truth in board["truths"]),
        configurations=", ".join(_configurations(board)),
        ranks=_ranks(board),
        losses=_losses(board),
        versions=_table(
            ("instrument", "what it measures", "version"),
            (
                (name, each["about"], each["version"] or "not installed")
                for name, each in board["instruments"].items()
            ),
        ),
        missing=_table(("instrument", "why"), board["not_to_be_had"].items()),
        failures=_failures(board),
    )


def _repeats(board: dict[str, Any]) -> str:
    done = [cell["repeats"] for cell in board["cells"]]
    few, many = min(done), max(done)
    count = f"{few} to {many} of {board['repeats']}" if few < many else str(many)
    if many == 1:
        return "one measurement of each"
    return (
        f"{count} repeats (an interval of {many} holds the median with {1 - 2 ** (1 - many):.0%})"
    )


def _configurations(board: dict[str, Any]) -> list[str]:
    return [
        name for name in board["truths"] if any(name in each["order"] for each in board["rankings"])
    ]


def _truth(board: dict[str, Any], truth: str) -> str:
    cells = {
        (cell["instrument"], cell["quantile"]): cell
        for cell in board["cells"]
        if cell["truth"] == truth
    }
    shown = [
        name
        for name in (*QUANTILES, "mean", "lost", "reordered")
        if any(quantile == name for _, quantile in cells)
        and (name not in ("lost", "reordered") or _is_told(cells.values(), name))
    ]
    true = {cell["quantile"]: cell for cell in cells.values()}
    rows = [("**truth**", *(f"**{_value(true[name], 'true')}**" for name in shown))]
    rows += [
        (instrument, *(_measured(cells.get((instrument, name))) for name in shown))
        for instrument in board["instruments"]
        if any((instrument, name) in cells for name in shown)
    ]
    return f"### {truth.capitalize()}: {board['truths'][truth]}\n\n" + _table(("", *shown), rows)


def _is_told(cells: Iterable[dict[str, Any]], name: str) -> bool:
    return any(cell["quantile"] == name and (cell["true"] or cell["measured"]) for cell in cells)


def _value(cell: dict[str, Any], name: str) -> str:
    value = cell[name]
    if cell["unit"] == "share":
        return f"{value:.1%}"
    for unit, ns in _UNITS.items():
        if value >= ns:
            return f"{value / ns:.3g} {unit}"
    return f"{value:.3g} ns"


def _measured(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "-"
    measured = _value(cell, "measured")
    if cell["repeats"] == 1:
        return measured
    return f"{measured} [{_value(cell, 'ci_low')}, {_value(cell, 'ci_high')}]"


def _ranks(board: dict[str, Any]) -> str:
    ours = [each for each in board["rankings"] if each["statistic"] == pictures.RANKED_BY]
    return _table(
        ("instrument", "order", "correlation"),
        (
            (
                each["instrument"],
                " < ".join(each["order"]),
                f"{each['tau']:.2f} [{each['ci_low']:.2f}, {each['ci_high']:.2f}]",
            )
            for each in ours
        ),
    )


def _losses(board: dict[str, Any]) -> str:
    """Say which figures an instrument other than tailscope told more truly."""
    rows, cases = [], 0
    for truth in board["truths"]:
        for name in (*QUANTILES, "mean", "lost", "reordered"):
            cells = [
                cell
                for cell in board["cells"]
                if (cell["truth"], cell["quantile"]) == (truth, name)
            ]
            ours = [cell for cell in cells if cell["instrument"] in OURS]
            if not ours:
                continue
            cases += 1
            mine = min(map(_error, ours))
            nearer = sorted((cell for cell in cells if _error(cell) < mine), key=_error)
            if nearer:
                best, own = nearer[0], min(ours, key=_error)
                rows.append(
                    (
                        f"{truth}, {name}",
                        _value(own, "true"),
                        f"{own['instrument']}: {_value(own, 'measured')}",
                        f"{best['instrument']}: {_value(best, 'measured')}",
                        str(len(nearer)),
                    )
                )
    text = (
        f"Of {cases} figures that tailscope tells, another instrument was nearer to the truth in"
        f" {len(rows)}."
    )
    header = ("figure", "true", "tailscope's nearest", "the nearest", "nearer in all")
    return f"{text}\n\n{_table(header, rows)}" if rows else text


def _error(cell: dict[str, Any]) -> float:
    return abs(cell["measured"] - cell["true"])


def _failures(board: dict[str, Any]) -> str:
    if not board["failures"]:
        return ""
    rows = ((each["instrument"], each["truth"], each["reason"]) for each in board["failures"])
    table = _table(("instrument", "device", "reason of the last failure"), rows)
    return f"\nMeasurements that failed at least once:\n\n{table}\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(header)}", *lines[1:]])


def main() -> None:
    """Write the page and its pictures."""
    parser = argparse.ArgumentParser(prog="python -m docs.scoreboard", description=__doc__)
    parser.add_argument("board", type=Path, metavar="FILE")
    board = json.loads(parser.parse_args().board.read_text())
    with TemporaryDirectory() as temporary:
        drawn = Path(temporary)
        write_pictures([pictures.errors(board), pictures.rankings(board)], drawn, ["svg"])
        for picture in sorted(drawn.glob("*.svg")):
            (FOLDER / picture.name).write_text(METADATA.sub("", picture.read_text()))
    PAGE.write_text(page(board))


if __name__ == "__main__":
    main()
