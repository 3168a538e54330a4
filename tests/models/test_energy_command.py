"""``tailscope model energy``: the paper's Table III, from readings of a meter."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from documentation import undocumented
from errors import code_of, unwrapped
from msgspec.structs import replace
from runs import write_mark
from wording import assert_wording

from tailscope.engine.analysis import Clock, Recording
from tailscope.experiment.run.energy import RunEnergy, sending_ns
from tailscope.models.energy import PHASES
from tailscope.store.records.base import as_content
from tailscope.testbed.power import Ipmi, PowerReading, RecordedPower

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.store.records.run import PowerRecord

Run = Callable[..., Any]

S = 1_000_000_000
PHASE_S, PACKETS = 10, 100_000
ENABLED, DISABLED = (31, 42, 45), (46, 47, 47)


def energy(watts: tuple[int, ...], skipped: int = 0) -> RunEnergy:
    """Readings of whole watts, once a second, in three phases of ten, the first of them skipped."""
    at_s = [second for at in range(3) for second in range(at * 100, at * 100 + PHASE_S + 1)]
    readings = [
        PowerReading(second * S, 1000, (Decimal(watts[second // 100]),))
        for second in at_s[skipped:]
    ]
    phases = {name: (at * 100 * S, (at * 100 + PHASE_S) * S) for at, name in enumerate(PHASES[:2])}
    recorded = RecordedPower(Ipmi().meter, None, readings, [], phases, [])
    left = np.linspace(200 * S, (200 + PHASE_S) * S, PACKETS).astype(np.uint64)
    nothing = np.empty(0, np.uint64)
    recording = Recording(Clock(S, 0, 0), left, left, *[nothing] * 5)
    return RunEnergy(recorded, sending_ns(recording), PACKETS)


@pytest.fixture(scope="module")
def runs(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both rows of Table III, and a run without power."""
    folder = tmp_path_factory.mktemp("runs")
    pair = captures.pair(folder / "pair", [1000] * 100, gap=1000)
    assert tailscope("analyze", *pair, "--out", folder / "without").returncode == 0
    for name, watts in (("enabled", ENABLED), ("disabled", DISABLED)):
        with_power(folder, name, energy(watts).record())
    return folder


def with_power(folder: Path, name: str, power: PowerRecord) -> Path:
    """A copy of the run, which says this of power."""
    shutil.copytree(folder / "without", folder / name)
    info = json.loads((folder / name / "run.json").read_text())
    return write_mark(folder / name, {**info, "power": as_content(power)})


def test_table_3_side_by_side(tailscope: Run, runs: Path) -> None:
    done = tailscope("model", "energy", runs / "enabled", runs / "disabled", "--json", "-")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    enabled, disabled = record["runs"]
    for one, watts in ((enabled, ENABLED), (disabled, DISABLED)):
        assert [one[f"power_w_{name}"] for name in PHASES] == pytest.approx(watts)
    assert enabled["power_w_processing_above_idle"] == pytest.approx(14)
    assert enabled["power_w_processing_above_running"] == pytest.approx(3)
    assert enabled["energy_j_per_packet"] == pytest.approx(45 * PHASE_S / PACKETS)
    assert enabled["energy_j_per_million_packets_above_idle"] == pytest.approx(1400)
    (more,) = record["differences"]
    assert more["compared_with"] == enabled["run"]
    assert [more[f"more_w_{name}"] for name in PHASES] == pytest.approx([15, 5, 2])
    assert [round(100 * more[f"more_share_{name}"]) for name in PHASES] == [48, 12, 4]
    assert (
        more["more_share_idle_ci_low"] < more["more_share_idle"] < more["more_share_idle_ci_high"]
    )
    for part in (*record["runs"], *record["differences"]):
        assert not undocumented(part, "energy.md")
    assert not undocumented(["trust"], "energy.md") and record["trust"] is None


def test_words_say_the_same(tailscope: Run, runs: Path) -> None:
    done = tailscope("model", "energy", "enabled", "disabled", cwd=runs)
    assert_wording("energy/side-by-side", done.stdout)


def test_one_run_has_nothing_to_be_compared_with(tailscope: Run, runs: Path) -> None:
    done = tailscope("model", "energy", runs / "enabled", "--json", "-")
    assert json.loads(done.stdout)["differences"] == []


def test_what_is_not_known_is_no_zero(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "without", tmp_path / "without")
    power = energy(ENABLED, skipped=PHASE_S + 1)
    [warning] = power.warnings()
    assert_wording("energy/unknown-power", warning)
    reason = warning.rpartition(": ")[2]
    short = with_power(tmp_path, "short", power.record())
    done = tailscope("model", "energy", runs / "enabled", short, "--json", "-")
    assert done.returncode == 3, done.stderr
    record = json.loads(done.stdout)
    assert record["runs"][1]["power_w_idle"] is record["differences"][0]["more_share_idle"] is None
    assert record["differences"][0]["more_w_running"] == pytest.approx(0)
    text = tailscope("model", "energy", short).stdout
    assert f"{short}: power_w_idle: {reason}" in unwrapped(text)


def test_runs_that_cannot_be_compared_are_refused(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    done = tailscope("model", "energy", runs / "without")
    assert done.returncode == 1
    assert code_of(done) is not None and f"{runs}/without: " in done.stderr
    shutil.copytree(runs / "without", tmp_path / "without")
    other = replace(energy(ENABLED).record(), source="rapl", includes="package-0")
    rapl = with_power(tmp_path, "rapl", other)
    done = tailscope("model", "energy", runs / "enabled", rapl)
    assert done.returncode == 1
    assert "rapl: " in done.stderr and "package-0" in done.stderr


def test_a_page_has_a_table_of_it(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    for names, there in ((["enabled"], True), (["without"], False)):
        page = tmp_path / "page.html"
        done = tailscope("report", *[runs / name for name in names], "--out", page)
        assert done.returncode == 0, done.stderr
        text = page.read_text()
        assert ("<summary>Energy</summary>" in text) == there
        cells = re.findall(r"<td[^>]*>(4\d\.\d\d W[^<]*)</td>", text)
        assert ("45.00 W" in cells and "44.50 W to 45.50 W" in cells) == there
