"""A browser without a window, and what a page did in it."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

SCREENSHOTS = Path(__file__).resolve().parents[1] / "target" / "screenshots"
"""What pages looked like in the last run of the tests."""

PATIENCE_MS = 60_000

_RECORD_TEXTS = """(() => {
  const draw = CanvasRenderingContext2D.prototype.fillText;
  window.texts = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...others) {
    const place = this.getTransform().transformPoint({ x, y });
    texts.push([text, place.x, place.y, this.measureText(text).width]);
    return draw.call(this, text, x, y, ...others);
  };
})()"""

_HIDDEN = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const box = each.getBoundingClientRect(), { overflowX } = getComputedStyle(each);
  const is_cut = each.scrollWidth > each.clientWidth + 1 && overflowX !== "visible";
  const is_seen = each.checkVisibility() && !each.matches(".quiet, summary");
  return is_seen && (is_cut || box.right > innerWidth + 1);
}).map((each) => `${each.tagName} ${each.className}: ${each.textContent.slice(0, 40)}`)"""


@contextmanager
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        assert not os.environ.get("CI"), "no chromium: make setup-ci installs it"
        pytest.skip("no chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program)
        try:
            yield opened
        finally:
            opened.close()


class Opened:
    """A page, and all that it asked for and complained of."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.add_init_script(_RECORD_TEXTS)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda said: (
                self.complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )

    def figures(self) -> list[str]:
        """Names of the figures that were drawn; waits until all are."""
        every = self.page.locator("figure")
        drawn = self.page.locator('figure[data-drawn="true"]')
        count = every.count()
        if count:
            drawn.nth(count - 1).wait_for(state="attached", timeout=PATIENCE_MS)
        names = [each.get_attribute("id") or "" for each in drawn.all()]
        for name in names:
            self.page.locator(f"#{name} canvas").first.wait_for(timeout=PATIENCE_MS)
        return [name.removeprefix("figure-") for name in names]

    def percentile_ticks(self) -> list[list[tuple[float, float]]]:
        """Both ends of the name of each percentile that was drawn, in rows that begin with p50."""
        rows: list[list[tuple[float, float]]] = []
        for text, x, _, width in self.page.evaluate("texts"):
            if text == "p50":
                rows.append([])
            if re.fullmatch(r"p[0-9.]+", text):
                rows[-1].append((x, x + width))
        return rows

    def hidden(self) -> list[str]:
        """Elements that reach over the side of the screen, or have more than they show."""
        return self.page.evaluate(_HIDDEN)

    def hover(self, figure: str) -> str:
        """Move over a figure until it tells something; what it tells."""
        box = self.page.locator(f"#figure-{figure} .plot")
        box.scroll_into_view_if_needed()
        size = box.bounding_box()
        assert size is not None
        tip = self.page.locator(".bk-tooltip-content")
        for part in (0.5, 0.3, 0.7, 0.4, 0.6):
            for y in range(int(size["height"]) - 60, 20, -6):
                self.page.mouse.move(size["x"] + part * size["width"], size["y"] + y)
                self.page.wait_for_timeout(20)
                if tip.count() and tip.first.is_visible():
                    return tip.first.inner_text()
        return ""


@contextmanager
def opened(
    browser: Browser, path: Path, *, width: int = 1400, theme: str = "light", shot: str = ""
) -> Iterator[Opened]:
    """Open a page from a file, wait for its figures, and take a picture of it."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
    try:
        seen = Opened(page)
        page.goto(path.resolve().as_uri())
        seen.figures()
        if shot:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SCREENSHOTS / f"{shot}-{width}-{theme}.png", full_page=True)
        yield seen
    finally:
        page.close()
