"""Reports as a reader meets them: in a browser, offline."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import browser
import campaigns
import numpy as np
import pytest
import synthetic
from msgspec import structs

from tailscope.report.campaign.material import read_material
from tailscope.report.campaign.page import campaign_page
from tailscope.report.page import page as draw
from tailscope.store import kept, layout
from tailscope.store.notes import Remarks
from tailscope.store.reader import read_run
from tailscope.store.records.notes import Note
from tailscope.store.records.verdict import VerdictRecord

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

Run = Callable[..., Any]

RUNNING = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href=javascript:alert(1)>x</a>",
    "<details open ontoggle=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<style onload=alert(1)></style>",
    "{{ 1 }} ${alert(1)} @{x} $$x$$ \\(x\\)",
)
BEFORE = (
    "",
    '">',
    "'>",
    "</title>",
    "</script>",
    "</style>",
    "-->",
    "</figcaption>",
    "&lt;",
    "<!--",
)

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>$$x$$&amp;\"'"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def analysed(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of simulated packets in a folder of a hostile name, with loss."""
    folder = tmp_path_factory.mktemp("report")
    made = tailscope("simulate", folder / "p", "--seed", 1, "--packets", 30_000, "--loss", 0.001)
    assert made.returncode == 0, made.stderr
    done = tailscope("analyze", *sorted((folder / "p").glob("*.pcap"))[::-1], "--out", folder / "x")
    assert done.returncode == 0, done.stderr
    hostile = folder / HOSTILE.replace("/", "\N{FRACTION SLASH}")
    (folder / "x").rename(hostile)
    return hostile


def check(seen: browser.Opened, path: Path) -> None:
    assert seen.complaints == []
    assert seen.requests == [path.resolve().as_uri()]


@pytest.mark.parametrize(
    ("width", "theme"), [(1400, "light"), pytest.param(360, "dark", marks=pytest.mark.long)]
)
def test_a_page_is_drawn_and_asks_for_nothing(
    chromium: Browser, tailscope: Run, analysed: Path, tmp_path: Path, width: int, theme: str
) -> None:
    page = tmp_path / "report.html"
    assert tailscope("report", analysed, "--out", page).returncode == 0
    with browser.opened(chromium, page, width=width, theme=theme, shot="analysed") as seen:
        names = seen.figures()
        assert {"percentiles", "worst", "heat", "ccdf", "histogram", "gaps", "rate", "loss"} <= {
            *names
        }
        assert "stalls" not in names
        worst = seen.page.locator("a.moment").first
        worst.focus()
        starts = "Bokeh.documents.map((each) => each.roots()[0].x_range.start)"
        before = seen.page.evaluate(starts)
        seen.page.keyboard.press("Enter")
        over_time = [at for at, start in enumerate(before) if start == 0]
        moved = seen.page.evaluate(starts)
        assert len(over_time) >= 4
        assert len({moved[at] for at in over_time}) == 1 and moved[over_time[0]] > 0
        seen.page.locator("a.whole").focus()
        seen.page.keyboard.press("Enter")
        assert seen.page.evaluate(starts) == before
        assert read_run(analysed).worst.pre_seq[0] == int(worst.inner_text().split()[1])
        told = seen.hover("heat")
        assert "latency [µs]" in told
        assert "packets" in told
        # Nothing has to be scrolled sideways but tables, each within itself.
        assert seen.page.locator("html").evaluate("html => html.scrollWidth") <= width
        check(seen, page)


@pytest.mark.long
def test_axes_and_legends_answer(
    chromium: Browser, tailscope: Run, analysed: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    assert tailscope("report", analysed, "--out", page).returncode == 0
    with browser.opened(chromium, page) as seen:
        names = seen.figures()
        percentiles, ccdf = (
            f"Bokeh.documents[{names.index(name)}].roots()[0].below[0]"
            for name in ("percentiles", "ccdf")
        )
        assert seen.page.evaluate(f"{percentiles}.axis_label") == "percentile"
        assert seen.page.evaluate(f"{ccdf}.axis_label") == "latency"
        shown = seen.page.evaluate(f"{ccdf}.formatter.doFormat([0, 0.5, 10000, 2e6])")
        assert shown == ["0", "500 ns", "10 ms", "2 s"]
        for figure, key in (("histogram", "log y"), ("gaps", "after it")):
            place = seen.page.locator(f"#figure-{figure}")
            canvas = "plot => plot.querySelector('.plot > *').shadowRoot !== null"
            assert place.evaluate(canvas)
            before = place.screenshot()
            button = place.get_by_role("button", name=key)
            was = button.get_attribute("aria-pressed")
            button.click()
            seen.page.wait_for_timeout(500)
            assert place.get_by_role("button", name=key).get_attribute("aria-pressed") != was
            assert place.screenshot() != before
        button = seen.page.locator("#figure-histogram").get_by_role("button", name="log x")
        button.focus()
        seen.page.keyboard.press("Tab")
        seen.page.keyboard.press("Shift+Tab")
        outlined = "button => getComputedStyle(button).outlineStyle"
        assert button.evaluate(outlined) == "solid"
        was = button.get_attribute("aria-pressed")
        seen.page.keyboard.press("Enter")
        assert button.get_attribute("aria-pressed") != was
        seen.page.emulate_media(color_scheme="dark")
        seen.page.wait_for_timeout(500)
        assert seen.page.locator("html").get_attribute("data-drawn") == "dark"
        assert seen.figures()
        check(seen, page)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_what_speaks_against_a_run_is_a_line_on_a_phone(
    chromium: Browser, analysed: Path, tmp_path: Path, theme: str
) -> None:
    run = read_run(analysed)
    many = tuple(f"warning {number}, which says at length what it means" for number in range(3))
    info = structs.replace(run.info, warnings=many, partial=("it was interrupted",))
    text = draw(
        [replace(run, label="a", info=info, warnings=("matched 99.1 % of a sample by l3",))]
    )
    (tmp_path / "page.html").write_text(text)
    with browser.opened(chromium, tmp_path / "page.html", width=390, theme=theme) as seen:
        doubts = seen.page.locator(".doubts")
        box = doubts.bounding_box()
        assert box is not None and box["height"] < 30
        summary = doubts.locator("summary")
        assert summary.inner_text().startswith("1 error, 3 warnings, 1 note: Partial result: it")
        summary.click()
        assert doubts.locator("p.error, p.warning, p.note").count() == 5
        assert doubts.locator("p.note").is_visible()
        seen.page.set_viewport_size({"width": 1000, "height": 900})
        assert doubts.locator("p.error").is_visible() and not summary.is_visible()
        colours = [
            doubts.locator(f"p.{level}").first.evaluate("each => getComputedStyle(each).color")
            for level in ("error", "warning", "note")
        ]
        soft = seen.page.locator("h1 + .note").evaluate("each => getComputedStyle(each).color")
        assert len({*colours}) == 3 and colours[2] == soft


def test_nothing_is_cut_on_a_phone(chromium: Browser, tmp_path: Path) -> None:
    """Two runs with nine warnings, percentiles up to p99.99999, and a cause of a long name."""
    cause = "task tailscope-dp-of-a-long-name"
    path = synthetic.write_run(
        tmp_path / "run", np.arange(3_000) * 1_234 + 2_000, causes={cause: 1.0}
    )
    run = read_run(path)
    (last,) = run.percentiles[-1:]
    odds = [last._replace(q=1 - 10.0**-power) for power in range(4, 8)]
    waited = np.repeat(cause, len(run.worst.pre_ns))
    runs = [
        replace(
            run,
            label=label,
            percentiles=[*run.percentiles, *odds],
            worst_explained={"dut_ns": run.worst.latency_ns, "cause": waited},
            warnings=("of both", *(f"{label} {number}" for number in range(count))),
        )
        for label, count in (("a", 4), ("b", 3))
    ]
    (tmp_path / "page.html").write_text(draw(runs))
    with browser.opened(chromium, tmp_path / "page.html", width=390) as seen:
        assert seen.hidden() == []
        doubts, figure = seen.page.locator(".doubts"), seen.page.locator("figure").first
        box, drawn = doubts.bounding_box(), figure.bounding_box()
        assert box is not None and box["height"] < 30
        assert drawn is not None and drawn["y"] < 844
        assert doubts.locator("p", has_text="(a, b): of both").count() == 1
        rows = seen.percentile_ticks()
        assert len(rows[0]) > 3 and all(len(row) > 1 for row in rows)
        for row in rows:
            assert all(end < start for (_, end), (start, _) in itertools.pairwise(row))


@pytest.mark.parametrize("kind", ["run", pytest.param("campaign", marks=pytest.mark.long)])
def test_no_name_of_others_runs(chromium: Browser, tmp_path: Path, kind: str) -> None:
    """What slipped through would ask for something, complain, or be an element."""
    strings = [before + each for before in BEFORE for each in RUNNING]
    assert len(strings) >= 86
    path = synthetic.write_run(
        tmp_path / "a", np.arange(300) + 2_000, causes=dict.fromkeys(strings[:12], 1 / 12)
    )
    if kind == "run":
        run = read_run(path)
        notes = tuple(Note(text=each, written_unix_ns=1) for each in strings)
        info = structs.replace(run.info, warnings=tuple(strings), partial=tuple(strings))
        hosts = dict.fromkeys(strings[:3], run.info.host)
        marked = Remarks(tags=tuple(strings[:9]), notes=notes)
        info = structs.replace(info, hosts=hosts)
        text = draw([replace(run, label=each, info=info, remarks=marked) for each in strings[:7]])
    else:
        cells = [
            campaigns.cell(
                f"c{number}", {each: each, "dut": each}, runs=["a"], reason=each, state="partial"
            )
            for number, each in enumerate(strings)
        ]
        vary = {"dut": strings}
        campaigns.finish(tmp_path, cells, vary, about=strings[0], name=strings[1])
        text = campaign_page(read_material(tmp_path), lambda name: f"./{name}")
    page = tmp_path / "page.html"
    page.write_text(text)
    with browser.opened(chromium, page) as seen:
        seen.page.evaluate(
            "for (const each of document.querySelectorAll('details')) each.open = true"
        )
        assert all(each in seen.page.locator("body").inner_text() for each in strings)
        foreign = "body :is(img, svg, iframe, style, input, a[href^=java])"
        assert seen.page.evaluate(f"document.querySelectorAll('{foreign}').length") == 0
        check(seen, page)


def test_names_of_others_stay_text(
    chromium: Browser, tailscope: Run, analysed: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    assert tailscope("report", analysed, analysed.parent / "y", "--out", page).returncode == 1
    info = read_run(analysed).info
    judged = VerdictRecord(slo=HOSTILE, verdict="pass", level=0.95, runs=())
    kept.keep(analysed, info, layout.VERDICT, judged, command=["x"])
    noted = tailscope("runs", "note", analysed, f"looked at by {HOSTILE}")
    assert noted.returncode == 0, noted.stderr
    assert tailscope("report", analysed, "--out", page).returncode == 0
    (analysed / "verdict.json").unlink()
    with browser.opened(chromium, page, shot="hostile") as seen:
        assert HOSTILE in seen.page.locator(".answer").inner_text()
        assert "<img src=x onerror=alert(1)>" in seen.page.locator("h1").inner_text()
        assert f"looked at by {HOSTILE}" in seen.page.locator("body").inner_text()
        assert seen.page.locator("img").count() == 0
        seen.hover("heat")
        check(seen, page)


def test_only_our_own_scripts_may_run(
    chromium: Browser, tailscope: Run, analysed: Path, tmp_path: Path
) -> None:
    """The second wall: what slipped through the escaping is stopped by the page's own policy."""
    page = tmp_path / "report.html"
    assert tailscope("report", analysed, "--out", page).returncode == 0
    text = page.read_text()
    page.write_text(
        text.replace("</h1>", "</h1><script>alert(3)</script><img src=x onerror=alert(4)>")
    )
    with browser.opened(chromium, page) as seen:
        assert seen.figures()
        assert not [each for each in seen.complaints if each.startswith("dialog")]
        assert any("Content Security Policy" in each for each in seen.complaints)


def test_differences_come_first(
    chromium: Browser, tailscope: Run, analysed: Path, tmp_path: Path
) -> None:
    pair = [tmp_path / name for name in ("one", "other")]
    for run in pair:
        shutil.copytree(analysed, run)
    page = tmp_path / "differences.html"
    labels = (f"--label={HOSTILE.replace('=', '≠')}={pair[0]}", f"--label=b={pair[1]}")
    assert tailscope("compare", *pair, *labels, "--out", page).returncode == 0
    with browser.opened(chromium, page, width=1000, theme="dark", shot="differences") as seen:
        assert seen.figures()[0] == "difference-1"
        place = seen.page.locator("#figure-difference-1")
        for shown in (place, seen.page.locator("header .badge")):
            box = shown.bounding_box()
            assert box is not None and box["y"] + box["height"] < 900
        assert "95 % interval" in seen.hover("difference-1")
        before = place.screenshot()
        place.get_by_role("button", name="log y").click()
        seen.page.wait_for_timeout(500)
        assert place.screenshot() != before
        seen.page.set_viewport_size({"width": 390, "height": 844})
        assert seen.hidden() == []
        check(seen, page)


@pytest.mark.long
def test_a_tail_of_few_packets_is_explained(
    chromium: Browser, tailscope: Run, measure: Callable[..., dict[str, Any]]
) -> None:
    """Where p99.9 is a bound: by a lower quantile, in the table and in the figure."""
    out = measure("--dut", "l2fwd", "--rate", "1k")["out"]
    said = re.search(
        r"No packet lies above p99.9; showing the \d+ above (p\d+), ",
        " ".join(tailscope("explain", out).stdout.split()),
    )
    assert said is not None
    with browser.opened(chromium, out / "report.html", shot="few") as seen:
        figure = seen.page.locator("#figure-tail-made-of")
        assert f"the packets beyond {said[1]} took longer" in figure.inner_text()
        assert "%" in seen.hover("tail-made-of"), "it has bars"
        check(seen, out / "report.html")


def test_a_measured_run(chromium: Browser, measure: Callable[..., dict[str, Any]]) -> None:
    found = measure("--dut", "l2fwd", "--rate", "20k", "--duration", "1s", "--noise", "auto")
    page = found["out"] / "report.html"
    assert page.stat().st_size < 2 * 1024 * 1024
    with browser.opened(chromium, page, shot="measured") as seen:
        names = seen.figures()
        assert {"stalls", "departure-error", "percentiles", "heat"} <= {*names}
        assert "p99.9" in seen.page.locator("body").inner_text()
        head = seen.page.locator("header").inner_text()
        assert re.search(r"l2fwd on bare\n+.*measured \d{4}-\d\d-\d\d \d\d:\d\d UTC\n", head)
        assert re.search("instrument trust: (believed|not calibrated|machine busy)", head)
        for place in ("nav", ".badge"):
            box = seen.page.locator(place).bounding_box()
            assert box is not None and box["y"] + box["height"] < 600
        curve = seen.page.locator("#figure-percentiles").bounding_box()
        assert curve is not None and curve["y"] < 900
        tables = seen.page.locator("details:not(.doubts)")
        assert tables.count() > 3 and not tables.first.evaluate("table => table.open")
        seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        closed = "tables => tables.filter((table) => !table.open).length"
        assert tables.evaluate_all(closed) == 0
        assert "CPU" in seen.hover("stalls")
        check(seen, page)
    with browser.opened(chromium, page, width=360, theme="dark", shot="measured") as seen:
        assert seen.page.locator("html").evaluate("html => html.scrollWidth") <= 360
        lanes = f"Bokeh.documents[{seen.figures().index('tail-made-of')}].roots()[0].left[0]"
        named = seen.page.evaluate(f"[...{lanes}.major_label_overrides.values()]")
        assert named and max(map(len, named)) <= 24
        check(seen, page)
