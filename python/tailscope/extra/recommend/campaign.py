"""Tables 6 and 7 on the page of a campaign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.exceptions import RunCorruptError
from tailscope.extra.recommend.evidence import evidence_of
from tailscope.extra.recommend.tables import tables
from tailscope.extra.recommend.wording import (
    RANK_HEADER,
    TAIL_HEADER,
    rank_row,
    tail_row,
    traffic_text,
)
from tailscope.report.campaign.page import CampaignTable, CampaignTables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.extra.recommend.tables import TailTables
    from tailscope.store.run import Run

_NOTE = (
    "<code>tailscope recommend</code> draws conclusions from these tables. Security and resources"
    " are not measured here, but known from the literature."
)


def campaign_tables(runs: Mapping[str, Run]) -> CampaignTables:
    """Return the tails and ranks of those runs that recommendations may rest on, by traffic."""
    evidence = evidence_of({name: run for name, run in runs.items() if _is_readable(name, run)})
    return CampaignTables(
        "What to choose by",
        _NOTE,
        [each for table in tables(evidence) for each in _both(table)],
        [(case.number, case.name) for case in evidence.cases],
    )


def _is_readable(name: str, run: Run) -> bool:
    try:
        evidence_of({name: run})
    except RunCorruptError:
        return False
    return True


def _both(table: TailTables) -> Iterator[CampaignTable]:
    cells = [tail_row(cell) for cell in table.cells if cell.runs]
    yield CampaignTable(f"The tail {traffic_text(table)}", TAIL_HEADER, cells)
    ranks = [rank_row(row) for row in table.ranks if row.runs]
    yield CampaignTable(f"Ranks {traffic_text(table)}", RANK_HEADER, ranks)
