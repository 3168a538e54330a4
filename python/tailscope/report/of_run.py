"""The page of one run, as whoever writes a run directory has it drawn."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.store.run import Run


def page_of(run: Run) -> str:
    """Draw the page of a run; what draws is imported when there is something to draw."""
    from tailscope.report.page import page

    return page([run])


def prepared_page() -> Callable[[Run], str]:
    """Return `page_of`, and have what it needs imported while the packets are analysed."""
    preparing = Thread(target=_prepare, daemon=True)
    preparing.start()

    def draw(run: Run) -> str:
        preparing.join()
        return page_of(run)

    return draw


def _prepare() -> None:
    # If it fails, it fails again, and is told, when the page is drawn.
    with suppress(Exception):
        from tailscope.report.page import environment

        environment().get_template("report.html.j2")
