"""``tailscope model tail`` of many runs: together, one by one, and by the paper's method."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from docs.calibration.tail import simulated
from documentation import undocumented
from errors import code_of, raises

from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.models.equation1 import FIXED, THRESHOLDS, equation_1
from tailscope.extra.tail.models.excesses import of_worst
from tailscope.extra.tail.models.model import Settings, model
from tailscope.extra.tail.records import TailRecord
from tailscope.extra.tail.shapes import PaperThreshold, TailShapes, shape_pictures
from tailscope.store.kept import kept
from tailscope.store.reader import read_info
from tailscope.units import short_duration_text

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

Run = Callable[..., Any]

PAGE = "extra/tail/tail.md"
COUNT, WORST, DURATION_NS = 2_000_000, 1_500, 160_000_000_000
SCALE_NS, FLOOR_NS = 5_000, 80_000
SINCE = (
    "fit_p_value",
    "known_max_ns_ci_low",
    "known_max_ns_median",
    "known_max_ns_ci_high",
    "promise",
    "runs",
    "start_up",
    "like",
)


def worst_packets(seed: int, scale_ns: float = SCALE_NS) -> tuple[NDArray[Any], NDArray[Any]]:
    """Times and latencies of the worst packets of a run with an exponential tail."""
    rng = np.random.default_rng(seed)
    sent = np.sort(rng.integers(0, DURATION_NS, WORST))
    return sent, FLOOR_NS + np.rint(rng.exponential(scale_ns, WORST)).astype(int)


def write_tables(folder: Path, name: str, seed: int, scale_ns: float = SCALE_NS) -> Path:
    """A table of the worst packets, and that of the counts beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.trim_ms0.num_worst{WORST}.worst.csv"
    rows = zip(*(each.tolist() for each in worst_packets(seed, scale_ns)), strict=True)
    file.write_text("latency,prets\n" + "".join(f"{worst},{sent}\n" for sent, worst in rows))
    stats = folder / f"{name}.trim_ms0.stats.csv"
    stats.write_text(f"pre_received,post_received\n{COUNT + 3},{COUNT}\n")
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables")
    for at, rate in enumerate(("rate10", "rate20")):
        write_tables(path / "bare/rt", rate, at)
    write_tables(path / "container/rt", "rate10", 2)
    empty = path / "container/rt/rate20.trim_ms0.num_worst1500.worst.csv"
    empty.write_text("latency,prets\n")
    empty.with_name("rate20.trim_ms0.stats.csv").write_text("post_received\n7\n")
    return path


def test_a_folder_of_tables_has_a_line_for_each_setting(
    tailscope: Run, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "table.json"
    done = tailscope("model", "tail", folder, "--json", file)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:3] for line in lines[2:4]] == [
        ["bare/rt", "2", "0"],
        ["container/rt", "2", "1"],
    ]
    [skipped] = [line for line in lines if line.startswith("container/rt/rate20: ")]
    assert "1 to 7 packets" in skipped and skipped.endswith(" got 0")
    found = json.loads(file.read_text())
    assert not undocumented(found["settings"][0], PAGE)
    assert not undocumented(found["runs"][0], PAGE)
    assert not undocumented(found["runs"][0]["equation_1"], PAGE)
    assert not undocumented(found["runs"][0]["tailscope"], PAGE)
    assert [run["name"] for run in found["runs"]] == ["rate10", "rate20"] * 2
    own = [run["tailscope"] for run in found["runs"][:2]]
    bare = found["settings"][0]
    assert bare["exceedances_bursts_mean"] == np.mean([run["exceedances_bursts"] for run in own])
    assert bare["bounded_share"] == np.mean([run["bounded"] for run in own])
    inside = [
        run["rest_max_ns_ci_low"] <= run["rest_max_ns"] <= run["rest_max_ns_ci_high"] for run in own
    ]
    assert bare["inside_share"] == np.mean(inside)
    assert found["runs"][3]["tailscope"] is None
    assert found["trust"] is None


def test_a_folder_of_tables_is_drawn(tailscope: Run, folder: Path, tmp_path: Path) -> None:
    files = tmp_path / "tails.svg", tmp_path / "table.json"
    done = tailscope("model", "tail", folder, "--figure", files[0], "--json", files[1])
    assert done.returncode == 0, done.stderr
    drawn = files[0].read_text()
    for text in ("Equation 1", "tailscope", "ADF", "KPSS", "p99.999", "divergence [bits]", "ξ"):
        assert text in drawn
    runs = [each for each in json.loads(files[1].read_text())["runs"] if each["tailscope"]]
    shapes = TailShapes(
        *([each["tailscope"][test]["p_value"] for each in runs] for test in ("adf", "kpss")),
        xi=[each["tailscope"]["xi"] for each in runs],
        equation_1_xi=[each["equation_1"]["xi"] for each in runs],
        thresholds=[PaperThreshold(0.999, 70_000.0, 0.1), PaperThreshold(0.9999, 80_000.0, 0.2)],
    )
    *_, thresholds, bounded = shape_pictures("tables", shapes)
    theirs, own = bounded.layers
    assert own.columns["x"].tolist() == sorted(shapes.xi)
    assert own.columns["y"].tolist() == [1 / 3, 2 / 3, 1]
    assert theirs.columns["x"].tolist() == sorted(shapes.equation_1_xi)
    assert [layer.label for layer in thresholds.layers] == ["p99.9", "p99.99"]
    assert [layer.columns["x"].tolist() for layer in thresholds.layers] == [[70.0], [80.0]]


def test_a_run_of_the_table_is_what_it_is_alone(
    tailscope: Run, folder: Path, tmp_path: Path
) -> None:
    files = tmp_path / "table.json", tmp_path / "alone.json"
    (worst,) = (folder / "container/rt").glob("rate10*.worst.csv")
    arguments = ("--worst", worst, "--count", COUNT, "--json")
    assert tailscope("model", "tail", *arguments, files[1]).returncode == 0
    done = tailscope("model", "tail", *arguments, files[0], "--law", "equation-1")
    assert done.returncode == 0, done.stderr
    assert "Eq. 1: runs" in done.stdout
    table, alone = (json.loads(file.read_text()) for file in files)
    own = table["runs"][0]["tailscope"]
    assert own == {name: value for name, value in alone.items() if name in own}
    assert set(alone) - set(own) == {"stability", "levels_ahead", "quantile_pairs", "trust"}


def test_without_counts_a_folder_is_refused(tailscope: Run, tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", "rate10", 1)
    (tmp_path / "tables" / "rate10.trim_ms0.stats.csv").unlink()
    done = tailscope("model", "tail", tmp_path / "tables")
    assert done.returncode == 1
    assert code_of(done) is not None and "rate10.trim_ms0.stats.csv" in done.stderr


@pytest.mark.parametrize("seed", range(3))
def test_equation_1_is_that_of_the_paper(seed: int) -> None:
    """The figures follow the paper's own formula, and a count of the rest packet by packet."""
    sent, latency = worst_packets(seed)
    excesses = of_worst(sent, latency, COUNT)
    found = equation_1(excesses, 0.2, 1_000_000)
    first, rest = excesses.split(0.2)
    assert {each.threshold for each in found.fits} <= set(THRESHOLDS)
    everything = np.zeros(first.count)
    everything[: len(first.latency_ns)] = first.latency_ns
    for each in found.fits:
        assert each.threshold_ns == pytest.approx(np.percentile(everything, 100 * each.threshold))
        assert each.excesses == int((first.latency_ns > each.threshold_ns).sum())
    chosen = found.chosen
    assert chosen.threshold == FIXED
    times = rest.count * chosen.excesses / first.count
    level = chosen.threshold_ns + chosen.sigma_ns / chosen.xi * (times**chosen.xi - 1)
    assert found.return_level_ns == pytest.approx(level, rel=1e-6)
    above = [each for each in latency[np.argsort(sent)][len(first.latency_ns) :] if each > level]
    assert found.exceedances_packets == pytest.approx(len(above), abs=1)
    assert found.exceedances_bursts <= found.exceedances_packets
    assert found.is_bounded == (chosen.xi < 0)


def test_equation_1_asks_for_the_packets_above_its_threshold() -> None:
    sent, latency = worst_packets(1)
    with raises(EvidenceError, "equation1-none"):
        equation_1(of_worst(sent, latency, 10 * COUNT), 0.2, 1_000_000)


def test_several_runs_are_one_question(tailscope: Run, tmp_path: Path) -> None:
    files = [write_tables(tmp_path / "three", f"repeat{seed}", seed) for seed in range(3)]
    arguments = [text for file in files for text in ("--worst", file, "--count", COUNT)]
    done = tailscope("model", "tail", *arguments, "--json", tmp_path / "tail.json")
    assert done.returncode == 0, done.stderr
    assert re.search("^3 runs ", done.stdout, re.M)
    found = json.loads((tmp_path / "tail.json").read_text())
    assert (found["runs"], found["count"], found["split"]) == (3, 3 * COUNT, 1)
    assert found["return_packets"] == COUNT
    assert found["rest_max_ns"] is None
    assert found["rest_max_ns_ci_low"] < found["latency_ns_max"] < found["rest_max_ns_ci_high"]


def test_runs_of_several_rates_are_told(tailscope: Run, tmp_path: Path) -> None:
    files = [write_tables(tmp_path / "two", f"repeat{seed}", seed) for seed in range(2)]
    for factor, is_told in ((1.1, False), (2, True)):
        counts = COUNT, round(factor * COUNT)
        given = [("--worst", file, "--count", n) for file, n in zip(files, counts, strict=True)]
        done = tailscope("model", "tail", *given[0], *given[1])
        assert done.returncode == 0, done.stderr
        assert ("by --like" in done.stdout) == is_told


def test_runs_that_differ_widen_the_answer() -> None:
    """The largest latency of a further run is not bounded by that of their mean."""
    widths, spreads = [], (1, 1.6)
    for spread in spreads:
        scales = [SCALE_NS * factor for factor in (1 / spread, 1, spread)]
        runs = [of_worst(*worst_packets(*each), COUNT) for each in enumerate(scales)]
        found = model(runs, Settings(split=1, resamples=100), np.random.default_rng(1))
        out = found.ahead.largest
        assert found.next_quantiles
        for each in found.next_quantiles:
            assert each.low_ns <= each.high_ns <= out.high_ns
        widths.append(out.known_ns[2] / out.low_ns)
        further = [worst_packets(seed, scales[seed % 3])[1].max() for seed in range(100, 220)]
        held = [out.low_ns <= largest_ns <= out.known_ns[2] for largest_ns in further]
        assert np.mean(held) >= 0.95
    assert widths[1] > 1.1 * widths[0]


def test_one_burst_of_its_own_may_come_again(tailscope: Run, tmp_path: Path) -> None:
    file = write_tables(tmp_path / "rare", "rate10", 5)
    middle_of_the_first_part = DURATION_NS // 10
    with file.open("a") as table:
        table.write(f"{50 * FLOOR_NS},{middle_of_the_first_part}\n")
    arguments = ("--worst", file, "--count", COUNT, "--horizon", "24h")
    done = tailscope("model", "tail", *arguments, "--json", tmp_path / "tail.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "tail.json").read_text())
    assert found["promise"] == "rare" and "rare: 1 burst" in done.stdout
    assert not undocumented(found["rare"], PAGE)
    assert found["rare"]["latency_ns_max"] == 50 * FLOOR_NS
    assert found["rest_max_ns_ci_high"] > 2 * 50 * FLOOR_NS
    assert not found["bounded"]
    bulk, rare, *_ = found["rest_max_ns_regions"]
    assert bulk["high"] < 3 * FLOOR_NS < rare["low"] < 50 * FLOOR_NS < rare["high"]
    assert f"the largest is {short_duration_text(rare['low'])} or more" in done.stdout
    later = found["horizon"]
    assert later["rest_max_ns_ci_high"] is None and later["known_max_ns_ci_high"] is None
    least = short_duration_text(later["rest_max_ns_ci_low"])
    assert f"the largest in 24 h: {least} or more" in done.stdout
    for number in re.findall(r"(?<![\w.,])[\d,]+\.\d+", done.stdout):
        assert len(re.sub("[.,]", "", number).lstrip("0")) <= 4, number


def test_a_kept_tail_of_before_is_read(tailscope: Run, tmp_path: Path) -> None:
    latencies = 3_000 + np.random.default_rng(4).exponential(20_000, 20_000)
    pair = captures.pair(tmp_path / "pair", np.rint(latencies).astype(int).tolist(), gap=100_000)
    assert tailscope("analyze", *pair, "--out", tmp_path / "run").returncode == 0
    done = tailscope("model", "tail", tmp_path / "run", "--split", "0.5", "--keep")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "run" / "tail.json"
    new = json.loads(file.read_text())
    assert set(SINCE) < set(new)
    old = {name: value for name, value in new.items() if name not in SINCE}
    for name in ("rest_max_ns", "rest_max_ns_ci_low", "rest_max_ns_ci_high", "rare", "schedule"):
        old.pop(name, None)
    for each in old["candidates"]:
        each.pop("fit_p_value", None)
    content = json.dumps({k: v for k, v in old.items() if k != "kept"}, sort_keys=True)
    old["kept"]["content_sha256"] = hashlib.sha256(content.encode()).hexdigest()
    file.write_text(json.dumps(old))
    found = kept(tmp_path / "run", read_info(tmp_path / "run"), "tail.json")
    assert isinstance(found, TailRecord)
    assert (found.return_level_ns, found.runs) == (new["return_level_ns"], 1)
    assert (found.rest_max_ns_ci_low, found.fit_p_value, found.rare) == (None, None, None)
    assert tailscope("runs", "show", tmp_path / "run").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["FOLDER", "--keep"], "--keep: expected one run, got several"),
        (["--worst", "a", "--worst", "b", "--count", "3"], "must be given together, as often"),
    ],
)
def test_what_many_runs_cannot_have(
    tailscope: Run, folder: Path, arguments: list[str], expected: str
) -> None:
    done = tailscope("model", "tail", *(folder if text == "FOLDER" else text for text in arguments))
    assert done.returncode == 1
    assert expected in done.stderr


def test_a_short_horizon_is_not_held_to_what_a_long_run_has_seen() -> None:
    sent, latency = worst_packets(7)
    order = np.argsort(sent, kind="stable")
    excesses = of_worst(sent[order], latency[order], COUNT)
    found = model(excesses, Settings(horizon_ns=4_000_000_000), np.random.default_rng(1))
    assert found.horizon is not None
    law_ns = FLOOR_NS + SCALE_NS * np.log(WORST * 4 / 160)
    assert abs(found.horizon.forecast.largest.level_ns - law_ns) < 0.5 * SCALE_NS
    assert found.horizon.forecast.largest.level_ns < latency.max()


def test_a_coarse_clock_is_no_second_cause() -> None:
    refused = 0
    for seed in range(5):
        sent, latency = worst_packets(seed)
        order = np.argsort(sent, kind="stable")
        rounded = latency[order] // 2_000 * 2_000
        found = model(of_worst(sent[order], rounded, COUNT), Settings(), np.random.default_rng(1))
        refused += found.ahead.refused is not None
    assert refused <= 2


def test_what_comes_by_a_clock_is_predicted_by_it() -> None:
    found = model(simulated("with a schedule", 3), Settings(), np.random.default_rng(1))
    due_ns = found.ahead.next_due_ns
    assert due_ns is not None
    turns = (due_ns / 1e9 - 2) / 5
    assert turns == pytest.approx(round(turns), abs=0.02)
    assert found.ahead.duration_ns < due_ns <= found.ahead.duration_ns + 5.1e9
