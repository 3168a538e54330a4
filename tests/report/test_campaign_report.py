"""The page of a campaign: all cells in it, whatever became of them, and figures by data."""

from __future__ import annotations

import csv
import json
import math
import os
import pickle
import re
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import campaigns
import numpy as np
import pytest
import synthetic
from runs import write_mark
from wording import assert_wording

from tailscope.report.campaign.figures import families
from tailscope.report.campaign.material import read_material, read_one
from tailscope.report.campaign.page import LARGEST_BYTES, campaign_page
from tailscope.store.reader import read_figures, read_run

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

TWO = {"rate": ["10k", "20k"], "platform": ["bare", "lxc"]}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rates on two platforms, twice each."""
    path = tmp_path_factory.mktemp("two") / "campaign"
    path.mkdir()
    campaigns.write(path, TWO, repeats=2)
    return path


def report(tailscope: Run, path: Path, *options: object) -> Any:
    done = tailscope("report", path, *options)
    assert done.returncode == 0, done.stderr
    return done


def drawn(path: Path) -> campaigns.Seen:
    """The page of a campaign, beside it."""
    page = path / "report.html"
    page.write_text(campaign_page(read_material(path), lambda name: f"./{name}/report.html"))
    return campaigns.Seen(page)


def test_a_campaign_has_a_page(tailscope: Run, two: Path) -> None:
    done = report(tailscope, two)
    page = two / "report.html"
    assert done.stderr == ""
    assert done.stdout == f"{page}\n"
    seen = campaigns.Seen(page)
    assert "8 cells: 8 done." in seen.text
    assert "rate 10k, 20k; platform bare, lxc." in seen.text
    assert re.findall(r"<title>(.*)</title>|<h1>(.*)</h1>", seen.source) == [
        ("small: l2fwd by rate, platform · tailscope", ""),
        ("", "small: l2fwd by rate, platform"),
    ]
    assert page.stat().st_size <= LARGEST_BYTES
    # Each run, and once more where tables cite it.
    assert campaigns.check_links(page) == 16
    assert len(set(seen.identifiers)) == len(seen.identifiers)
    for table in (
        "The tail at 10,000 packets/s cbr, 64 B",
        "Ranks at 20,000 packets/s cbr, 64 B",
    ):
        assert re.search(table, seen.text), table
    assert not re.search(r"Table \d|containers2024|noms2020", seen.text)


def test_the_page_may_lie_elsewhere(tailscope: Run, two: Path, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    page = tmp_path / "a b" / "page.html"
    report(tailscope, two, "--out", page)
    assert campaigns.check_links(page) == 16


@pytest.mark.parametrize(
    ("vary", "rows", "columns"),
    [
        ({}, 1, [""]),
        ({"rate": ["10k", "20k"]}, 2, [""]),
        ({"rate": ["10k", "20k"], "burst": ["1", "4", "16"]}, 2, ["1", "4", "16"]),
        ({**TWO, "burst": ["1", "4"], "dut": ["l2fwd", "l3fwd"]}, 8, ["l2fwd", "l3fwd"]),
    ],
)
def test_what_varies_makes_rows_and_columns(
    tmp_path: Path, vary: dict[str, list[str]], rows: int, columns: list[str]
) -> None:
    from tailscope.report.campaign.matrix import arranged

    cells = campaigns.write(tmp_path, vary)
    material = read_material(tmp_path)
    matrix = arranged(material)
    assert len(matrix.rows) == rows
    assert matrix.columns == columns
    found = [each for _, row in matrix.rows for each in row if each is not None]
    assert sorted(one.name for each in found for one in each.cells) == sorted(
        cell["name"] for cell in cells
    )
    seen = drawn(tmp_path)
    assert seen.text.count("lost ") == len(cells)
    names = {figure.rsplit("-", 1)[0] for figure in seen.figures()}
    expected = {f"by-{name}" for name in vary}
    expected |= {f"over-{name}" for name in vary if name in ("rate", "burst")}
    assert names == expected | (set() if len(vary) == 1 else {"multiples"})


def test_a_cell_says_the_median_of_repeats_and_how_far_they_reach(two: Path) -> None:
    runs = [read_run(two / f"rate=10k,platform=lxc,r={repeat}") for repeat in (1, 2)]
    low, high = sorted(int(run.summary["latency_ns_p50"]) for run in runs)
    seen = drawn(two)
    text = seen.text
    assert f"median {round((low + high) / 2) / 1e3:.3f} µs" in text
    assert f"{low / 1e3:.3f} to {high / 1e3:.3f} µs" in text
    # All digits, where one points.
    assert f'title="{low / 1e3:.3f} µs to {high / 1e3:.3f} µs"' in seen.source
    assert runs[0].summary["latency_ns_p99_supported"]
    assert not runs[0].summary["latency_ns_p999_supported"]
    assert "p99 " in text
    assert "p99.9 " not in text


def test_figures_hold_what_runs_hold(two: Path) -> None:
    figures = drawn(two).figures()
    one = figures["by-rate-1"]
    assert one["legend"] == ["10k", "20k"]
    for layer in (each for figure in figures.values() for each in figure["layers"]):
        assert layer["mark"] in ("quantiles", "line", "points")
    for label, repeats in (("10k", (1, 2)), ("20k", (1, 2))):
        runs = [read_run(two / f"rate={label},platform=bare,r={repeat}") for repeat in repeats]
        layers = [each for each in one["layers"] if each["label"] == label]
        solid = [each["columns"] for each in layers if each["dash"] != "dotted"]
        assert len(solid) == len(runs)
        for run, columns in zip(runs, solid, strict=True):
            known = {1 / (1 - each.q): each.value_ns / 1e3 for each in run.percentiles}
            assert all(known[x] == y for x, y in zip(columns["x"], columns["y"], strict=True))
            last = max(each.q for each in run.percentiles if each.supported)
            assert columns["x"][-1] == 1 / (1 - last)
            assert {2.0, 1 / (1 - 0.99)} <= {*columns["x"]}
    over = figures["over-rate-1"]
    (points,) = [
        each
        for each in over["layers"]
        if each["mark"] == "points" and each["label"] == "platform lxc"
    ]
    runs = [
        read_run(two / f"rate={rate},platform=lxc,r={repeat}")
        for rate in ("10k", "20k")
        for repeat in (1, 2)
    ]
    assert points["columns"]["x"].tolist() == [10_000, 10_000, 20_000, 20_000]
    for role, end in (("y", ""), ("low", "_ci_low"), ("high", "_ci_high")):
        expected = [run.summary[f"latency_ns_p50{end}"] / 1e3 for run in runs]
        assert points["columns"][role].tolist() == expected


def test_repeats_and_instances_are_runs_of_which_some_are_drawn(tmp_path: Path) -> None:
    vary = {"rate": ["10k", "20k"], "burst": ["1", "4"]}
    cells = campaigns.write(tmp_path, vary, repeats=3)
    instances = [f"{cells[0]['name']}/{number}" for number in range(1, 5)]
    for number, name in enumerate(instances):
        campaigns.write_run(tmp_path / name, 20 + number)
    cells[0]["runs"] = instances
    campaigns.finish(tmp_path, cells, vary, repeats=3)
    found = {each.name: each for each in families(read_material(tmp_path))}
    notes = [picture.note for picture in found["multiples"].pictures]
    assert_wording("campaign-report/some-runs-drawn", notes[0])
    assert notes[1:] == ["", "", ""]
    first, second = found["by-rate"].pictures
    assert (first.note, second.note) == (notes[0], "")
    points = found["over-rate"].pictures[0].layers[1]
    assert len(points.columns["x"]) == 9
    seen = drawn(tmp_path)
    assert notes[0] in seen.text
    assert "(repetitions or instances" in seen.text
    assert "medians of runs" in seen.text


def test_figures_of_a_family_share_their_axes(two: Path) -> None:
    for family in families(read_material(two)):
        limits = {(picture.x.limits, picture.y.limits) for picture in family.pictures}
        scales = {(picture.x.scale, picture.y.scale) for picture in family.pictures}
        assert len(limits) == len(scales) == 1
        ((_, y),) = limits
        values = [layer.columns["y"] for each in family.pictures for layer in each.layers]
        assert y is not None
        assert y[0] <= np.nanmin(np.concatenate(values))
        assert np.nanmax(np.concatenate(values)) <= y[1]


def test_figures_come_as_files(tailscope: Run, two: Path, tmp_path: Path) -> None:
    report(tailscope, two, "--figures", tmp_path, "--format", "svg", "--style", "paper")
    names = {path.name for path in tmp_path.iterdir()}
    stems = ("by-rate", "by-platform", "over-rate", "multiples")
    assert names == {"runs.csv", *(f"{stem}.{end}" for stem in stems for end in ("svg", "csv"))}
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    for row in rows:
        summary = json.loads((two / row["run"] / "summary.json").read_text())
        assert row["latency_ns_p99"] == str(summary["latency_ns_p99"])
        assert row["lost"] == str(summary["lost"])
    with (tmp_path / "by-platform.csv").open(newline="") as file:
        assert {row["figure"] for row in csv.DictReader(file)} == {"rate 10k", "rate 20k"}


def test_what_is_wrong_with_a_run_stands_in_its_cell(tailscope: Run, tmp_path: Path) -> None:
    names = ["damaged", "missing", "newer", "unfinished", "smaller", "whole"]
    cells = []
    for number, name in enumerate(names):
        campaigns.write_run(tmp_path / name, number)
        cells.append(campaigns.cell(name, {"rate": f"{number}k"}, runs=[name]))
    for name, state, reason in (
        ("failed", "failed", "no such device"),
        ("waits", "waiting", "it wants the kernel rt"),
        ("waits too", "waiting", "it wants the kernel rt"),
    ):
        cells.append(campaigns.cell(name, {"rate": name}, state=state, reason=reason))
    cells[-4] |= {"state": "partial", "reason": "the device died"}
    summary = tmp_path / "damaged" / "summary.json"
    summary.write_text(summary.read_text().replace('"sent": 3', '"sent": 4'))
    shutil.rmtree(tmp_path / "missing")
    for name, change in (("newer", {"format": 99}), ("unfinished", {"complete": False})):
        mark = json.loads((tmp_path / name / "run.json").read_text())
        write_mark(tmp_path / name, {**mark, **change})
    (tmp_path / "smaller" / "worst.parquet").write_bytes(b"")
    campaigns.finish(tmp_path, cells, {"rate": [cell["values"]["rate"] for cell in cells]})
    done = report(tailscope, tmp_path)
    warned = done.stderr.splitlines()
    assert [line.split(":")[1].strip() for line in warned] == [
        *names[:5],
        "failed",
        "waits and 1 more",
    ]
    text = campaigns.Seen(tmp_path / "report.html").text
    counts = {"unreadable": 5, "partial": 1, "failed": 1, "waiting": 2}
    assert f"9 cells: {', '.join(f'{number} {state}' for state, number in counts.items())}." in text
    for reason in (
        "summary.json: sha256: expected",
        "not a run directory",
        "format: expected 3, got 99",
        "the run was never finished",
        "worst.parquet: size_bytes: expected",
        "no such device",
        "it wants the kernel rt",
        "the device died",
    ):
        assert reason in text, reason


def test_a_cell_without_any_match_is_drawn(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path / "a", np.full(20, 1_000), lost=20)
    campaigns.write_run(tmp_path / "b", 1)
    cells = [campaigns.cell(name, {"dut": name}, runs=[name]) for name in "ab"]
    campaigns.finish(tmp_path, cells, {"dut": ["a", "b"]})
    assert "lost 20 of 20" in drawn(tmp_path).text


def test_a_kept_verdict_is_shown(tailscope: Run, tmp_path: Path) -> None:
    campaigns.write(tmp_path, {"rate": ["10k"]})
    done = tailscope("verify", tmp_path / "rate=10k,r=1", "--slo", "max<1s", "--keep")
    assert done.returncode == 0, done.stderr
    seen = drawn(tmp_path)
    assert "pass: " in seen.text
    assert "max<1s" in seen.text.replace(" ", "")


def test_the_page_begins_with_what_is_best_and_whether_it_is_good(
    tailscope: Run, tmp_path: Path
) -> None:
    """One percentile for all, the lowest of it, and the worst verdict of a cell's runs."""
    cells = campaigns.write(tmp_path, {"rate": ["10k", "20k"]}, repeats=2)
    synthetic.write_run(tmp_path / "short", np.full(200, 9_000))
    cells.append(campaigns.cell("short", {"rate": "30k"}, runs=["short"]))
    vary = {"rate": ["10k", "20k", "30k"]}
    campaigns.finish(tmp_path, cells, vary, service_levels=["p50<2.15us", "loss<1e-2"])
    text = drawn(tmp_path).text
    best = re.search(r"p90 is lowest with (.*?) \(.*? and highest with (.*?) \((.*?)\)\.", text)
    assert best is not None
    assert best.groups() == ("rate 10k", "rate 30k", "9.000 µs")
    assert text.index("Not judged") < text.index("Between repeats p90 differs by") < best.start()
    assert "`tailscope verify CAMPAIGN --keep`" in text and "p50<2.15us, loss<1e-2" in text
    judged = tailscope("verify", tmp_path, "--keep")
    assert judged.returncode == 2, judged.stderr
    text = drawn(tmp_path).text
    # The runs of 10k differ: its second one fails. The worst of all stands above the matrix.
    assert text.count("✗ fail") == 4
    head = campaigns.Seen(tmp_path / "report.html").first_screen()
    assert "✗ fail Of 3 combinations 3 fail (p50<2.15us, loss<1e-2). Between repeats p90" in head
    assert "(1 runs)" in text


def test_the_spread_between_repeats_is_that_where_they_differ_most(tmp_path: Path) -> None:
    cells = []
    for name, rate, ns in (("a", "1k", 1_000), ("b", "1k", 1_100), ("c", "2k", 1_000)):
        synthetic.write_run(tmp_path / name, np.full(200, ns))
        cells.append(campaigns.cell(name, {"rate": rate}, runs=[name]))
    campaigns.finish(tmp_path, cells, {"rate": ["1k", "2k"]})
    within = "Between repeats p90 differs by 10 % at most (rate 1k: 1.000 to 1.100 µs)."
    assert within in drawn(tmp_path).first_screen()
    synthetic.write_run(tmp_path / "d", np.full(200, 12_000))
    cells.append(campaigns.cell("d", {"rate": "2k"}, runs=["d"]))
    campaigns.finish(tmp_path, cells, {"rate": ["1k", "2k"]})
    far = "Between repeats p90 differs by a factor of 12 at most (rate 2k: 1.000 to 12.00 µs)."
    assert far in drawn(tmp_path).first_screen()
    campaigns.finish(tmp_path, cells[1:3], {"rate": ["1k", "2k"]})
    assert "How far repeats would differ is not known" in drawn(tmp_path).first_screen()


def test_taint_and_trust_stand_on_the_first_screen(tmp_path: Path) -> None:
    """A run in two has stalls of the instrument in every packet, half of what that took."""
    every = np.ones(200, bool)
    synthetic.write_run(tmp_path / "a", np.full(200, 2_000), stalled=every, stall_ns=1_000)
    synthetic.write_run(tmp_path / "b", np.full(200, 2_000))
    cells = [campaigns.cell(name, {"dut": name}, runs=[name]) for name in "ab"]
    campaigns.finish(tmp_path, cells, {"dut": ["a", "b"]})
    seen = drawn(tmp_path)
    head = seen.first_screen()
    assert "instrument trust: machine busy in 1 of 2 runs" in head
    delayed = "~ 50 % of all samples may be delayed by stalls of the instrument"
    assert f"{delayed}, which show in 1 of 2" in head
    matrix = seen.source[seen.source.index('<table class="matrix">') :].split("</table>")[0]
    assert [cell.count('class="taint"') > 0 for cell in matrix.split("<tr>")[2:]] == [True, False]


def test_emulated_times_are_marked(tmp_path: Path) -> None:
    from tailscope.store.info import EMULATED

    campaigns.write_run(tmp_path / "a", 1, platform_name="vm", platform={"representative": False})
    campaigns.finish(tmp_path, [campaigns.cell("a", {}, runs=["a"])], {})
    assert EMULATED in drawn(tmp_path).text


def test_names_of_others_are_inert(tailscope: Run, tmp_path: Path) -> None:
    hostile = campaigns.HOSTILE
    run = "r\n <b>'x'#?%2F\u202e"
    campaigns.write_run(tmp_path / run, 1)
    campaigns.write_run(tmp_path / "javascript:alert(1)", 2)
    cells = [
        campaigns.cell(hostile, {hostile: hostile}, runs=[run], reason=hostile, state="partial"),
        campaigns.cell("b", {hostile: "../../b"}, runs=["javascript:alert(1)"]),
        campaigns.cell("c", {hostile: "c"}, reason=hostile, hint=hostile, state="failed"),
    ]
    campaigns.finish(tmp_path, cells, {hostile: [hostile]}, about=hostile, name=hostile)
    done = report(tailscope, tmp_path)
    assert "\u202e" not in done.stderr
    page = tmp_path / "report.html"
    seen = campaigns.Seen(page)
    assert campaigns.check_links(page) == 4
    assert not [name for name in seen.attributes if name.startswith("on")]
    # The packed data, the library's two, ours.
    assert seen.tags.count("script") == 4
    assert seen.text.count("<script>alert(1)</script>") > 3
    report(tailscope, tmp_path, "--figures", tmp_path / "figures", "--format", "svg")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"format": 9}, "format: expected 1, got 9"),
        ({"cells": [{"name": "a"}]}, "campaign.json: "),
        ({"cells": [campaigns.cell("a", {}, runs=["../b"])]}, "a folder within the campaign"),
        ({"cells": [campaigns.cell("a", [1])]}, "campaign.json: "),  # type: ignore[arg-type]
        ({"experiment": {"vary": 3}}, "experiment.vary: expected an object, got a whole number"),
        (
            {"experiment": {"vary": {"rate": {"a": 1}}}},
            "vary.*.*: expected an object or null",
        ),
        ({"experiment": {"fixed": ["a"]}}, "experiment.fixed: expected an object, got"),
        ({"host": [1]}, "host: expected an object or null, got a list"),
        ({"cells": [campaigns.cell("a", {}, lasted_s="abc")]}, "cells[0].lasted_s: expected a"),
        ({"cells": [campaigns.cell("a", {}, lasted_s=math.nan)]}, "expected a number, got NaN"),
        ({"cells": [campaigns.cell("a", {}, state=None)]}, "cells[0].state: expected text, got"),
        ({"cells": [campaigns.cell("a", {}, runs=["\ud800"])]}, "campaign.json: "),
    ],
)
def test_a_damaged_campaign_is_refused(
    tailscope: Run, tmp_path: Path, damage: dict[str, Any], said: str
) -> None:
    record = {"format": 1, "cells": [], **damage}
    (tmp_path / "campaign.json").write_text(json.dumps(record))
    done = tailscope("report", tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_a_cell_may_lack_what_varies(tailscope: Run, tmp_path: Path) -> None:
    cells = campaigns.write(tmp_path, TWO)
    del cells[0]["values"]["platform"]
    campaigns.finish(tmp_path, cells, TWO)
    report(tailscope, tmp_path, "--figures", tmp_path / "figures", "--format", "svg")
    material = read_material(tmp_path)
    assert material.varied == {"rate": ["10k", "20k"], "platform": ["bare", "lxc", "-"]}
    assert drawn(tmp_path).text.count("lost ") == len(cells)


def test_names_that_are_no_text_are_drawn(tailscope: Run, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\xff")
    cells = campaigns.write(path, {"rate": ["10k"]})
    lost = campaigns.cell("b", {"rate": "20k"}, state="\udcff")
    campaigns.finish(path, [*cells, lost], {"rate": ["10k", "20k"]}, name="")
    run = path / cells[0]["runs"][0]
    (run / "report.html").touch()
    report(tailscope, path, "--out", tmp_path / "page.html")
    assert f"./a%FF/{run.name}/report.html" in campaigns.Seen(tmp_path / "page.html").links


def test_a_campaign_is_reported_alone(tailscope: Run, two: Path) -> None:
    done = tailscope("report", two, two / "rate=10k,platform=lxc,r=1")
    assert done.returncode == 1
    assert "a single campaign" in done.stderr


def test_a_page_stays_small_whatever_the_number_of_cells(tmp_path: Path) -> None:
    campaigns.write_run(tmp_path / "a", 1)
    rates, bursts = ([str(each) for each in range(1, count)] for count in (301, 5))
    cells = [
        campaigns.cell(f"{rate} {burst}", {"rate": rate, "burst": burst}, runs=["a"])
        for rate in rates
        for burst in bursts
    ]
    campaigns.finish(tmp_path, cells, {"rate": rates, "burst": bursts})
    seen = drawn(tmp_path)
    assert len(seen.source.encode()) <= LARGEST_BYTES
    assert "150 more rows" in seen.text
    assert "1176 more figures" in seen.text
    assert "1,200 cells" in seen.text


def test_figures_alone_are_read_for_a_campaign(two: Path) -> None:
    path = two / "rate=10k,platform=lxc,r=1"
    few, whole = read_figures(path), read_run(path)
    assert (few.summary, few.percentiles, few.info) == (
        whole.summary,
        whole.percentiles,
        whole.info,
    )
    assert len(few.worst.latency_ns) == 0 < len(whole.worst.latency_ns)
    again = pickle.loads(pickle.dumps(read_one(two, path.name)))
    assert again.run.summary == whole.summary
