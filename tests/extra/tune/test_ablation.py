"""Which knob matters: the design, the statistics, and the real thing."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from command import COMMAND
from errors import code_of, raises
from runs import AS_ROOT
from wording import assert_wording

from tailscope.exceptions import TestbedError, UsageError
from tailscope.extra.tune.ablation import ALL, NONE, arms_of, effects, order
from tailscope.extra.tune.command import _complete, _knobs
from tailscope.host.apply import applicable
from tailscope.host.machine import Machine

if TYPE_CHECKING:
    from measurements import Place

Run = Callable[..., subprocess.CompletedProcess[str]]

ONE = "name: one\nfixed: {dut: l2fwd, rate: 50k, noise: stalls, duration: 500ms, warm_up: 100ms}\n"
BRIEF = ONE.replace("500ms", "200ms").replace("100ms", "20ms")
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
    with raises(UsageError, "rounds"):
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
    assert_wording("tune/no-effect", verdicts.pop("idle"))
    assert verdicts == {"good": "helps", "bad": "hurts", NONE: "helps"}
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
    ("text", "options", "code", "values"),
    [
        (TWO, [], "several-cells", ["got 2"]),
        (ONE, ["--quantile", "0.9999"], "quantile-unsupported", ["100,000", "25,000"]),
        (ONE, ["--quantile", "150"], "quantile", ["150"]),
        (ONE, ["--knob", "volume"], "no-such-knob", ["'volume'"]),
        (ONE, ["--knob", "nohz-full"], "knob-needs-boot", ["'nohz-full'"]),
        (ONE, ["--rounds", "1"], "rounds", ["got 1", "3"]),
        (ONE.replace("l2fwd", "l2fwd, tune: true"), [], "tune-field", []),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tailscope: Run, tmp_path: Path, text: str, options: list[str], code: str, values: list[str]
) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(text)
    done = tailscope("host", "tune", file, *options, "--dry-run")
    assert (done.returncode, code_of(done)) == (1, code)
    assert all(value in done.stderr for value in values)


@AS_ROOT
@pytest.mark.usefixtures("dataplane", "alone")
def test_a_knob_is_measured_and_set_back(tailscope: Run, place: Place, tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(BRIEF)
    knob = Path("/proc/sys/vm/stat_interval")
    before = knob.read_text()
    knob.write_text("7")
    options = ("--knob", "stat-interval", "--rounds", "3", "--quantile", "0.99")
    try:
        planned = tailscope("host", "tune", file, *options, "--dry-run", env=place.environment)
        done = tailscope("host", "tune", file, *options, "--json", "-", env=place.environment)
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
    assert effect["level"] == 0.95 and found["partial"] is None
    assert effect["verdict"] in ("helps", "hurts", "no measurable effect here")


@AS_ROOT
@pytest.mark.usefixtures("dataplane", "alone")
@pytest.mark.parametrize(
    ("at", "is_enough"), [(2, False), pytest.param(4, True, marks=pytest.mark.long)]
)
def test_complete_rounds_survive_ctrl_c(
    place: Place, tmp_path: Path, at: int, is_enough: bool
) -> None:
    file, figures = tmp_path / "one.yaml", tmp_path / "figures.json"
    file.write_text(BRIEF)
    knob = Path("/proc/sys/vm/dirty_writeback_centisecs")
    before = knob.read_text()
    knob.write_text("777")
    options = ("--knob", "writeback-interval", "--rounds", "50", "--quantile", "0.99")
    command = [str(COMMAND), "host", "tune", str(file), *options, "--json", str(figures)]
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, env=place.environment
        ) as process:
            assert process.stderr is not None and process.stdout is not None
            for line in process.stderr:
                if line.startswith(f"round {at} "):
                    break
            process.send_signal(signal.SIGINT)
            said, output = process.stderr.read(), process.stdout.read()
        assert knob.read_text() == "777\n"
    finally:
        knob.write_text(before)
    assert process.returncode == 130 and "error: interrupted" in said
    assert figures.exists() == is_enough
    if is_enough:
        found = json.loads(figures.read_text())
        assert found["rounds"] == 3
        assert_wording("tune/partial", found["partial"])
        assert [effect["n"] for effect in found["effects"]] == [3]
        assert f"partial: {found['partial']}" in output
    else:
        [few] = [line for line in said.splitlines() if "judged" in line]
        assert_wording("tune/too-few-rounds", few)


def test_complete_rounds_survive_a_failed_run() -> None:
    def measured() -> Iterator[dict[str, int]]:
        yield {ALL: 1, NONE: 2}
        raise TestbedError("no CPU")

    rounds, stopped = _complete(measured())
    assert rounds == [{ALL: 1, NONE: 2}] and str(stopped) == "no CPU"


def test_what_acts_late_is_compared_only_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "sys/devices/system/cpu/online": "0-3\n",
        "proc/sys/vm/stat_interval": "1\n",
        "proc/sys/vm/swappiness": "60\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    machine = Machine(tmp_path)
    assert _knobs(machine, (1,), None) == ["swappiness"]
    assert_wording("tune/acts-late", capsys.readouterr().err)
    assert _knobs(machine, (1,), ["stat-*"]) == ["stat-interval"]
    assert _knobs(machine, (0, 1, 2, 3), ["swap*", "ksm"]) == ["swappiness"]
    assert_wording("tune/left-out", capsys.readouterr().err)


def test_a_dry_run_says_that_the_host_is_tuned(tailscope: Run, place: Place) -> None:
    line = "tuning    the host for these CPUs, restored afterwards"
    for options, is_said in (((), False), (("--tune",), True)):
        done = tailscope("run", "--dut", "l2fwd", "--dry-run", *options, env=place.environment)
        assert done.returncode == 0, done.stderr
        assert (line in done.stdout.splitlines()) == is_said


def test_only_what_would_change_something_is_compared() -> None:
    names = [knob.name for knob in applicable(Machine(), (0,)).knobs]
    assert len(names) == len(set(names))
    assert "nohz-full" not in names
