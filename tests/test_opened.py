"""`tailscope.open`: runs and campaigns as Python and notebooks use them."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from errors import commands_in, raises
from runs import write_mark
from shelves import CAUSES, edited
from synthetic import PACKETS, latencies, write_campaign, write_run
from wording import assert_wording

import tailscope
from tailscope.engine.analysis import Series
from tailscope.exceptions import RunCorruptError, RunError, RunIncompleteError, UsageError
from tailscope.opened.views import Drawing
from tailscope.store import layout, parquet
from tailscope.store.latency import LatencyFile
from tailscope.store.packets import Packets
from tailscope.store.tables import LATENCY

if TYPE_CHECKING:
    from collections.abc import Iterator

Run = Callable[..., Any]

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"
LATENCIES = [1_000 + at * 37 % 911 for at in range(4_000)]
LOST_EACH = 50
HOSTILE = "<img src=x onerror=alert(1)>"
"""A name of a folder."""


def is_lost(at: int) -> bool:
    return at % LOST_EACH == LOST_EACH // 2


def write_captured(command: Run, path: Path) -> Path:
    """A run of captures in which every fiftieth packet is lost."""
    pre, post = captures.pair(path.parent / "pair", LATENCIES)
    seen = captures.packets(post.read_bytes())
    post.write_bytes(captures.pcap([each for at, each in enumerate(seen) if not is_lost(at)]))
    done = command("analyze", pre, post, "--out", path)
    assert done.returncode == 0, done.stderr
    return path


def write_measured(path: Path) -> Path:
    """Two rates, the second of which has lost packets, and a cell without any run."""
    path.mkdir(parents=True)
    cells = []
    for seed, rate in enumerate((10_000, 20_000)):
        name = f"rate={rate}"
        write_run(path / name, latencies(seed), lost=7 * seed, rate_pps=rate, causes=CAUSES)
        cells.append({"name": name, "values": {"rate": str(rate)}, "runs": [name]})
    cells.append({"name": "rate=1", "values": {"rate": "1"}, "state": "failed", "reason": "no"})
    return write_campaign(path, cells, name="rates")


@pytest.fixture(scope="module")
def shelf(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of captures, ``demo/10k``, and a campaign, ``runs/mine``."""
    folder = tmp_path_factory.mktemp("shelf")
    write_captured(tailscope, folder / "demo" / "10k")
    write_measured(folder / "runs" / "mine")
    return folder


@pytest.fixture(scope="module")
def captured(shelf: Path) -> tailscope.OpenedRun:
    return opened_run(shelf / "demo" / "10k")


@pytest.fixture(scope="module")
def campaign(shelf: Path) -> tailscope.OpenedCampaign:
    found = tailscope.open(shelf / "runs" / "mine")
    assert isinstance(found, tailscope.OpenedCampaign)
    return found


def opened_run(path: Path) -> tailscope.OpenedRun:
    found = tailscope.open(path)
    assert isinstance(found, tailscope.OpenedRun)
    return found


def test_importing_imports_nothing_that_takes_time() -> None:
    program = "import sys; before = {*sys.modules}; import tailscope; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    modules = set(done.stdout.split())
    own = {name for name in modules if name.split(".")[0] == "tailscope"}
    assert own == {"tailscope"}
    assert not modules & {"numpy", "pyarrow", "pandas", "matplotlib", "msgspec", "jinja2"}


def test_completion_shows_what_there_is() -> None:
    assert dir(tailscope) == sorted(tailscope.__all__)
    assert "open" in dir(tailscope)
    assert all(getattr(tailscope, name) is not None for name in dir(tailscope))
    with pytest.raises(AttributeError) as caught:
        tailscope.opne  # noqa: B018
    assert "'opne'" in str(caught.value)


def test_an_opened_run_says_what_was_analysed(captured: tailscope.OpenedRun) -> None:
    whole = json.loads((captured.path / layout.SUMMARY).read_text())
    del whole["format"], whole["warnings"]
    assert {name: captured.summary[name] for name in whole} == whole
    assert re.fullmatch(r"<tailscope.OpenedRun 10k: .*>", repr(captured))
    assert_wording("opened/run", repr(captured))
    assert opened_run(Path(os.path.relpath(captured.path))).summary == captured.summary
    assert tailscope.open(str(captured.path)).summary == captured.summary


def test_latencies_balance_with_the_summary(captured: tailscope.OpenedRun) -> None:
    table, summary = captured.latencies(), captured.summary
    assert summary["lost"] == len(LATENCIES) // LOST_EACH
    assert len(table) == summary["count"] == summary["sent"] - summary["lost"]
    assert table.column_names == [column.name for column in LATENCY.columns]
    assert [str(kind) for kind in table.schema.types] == [each.kind for each in LATENCY.columns]
    matched = [at for at in range(len(LATENCIES)) if not is_lost(at)]
    assert table["seq"].to_pylist() == matched
    assert table["latency_ns"].to_pylist() == [LATENCIES[at] for at in matched]
    assert table["tainted"].null_count == len(table)
    assert pc.max(table["latency_ns"]).as_py() == summary["latency_ns_max"]
    assert hasattr(table, "__arrow_c_stream__")


def test_latencies_of_a_measurement_balance(campaign: tailscope.OpenedCampaign) -> None:
    run = campaign["rate=20000"]
    summary, table = run.summary, run.latencies("tainted", "latency_ns")
    assert table.column_names == ["tainted", "latency_ns"]
    assert (summary["lost"], len(table)) == (7, PACKETS - 7)
    assert summary["sent"] == len(table) + summary["lost"] + summary["late"] + summary["corrupt"]
    assert pc.sum(table["tainted"]).as_py() == summary["tainted"]


def test_a_column_without_values_has_its_rows(captured: tailscope.OpenedRun) -> None:
    assert captured.latencies("tainted")["tainted"].null_count == captured.summary["count"]


def test_latencies_come_in_pieces(
    captured: tailscope.OpenedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_ROWS", 1_000)
    pieces = [*captured.latency_batches("latency_ns")]
    assert [len(each) for each in pieces] == [1_000, 1_000, 1_000, 920]
    assert pa.Table.from_batches(pieces).equals(captured.latencies("latency_ns"))


def test_pieces_take_no_more_memory_than_one(tmp_path: Path) -> None:
    """Whatever the length of a run: its groups of rows are read one by one."""
    assert LatencyFile.ROWS_PER_GROUP > parquet._ROWS
    rows = 3 * LatencyFile.ROWS_PER_GROUP
    with (tmp_path / layout.LATENCY).open("wb") as file, LatencyFile(file) as written:
        seq = np.arange(rows, dtype=np.uint64)
        written.write(Series(seq, seq, seq))
    before, most_bytes, count = pa.total_allocated_bytes(), 0, 0
    with Packets((tmp_path / layout.LATENCY).open("rb"), "x") as packets:
        for piece in packets.record_batches("seq", "latency_ns"):
            count += len(piece)
            most_bytes = max(most_bytes, pa.total_allocated_bytes() - before)
    assert count == rows
    assert most_bytes < rows * 8


def test_columns_that_are_not_there_are_refused(
    captured: tailscope.OpenedRun, campaign: tailscope.OpenedCampaign
) -> None:
    for read in (captured.latencies, campaign.latencies):
        with raises(UsageError, "no-such-column") as refused:
            read("latency")
        assert "'latency'" in str(refused.value) and "seq, pre_ns" in str(refused.value)


def test_the_worst_are_those_of_the_summary(captured: tailscope.OpenedRun) -> None:
    worst = captured.worst
    assert worst is not None
    assert worst["latency_ns"][0].as_py() == captured.summary["latency_ns_max"]
    took = pc.subtract(worst["post_ns"], worst["pre_ns"])
    assert took.equals(worst["latency_ns"])


def test_captures_do_not_tell_why(captured: tailscope.OpenedRun) -> None:
    assert captured.noise is None
    with pytest.raises(RunError) as caught:
        captured.explain()
    assert_wording("explain/no-noise", str(caught.value).removeprefix(f"{captured.path}: "))
    assert caught.value.hint is not None
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]


def test_a_measurement_tells_why(measure: Run) -> None:
    run = opened_run(measure("--dut", "l2fwd", "--noise", "stalls")["out"])
    tail, noise, worst = run.explain(), run.noise, run.worst
    assert len(run.latencies()) == run.summary["count"]
    assert noise is not None and worst is not None
    assert {"stall", "cause"} >= {*noise["kind"].to_pylist()}
    parts = [worst[f"{part}_ns"] for part in ("service", "dut", "queue", "instrument")]
    whole = worst["unexplained_ns"]
    for part in parts:
        whole = pc.add(whole, part)
    assert whole.to_pylist() == worst["latency_ns"].to_pylist()
    written = json.loads((run.path / layout.EXPLANATION).read_text())
    assert tail.record.threshold_ns == written["threshold_ns"]
    assert tail.causes.to_pylist() == written["causes"]
    earlier = run.explain(0.9).record
    assert 0.9 in {earlier.quantile, earlier.none_above}
    assert earlier.packets >= tail.record.packets
    assert sum(earlier.parts_ns.values()) == earlier.latency_ns


@pytest.mark.parametrize("quantile", [-0.1, 1, float("nan")])
def test_what_is_no_tail_is_refused(captured: tailscope.OpenedRun, quantile: float) -> None:
    with raises(UsageError, "quantile") as refused:
        captured.explain(quantile)
    assert f"got {quantile:g}," in str(refused.value)


def test_what_was_explained_is_said(campaign: tailscope.OpenedCampaign) -> None:
    tail = campaign["rate=10000"].explain()
    assert_wording("opened/tail", repr(tail))
    assert "<td>75.0%</td>" in tail._repr_html_()
    causes = campaign.explain()
    assert causes["run"].to_pylist() == ["rate=10000"] * 2 + ["rate=20000"] * 2
    assert causes["cause"].to_pylist() == [*CAUSES] * 2


def test_a_campaign_is_its_runs(campaign: tailscope.OpenedCampaign) -> None:
    assert [*campaign] == campaign._ipython_key_completions_() == ["rate=10000", "rate=20000"]
    assert_wording("opened/campaign", repr(campaign))
    assert campaign["rate=10000"].path == campaign.path / "rate=10000"
    assert "rate=5" not in campaign and campaign.get("rate=5") is None
    with pytest.raises(KeyError) as caught:
        campaign["rate=5"]
    assert caught.value.args == ("rate=5",)


def test_a_campaign_in_one_table(campaign: tailscope.OpenedCampaign) -> None:
    rows = {row["cell"]: row for row in campaign.summary.to_pylist()}
    assert rows["rate=1"]["run"] is None and rows["rate=1"]["state"] == "failed"
    for name, run in campaign.items():
        assert rows[name]["rate"] == name.removeprefix("rate=")
        assert {each: rows[name][each] for each in run.summary} == dict(run.summary)
    (warning,) = campaign.warnings
    assert_wording("opened/campaign-warning", warning)


def test_packets_of_a_campaign_in_one_table(campaign: tailscope.OpenedCampaign) -> None:
    table = campaign.latencies("latency_ns")
    assert table.column_names == ["run", "latency_ns"]
    counts = {each["values"]: each["counts"] for each in pc.value_counts(table["run"]).to_pylist()}
    assert counts == {name: run.summary["count"] for name, run in campaign.items()}
    assert {*campaign.worst["run"].to_pylist()} == {*campaign}
    assert len(campaign.noise) == 0


def test_runs_that_cannot_be_read_are_left_out(
    campaign: tailscope.OpenedCampaign, tmp_path: Path
) -> None:
    shutil.copytree(campaign.path, tmp_path / "copy")
    (tmp_path / "copy" / "rate=10000" / layout.SUMMARY).unlink()
    found = tailscope.open(tmp_path / "copy")
    assert isinstance(found, tailscope.OpenedCampaign)
    assert any("rate=10000: left out: " in warning for warning in found.warnings)
    assert {*found.latencies("seq")["run"].to_pylist()} == {"rate=20000"}
    with pytest.raises(RunCorruptError) as caught:
        found["rate=10000"]
    assert "summary.json: " in str(caught.value)


def test_a_variable_may_be_called_like_a_figure(tmp_path: Path) -> None:
    write_run(tmp_path / "a", latencies(1))
    write_campaign(tmp_path, [{"values": {"state": "x", "lost": "y"}, "runs": ["a"]}])
    (row,) = tailscope.open(tmp_path).summary.to_pylist()  # type: ignore[union-attr]
    assert (row["state"], row["vary.state"], row["lost"], row["vary.lost"]) == ("done", "x", 0, "y")


def test_names_need_not_be_text(tmp_path: Path) -> None:
    name = "r\udcff"
    write_run(tmp_path / name, latencies(1))
    write_campaign(tmp_path, [{"name": name, "values": {"rate": name}, "runs": [name]}])
    found = tailscope.open(tmp_path)
    (row,) = found.summary.to_pylist()  # type: ignore[union-attr]
    shown = r"r\udcff"
    assert (row["run"], row["cell"], row["rate"]) == (shown, shown, shown)
    assert found.latencies("seq")["run"][0].as_py() == shown
    assert found._repr_html_().encode()
    assert repr(found[name]).startswith(rf"<tailscope.OpenedRun {shown}")  # type: ignore[index]


@pytest.mark.parametrize("name", ["nowhere", "demo", "demo/10k/run.json"])
def test_what_is_neither_a_run_nor_a_campaign_is_refused(shelf: Path, name: str) -> None:
    with raises(RunError, "not-a-run") as caught:
        tailscope.open(shelf / name)
    assert str(shelf / name) in str(caught.value)
    assert "tailscope runs list DIR" in commands_in(caught.value.hint)


def test_damaged_and_unfinished_runs_are_refused(
    captured: tailscope.OpenedRun, tmp_path: Path
) -> None:
    shutil.copytree(captured.path, tmp_path / "run")
    (tmp_path / "run" / layout.LATENCY).write_bytes(b"")
    with pytest.raises(RunCorruptError) as caught:
        opened_run(tmp_path / "run").latencies()
    assert f"{layout.LATENCY}: sha256: " in str(caught.value)
    write_mark(tmp_path / "run", {"format": 3, "complete": False})
    with pytest.raises(RunIncompleteError):
        tailscope.open(tmp_path / "run")


def test_plots_are_the_figures_of_the_report(captured: tailscope.OpenedRun, tmp_path: Path) -> None:
    names = [each.__name__ for each in import_module("tailscope.report.figures").figures()]
    assert dir(captured.plot) == sorted(names)
    drawn = captured.plot.percentiles()
    assert repr(drawn) == f"<tailscope.Drawing {drawn.title}>"
    assert_wording("report/percentiles", drawn.title)
    assert isinstance(captured.plot.ccdf(), Drawing)
    for kind, start in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        drawn.save(tmp_path / f"p.{kind}")
        assert (tmp_path / f"p.{kind}").read_bytes().startswith(start)
    with raises(UsageError, "figure-format") as refused:
        drawn.save(tmp_path / "p.jpg")
    assert "p.jpg: " in str(refused.value) and ".png or" in str(refused.value)
    with raises(UsageError, "no-data") as refused:
        captured.plot.stalls()
    assert ": stalls: " in str(refused.value)
    with pytest.raises(AttributeError) as caught:
        captured.plot.percentile()
    assert "'percentile'" in str(caught.value) and "ccdf" in str(caught.value)


def test_notebooks_show_runs_and_campaigns(
    captured: tailscope.OpenedRun, campaign: tailscope.OpenedCampaign
) -> None:
    page = captured._repr_html_()
    assert page.count('<img src="data:image/svg+xml;base64,') == 1
    assert "80 of 4,000" in page and "<th" in page
    assert "2 done, 1 failed" in campaign._repr_html_()
    assert_wording("report/campaign-percentiles", campaign.plot.percentiles().title)
    assert "data:image/svg+xml" in campaign.plot.percentiles()._repr_html_()


def test_without_matplotlib_a_run_shows_the_rest(
    captured: tailscope.OpenedRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = captured._repr_html_()
    assert "<img" not in page
    assert "80 of 4,000" in page and "tailscope[plot]" in page
    with raises(UsageError, "not-installed"):
        captured.plot.percentiles().save(tmp_path / "p.svg")
    assert not [*tmp_path.iterdir()]


def test_a_run_without_a_match_shows_itself(tmp_path: Path) -> None:
    run = opened_run(write_run(tmp_path / "none", latencies(1)[:5], lost=5))
    assert "No packet" in run._repr_html_()
    assert len(run.latencies()) == 0
    with raises(UsageError, "no-data") as refused:
        run.plot.percentiles()
    assert ": percentiles: " in str(refused.value)


def test_nothing_from_outside_becomes_markup(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign"
    campaign.mkdir()
    path = write_run(campaign / HOSTILE, latencies(1), causes={HOSTILE: 1.0})
    edited(path, warnings=[HOSTILE], partial=[HOSTILE])
    cell = {"name": HOSTILE, "values": {HOSTILE: HOSTILE}, "runs": [HOSTILE]}
    other = {"name": "b", "values": {HOSTILE: "b"}, "state": HOSTILE, "reason": HOSTILE}
    write_campaign(campaign, [cell, other], name=HOSTILE)
    run, whole = opened_run(path), tailscope.open(campaign)
    drawn = whole.plot.percentiles()
    for page in (run, run.explain(), run.plot.percentiles(), whole, drawn):
        text = page._repr_html_()
        for drawing in re.findall('base64,([^"]+)', text):
            text += base64.b64decode(drawing).decode()
        assert "<img src=x" not in text
        assert "<script" not in text
    assert run._repr_html_().count("&lt;img src=x") >= 3


def cells() -> Iterator[str]:
    """The code of the notebook."""
    book = json.loads(NOTEBOOK.read_text())
    assert (book["nbformat"], book["metadata"]["kernelspec"]["name"]) == (4, "python3")
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"] and cell["execution_count"] is None
            yield "".join(cell["source"])


@pytest.mark.parametrize("run", ["captured", "measured"])
def test_the_notebook_runs(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    shutil.copytree(shelf, tmp_path, dirs_exist_ok=True)
    if run == "measured":
        shutil.rmtree(tmp_path / "demo" / "10k")
        shutil.copytree(shelf / "runs" / "mine" / "rate=10000", tmp_path / "demo" / "10k")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for at, cell in enumerate(cells()):
        exec(compile(cell, f"{NOTEBOOK.name}:{at}", "exec"), names)
    assert isinstance(names["run"], tailscope.OpenedRun)
    assert isinstance(names["campaign"], tailscope.OpenedCampaign)
    assert (tmp_path / "percentiles.svg").exists()
    found = names["run"].latencies("latency_ns")["latency_ns"]
    assert names["beyond"] == sum(latency_ns > 1_500 for latency_ns in found.to_pylist())
