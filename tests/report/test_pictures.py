"""What figures show, as data: against files that were looked at once, and against the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from whole_run import PACKETS, whole_run

from tailscope.report.drawing import write_pictures
from tailscope.report.figures import figures, pictures
from tailscope.report.figures.flows import by_flow
from tailscope.report.material import Material, Places
from tailscope.report.page import page
from tailscope.report.picture import Picture, table_of
from tailscope.report.reduce import PIXELS, extremes, longest
from tailscope.store import layout
from tailscope.store.kept import Conclusions
from tailscope.store.reader import read_run
from tailscope.store.records.plan import AnalysisPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailscope.store.run import Run

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def run(tailscope: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return whole_run(tailscope, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module", autouse=True)
def only_the_core() -> Iterator[None]:
    """Leave out the figures of additions, which have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tailscope.report.figures.offered", lambda _name: [])
        yield


@pytest.fixture(scope="module")
def drawn(run: Run) -> dict[str, Picture]:
    return {picture.name: picture for picture in pictures([Material(run)])}


def test_every_figure_has_its_data(drawn: dict[str, Picture]) -> None:
    # All of its packets were matched: there is no loss to be drawn.
    assert len(drawn) == len(figures()) - 1
    assert "loss" not in drawn
    assert {path.stem for path in GOLDEN.glob("*.csv")} == {*drawn}


def test_flows_are_bounded_and_of_one_run(run: Run, drawn: dict[str, Picture]) -> None:
    assert drawn["flows"].y.names == (
        "10.0.0.1:3 > 10.0.0.2:53 udp, never appears",
        "10.0.0.1:1 > 10.0.0.2:53 udp",
        "10.0.0.1:2 > 10.0.0.2:53 udp, 25 % lost",
    )
    first = run.flows[0]
    many = replace(run, flows=[first._replace(name=str(at), sent=100 + at) for at in range(40)])
    picture = by_flow([Material(many)])
    assert picture is not None
    assert picture.y.names == tuple(map(str, range(25, 40)))
    assert "25 more have fewer" in picture.note
    assert by_flow([Material(many)] * 2) is None
    assert by_flow([Material(replace(run, flows=[first]))]) is None


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.csv")), ids=lambda path: path.stem)
def test_figures_show_what_they_did(drawn: dict[str, Picture], golden: Path) -> None:
    """Golden by data: to renew one that was meant to change, write `table_of` into its file."""
    expected, got = (
        [line.split(",") for line in text.splitlines()]
        for text in (golden.read_text(), table_of(drawn[golden.stem]))
    )
    assert got[0] == expected[0]
    assert len(got) == len(expected)
    for line, other in zip(got, expected, strict=True):
        for cell, wanted in zip(line, other, strict=True):
            assert cell == wanted or float(cell) == pytest.approx(float(wanted), rel=1e-9)


def test_without_data_there_is_no_figure(run: Run) -> None:
    bare = replace(run, path=None, explanation=None, worst_explained={}, kept=Conclusions())
    names = {picture.name for picture in pictures([Material(bare)])}
    assert names == {"percentiles", "worst", "flows", "cdf", "ccdf", "histogram", "gaps", "rate"}


def test_every_worst_packet_is_drawn(drawn: dict[str, Picture], run: Run) -> None:
    worst = drawn["worst"]
    shown = {
        (round(x * 1e9), round(y * 1e3))
        for layer in worst.layers
        for x, y in zip(layer.columns["x"], layer.columns["y"], strict=True)
    }
    begin = int(run.rate["pre"].start_ns[0])
    held = {
        (int(pre) - begin, int(latency))
        for pre, latency in zip(run.worst.pre_ns, run.worst.latency_ns, strict=True)
    }
    assert shown == held
    assert len(held) == PACKETS
    assert [layer.part for layer in worst.layers] == ["TLB shootdown", "local timer", "unexplained"]


def test_every_packet_is_in_a_cell(drawn: dict[str, Picture], run: Run) -> None:
    cells = drawn["heat"].layers[0].columns
    assert cells["value"].sum() == PACKETS
    begin = int(run.rate["pre"].start_ns[0])
    for pre, latency in zip(run.worst.pre_ns, run.worst.latency_ns, strict=True):
        x, y = (int(pre) - begin) / 1e9, int(latency) / 1e3
        inside = (cells["x"] <= x) & (x < cells["x_end"])
        inside &= (cells["y"] <= y + 1e-3) & (y - 1e-3 < cells["y_end"])
        assert inside.any()


def test_runs_share_figures_where_that_says_something(run: Run) -> None:
    names = {picture.name for picture in pictures([Material(run), Material(run)])}
    assert {"percentiles", "worst", "rate", "power"} <= names
    assert not {"heat", "stalls", "events", "tail-made-of", "overload"} & names


def test_a_legend_has_seven_entries_at_most(run: Run, tmp_path: Path) -> None:
    """Six names and the rest, which is still drawn, and still said where it is pointed at."""
    several = [Material(replace(run, label=f"run {number}")) for number in range(9)]
    for picture in pictures(several):
        assert len(picture.legend) <= 7, picture.name
    (rates,) = (picture for picture in pictures(several[:8]) if picture.name == "rate")
    assert rates.legend == (*(f"run {number}" for number in range(6)), "other")
    assert {layer.label for layer in rates.layers} == {f"run {number}" for number in range(8)}
    write_pictures([rates], tmp_path, ["svg"])
    svg = (tmp_path / "rate.svg").read_text()
    assert "run 5" in svg and "run 6" not in svg and ">\u200bother<" in svg
    assert "run 6" in (tmp_path / "rate.csv").read_text()


def test_time_begins_at_zero(drawn: dict[str, Picture]) -> None:
    """But for power, which was read before the first packet left."""
    over_time = [picture for picture in drawn.values() if picture.x.is_time]
    assert len(over_time) > 5
    assert {picture.name for picture in over_time if not picture.x.starts_at_zero} == {"power"}


def test_a_page_says_what_was_concluded(run: Run) -> None:
    plan = AnalysisPlan(pre="pre.pcap", post="post.pcap")
    info = structs.replace(run.info, plan=plan, instrument=None)
    text = page([replace(run, info=info, explanation=None)])
    assert "R_max: the runs differ in &lt;i&gt;size&lt;/i&gt;" in text
    assert "500.0 packets/s to 800.0 packets/s" in text


def test_a_page_marks_what_is_tainted_once_and_says_it_below(tmp_path: Path) -> None:
    """Half of what each packet took may be stalls of the instrument."""
    every = np.ones(200, bool)
    path = synthetic.write_run(
        tmp_path / "run", np.full(200, 2_345_678), rate_pps=100, stalled=every, stall_ns=1_172_839
    )
    text = page([read_run(path)])
    assert page([read_run(path)]) == text, "the same run is the same page"
    assert "(instrument)" not in text
    assert text.count('1.173 to 2.346 ms&nbsp;<span class="taint"') >= 2
    delayed = "200 samples (100 %) may be delayed by stalls of the instrument"
    assert f"{delayed}: they show from p50 on" in text
    assert "own stalls show: p50 lies" not in text
    # The floor is part of what the badge says: no row without a value.
    head = text[text.index("<header>") : text.index('<div class="first">')]
    assert "<dd>-" not in head


def test_a_bound_is_no_estimate(run: Run) -> None:
    assert run.kept.overload is not None
    bound = structs.replace(run.kept.overload, rate_max_pps_ci_high=None)
    (picture,) = (
        each
        for each in pictures([Material(replace(run, kept=Conclusions({layout.OVERLOAD: bound})))])
        if each.name == "overload"
    )
    assert picture.y.names == ("this run", "R_max, one at a time")
    assert [layer.mark for layer in picture.layers] == ["bars", "bars"]


def test_counters_read_often_are_reduced(run: Run, tmp_path: Path) -> None:
    begin_ns = int(run.rate["pre"].start_ns[0])
    count = 30_000
    columns = {
        "unix_ns": begin_ns + np.arange(count) * 200_000,
        "interrupt": ["LOC"] * count,
        "cpu": [1] * count,
        "count": np.cumsum(np.arange(count) % 7),
    }
    pq.write_table(pa.table(columns), tmp_path / layout.INTERRUPTS)
    for picture in pictures([Material(replace(run, path=tmp_path))]):
        if picture.name.startswith("interrupt"):
            (layer,) = picture.layers
            assert len(layer.columns["x"]) <= 2 * PIXELS + 2


numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(st.tuples(numbers, numbers), max_size=60), st.integers(1, 9))
def test_no_extreme_is_lost(points: list[tuple[float, float]], columns: int) -> None:
    x, y = np.array(points, np.float64).reshape(-1, 2).T
    kept = extremes(x, y, columns=columns)
    assert list(kept) == sorted(set(kept))
    if not len(x):
        return
    assert {0, len(x) - 1} <= {*kept}
    width = (x.max() - x.min()) / columns
    pixel = np.minimum((x - x.min()) / width if width > 0 else 0 * x, columns - 1).astype(int)
    for each in np.unique(pixel):
        here, left = y[pixel == each], y[kept][pixel[kept] == each]
        assert here.max() == left.max()
        assert here.min() == left.min()
    assert len(kept) <= 2 * columns + 2 or len(kept) == len(x)


@given(
    st.lists(st.tuples(numbers, st.floats(0, 1e6), st.integers(0, 2)), max_size=60),
    st.integers(1, 9),
)
def test_the_longest_interval_stays(spans: list[tuple[float, float, int]], columns: int) -> None:
    start, length, lane = np.array(spans, np.float64).reshape(-1, 3).T
    kept = longest(start, length, lane.astype(np.int64), columns=columns)
    assert len(kept) <= 3 * columns
    for each in np.unique(lane):
        assert length[lane == each].max() in length[kept][lane[kept] == each]


@given(
    st.lists(st.integers(0, 1 << 40), max_size=80),
    st.lists(st.integers(-5, 1 << 63), max_size=80),
    st.lists(st.integers(0, 1 << 19), max_size=300),
)
def test_places_are_those_of_a_search(
    edges: list[int], any_size: list[int], small: list[int]
) -> None:
    values = np.clip(np.array([*any_size, *small, *edges], dtype=object), None, 2**63 - 1)
    numbers, sorted_edges = values.astype(np.int64), np.sort(np.array(edges, np.int64))
    expected = np.searchsorted(sorted_edges, numbers, side="right")
    assert np.array_equal(Places(sorted_edges).of(numbers), expected)
