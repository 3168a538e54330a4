"""The page of one run, as whoever writes a run directory has it drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailscope.store.run import Run


def page_of(run: Run) -> str:
    """Draw the page of a run; what draws is imported when there is something to draw."""
    from tailscope.report.page import page

    return page([run])
