"""Which knob matters: the design, the statistics, and the real thing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from runs import AS_ROOT

from tailscope.exceptions import UsageError
from tailscope.experiment.ablation import ALL, NONE, arms_of, effects, order
from tailscope.host.apply import applicable
from tailscope.host.machine import Machine

if TYPE_CHECKING:
    import subprocess

    from measurements import Place

Run = Callable[..., "subprocess.CompletedProcess[str]"]

ONE = "name: one\nfixed: {dut: l2fwd, rate: 50k, duration: 500ms, warm_up: 100ms}\n"
TWO = f"{ONE}vary: {{burst: [1, 2]}}\n"


def test_arms_are_all_none_and_one_less() -> None:
    arms = {arm.name: arm.knobs for arm in arms_of(["a", "b", "c"])}
    assert arms == {
        ALL: ("a", "b", "c"),
        NONE: (),
        "a": ("b", "c"),
        "b": ("a", "c"),
        "c": ("a", "b"),
    }
    assert [arm.name for arm in arms_of(["a"])] == [ALL, NONE]


def test_each_round_has_every_arm_in_an_order_of_its_own() -> None:
    arms = arms_of(["a", "b", "c"])
    rounds = order(arms, 20, seed=1)
    assert all(sorted(each, key=arms.index) == arms for each in rounds)
    assert len({tuple(arm.name for arm in each) for each in rounds}) > 10
    assert rounds == order(arms, 20, seed=1) != order(arms, 20, seed=2)
    with pytest.raises(UsageError, match="--rounds: got 2, expected at least 3"):
        order(arms, 2, seed=1)


def simulated(
    factors: dict[str, float], rounds: int, chance: np.random.Generator
) -> dict[str, list[int]]:
    """Latencies that drift, and that each arm multiplies."""
    drift = np.exp(np.cumsum(chance.normal(0, 0.3, rounds)))
    return {
        name: np.rint(20_000 * drift * factor * np.exp(chance.normal(0, 0.05, rounds)))
        .astype(int)
        .tolist()
        for name, factor in factors.items()
    }


def test_what_matters_is_ranked_first() -> None:
    factors = {ALL: 1.0, NONE: 2.0, "good": 2.0, "idle": 1.0, "bad": 0.5}
    found = effects(simulated(factors, 8, np.random.default_rng(1)))
    assert {effect.knob for effect in found[:2]} == {"good", "bad"}
    verdicts = {effect.knob: effect.verdict for effect in found}
    assert verdicts == {
        "good": "helps",
        "bad": "hurts",
        "idle": "no measurable effect here",
        NONE: "helps",
    }
    assert found[-1].knob == NONE
    assert all(effect.n == 8 and effect.ci_low < effect.ratio < effect.ci_high for effect in found)


def test_intervals_hold_for_all_knobs_together() -> None:
    """Of runs in which nothing matters, at most 5 % say of any knob that it does."""
    chance = np.random.default_rng(2)
    factors = dict.fromkeys((ALL, NONE, *"abcdefgh"), 1.0)
    wrong = 0
    for _ in range(400):
        found = effects(simulated(factors, 6, chance))
        wrong += any(effect.verdict != "no measurable effect here" for effect in found)
    assert wrong <= 400 * 0.05 + 3 * np.sqrt(400 * 0.05 * 0.95)


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (TWO, [], "got 2 cells, expected one"),
        (ONE, ["--quantile", "0.9999"], "p99.99 needs 100,000 packets, got 25,000"),
        (ONE, ["--quantile", "1.5"], "--quantile: got 1.5, expected more than 0 and less than 1"),
        (ONE, ["--knob", "volume"], "got 'volume', expected a knob"),
        (ONE, ["--knob", "nohz-full"], "got 'nohz-full', expected a knob that can be set"),
        (ONE, ["--rounds", "1"], "--rounds: got 1, expected at least 3"),
        (ONE.replace("l2fwd", "l2fwd, tune: true"), [], "tune: that is what this command does"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tailscope: Run, tmp_path: Path, text: str, options: list[str], expected: str
) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(text)
    done = tailscope("tune", file, *options, "--dry-run")
    assert done.returncode == 1
    assert expected in done.stderr


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_a_knob_is_measured_and_set_back(tailscope: Run, place: Place, tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(ONE)
    knob = Path("/proc/sys/vm/stat_interval")
    before = knob.read_text()
    knob.write_text("7")
    options = ("--knob", "stat-interval", "--rounds", "3", "--quantile", "0.99")
    try:
        planned = tailscope("tune", file, *options, "--dry-run", env=place.environment)
        done = tailscope("tune", file, *options, "--json", "-", env=place.environment)
        assert knob.read_text() == "7\n"
    finally:
        knob.write_text(before)
    assert "stat-interval" in planned.stdout
    assert "6, about" in planned.stdout
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("round ") == 6
    found = json.loads(done.stdout)
    assert found["knobs"] == ["stat-interval"]
    assert {name: len(values) for name, values in found["latency_ns"].items()} == {ALL: 3, NONE: 3}
    [effect] = found["effects"]
    assert effect["ci_low"] <= effect["ratio"] <= effect["ci_high"]
    assert effect["verdict"] in ("helps", "hurts", "no measurable effect here")


def test_only_what_would_change_something_is_compared() -> None:
    names = [knob.name for knob in applicable(Machine(), (0,)).knobs]
    assert len(names) == len(set(names))
    assert "nohz-full" not in names
