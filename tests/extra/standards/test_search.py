"""The search for the highest rate: devices of known capacity, and a real one."""

from __future__ import annotations

import json
import math
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from command import COMMAND
from documentation import undocumented
from errors import code_of, raises
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import assert_wording

from tailscope.exceptions import UsageError
from tailscope.extra.standards.rates import (
    BACK_PRESSURE,
    INSTRUMENT,
    LEVEL,
    LOSS,
    MAX_RATE,
    RateFound,
    RateGoal,
    Search,
    SearchPlan,
    Trial,
    loss_goals,
    loss_ratio,
    service_level_goal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from measurements import Place


WIDTH = 0.05
PLAN = SearchPlan(min_rate_pps=1_000, max_rate_pps=10_000_000, trial_s=1.0, width=WIDTH)
PDR = 0.005


def figures(rate_pps: int, **more: Any) -> dict[str, Any]:
    """Of a trial of a second in which nothing was lost."""
    found = {"unsent": 0, "lost_in_dut": 0, "lost_in_instrument": 0, "dropped_by_dut": None}
    found |= {"lost_where_unknown": 0, "late": 0, "corrupt": 0, "latency_ns_p50": 1_000, **more}
    found["sent"] = rate_pps - found["unsent"]
    lost = found["lost_in_dut"] + found["lost_in_instrument"] + found["lost_where_unknown"]
    found["count"] = found["sent"] - lost
    return found


class Device:
    """It forwards what it can and loses the rest; its wire takes what it can, and no more."""

    def __init__(
        self,
        capacity_pps: float,
        *,
        wire_pps: float = math.inf,
        noise: float = 0.0,
        flaws: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.capacity_pps, self.wire_pps = capacity_pps, wire_pps
        self.noise, self.flaws = noise, flaws
        self.chance = np.random.default_rng(seed)

    def __call__(self, rate_pps: int) -> Trial:
        if self.chance.random() < self.flaws:
            return Trial(rate_pps, figures(rate_pps, unsent=rate_pps // 10))
        capacity_pps = self.capacity_pps
        if self.chance.random() < self.noise:
            capacity_pps = min(capacity_pps, 0.9 * rate_pps)
        unsent = math.ceil(max(0, rate_pps - self.wire_pps))
        lost = math.ceil(max(0, rate_pps - unsent - capacity_pps))
        return Trial(rate_pps, figures(rate_pps, unsent=unsent, lost_in_dut=lost))


def search(device: Device, goals: list[RateGoal] | None = None, **more: Any) -> list[RateFound]:
    return Search(PLAN, goals or loss_goals(PDR), device, **more).run()


def holds(found: RateFound, capacity_pps: float, width: float = WIDTH) -> bool:
    assert found.rate_pps is not None and found.fails_at_pps is not None
    is_close = found.rate_pps >= (1 - width) * found.fails_at_pps - 1
    return is_close and found.rate_pps <= capacity_pps < found.fails_at_pps


@settings(max_examples=50, deadline=None)
@given(capacity_pps=st.integers(1_200, 9_000_000))
def test_a_capacity_is_found_within_the_width(capacity_pps: int) -> None:
    ndr, pdr = search(Device(capacity_pps))
    assert holds(ndr, capacity_pps)
    assert holds(pdr, capacity_pps / (1 - PDR))
    assert ndr.limited_by == pdr.limited_by == LOSS


@pytest.mark.parametrize("seed", range(20))
def test_noise_and_invalid_trials_decide_nothing(seed: int) -> None:
    """A tenth of the trials lose packets by chance, a fifth say nothing of the device."""
    capacity_pps = 87_400
    device = Device(capacity_pps, noise=0.1, flaws=0.2, seed=seed)
    ndr, pdr = search(device)
    # By chance a rate fails by majority, or is given up as invalid: never the other way round.
    assert ndr.rate_pps is not None and pdr.rate_pps is not None
    assert ndr.rate_pps <= capacity_pps and pdr.rate_pps <= capacity_pps / (1 - PDR)


def test_noise_is_mostly_overcome() -> None:
    capacity_pps = 87_400
    right = 0
    for seed in range(100):
        ndr, _ = search(Device(capacity_pps, noise=0.02, flaws=0.1, seed=seed))
        right += holds(ndr, capacity_pps, 2 * WIDTH)
    assert right >= 90


@pytest.mark.parametrize(("carries", "limit"), [(math.inf, BACK_PRESSURE), (50_000.0, INSTRUMENT)])
def test_what_cannot_be_sent_never_fails_the_device(carries: float, limit: str) -> None:
    """The same rate without the device says who holds the wire back."""
    found = Search(
        PLAN, loss_goals(PDR), Device(1e9, wire_pps=50_000), Device(1e9, wire_pps=carries)
    )
    for each in found.run():
        assert holds(each, 50_000) and each.limited_by == limit
        assert each.fails_at_pps == found.instrument_limit_pps
    assert not any(trial.invalid is None and loss_ratio(trial.figures) for trial in found.trials)
    assert len(found.controls) == 3
    [trial, *_] = found.controls
    assert trial.rate_pps == found.instrument_limit_pps


def test_without_a_control_it_is_the_instrument() -> None:
    assert {each.limited_by for each in search(Device(1e9, wire_pps=50_000))} == {INSTRUMENT}


def test_loss_in_the_instrument_is_not_the_devices() -> None:
    def measure(rate_pps: int) -> Trial:
        return Trial(rate_pps, figures(rate_pps, lost_in_instrument=int(rate_pps > 70_000)))

    found = Search(PLAN, loss_goals(PDR), measure, measure)
    for each in found.run():
        assert holds(each, 70_000) and each.limited_by == INSTRUMENT
    assert not found.controls


def test_a_limit_of_the_instrument_above_the_devices_does_not_show() -> None:
    for found in search(Device(50_000, wire_pps=500_000)):
        assert found.limited_by == LOSS


def test_a_level_is_a_goal() -> None:
    """Latency rises with the load: it is met up to a rate well below the loss."""

    def measure(rate_pps: int) -> Trial:
        trial = Device(1_000_000)(rate_pps)
        waited = 1_000 / max(1e-3, 1 - rate_pps / 1_000_000)
        return Trial(rate_pps, {**trial.figures, "latency_ns_p999": waited})

    def level(figures: Mapping[str, Any]) -> float:
        return float(figures["latency_ns_p999"] >= 10_000)

    ndr, pdr, met = Search(PLAN, [*loss_goals(PDR), RateGoal("p99.9<10us", level)], measure).run()
    assert ndr.limited_by == pdr.limited_by == LOSS
    assert met.limited_by == LEVEL and met.goal == "p99.9<10us"
    assert holds(met, 900_000)


def test_a_level_that_depends_on_stalls_does_not_lower_the_loss_goals() -> None:
    """From 20,000 packets/s on, whether the level is met depends on the instrument's stalls."""
    device = Device(87_400)

    def measure(rate_pps: int) -> Trial:
        meets = None if rate_pps > 20_000 else True
        return Trial(rate_pps, {**device(rate_pps).figures, "meets_level": meets})

    goals = [*loss_goals(PDR), service_level_goal()]
    ndr, pdr, level = Search(PLAN, goals, measure).run()
    assert holds(ndr, 87_400) and holds(pdr, 87_400 / (1 - PDR))
    assert holds(level, 20_000) and level.limited_by == INSTRUMENT


def test_a_large_loss_may_be_allowed_and_no_larger_one() -> None:
    """Twice the capacity loses a half, and more than that is too much."""
    capacity_pps = 80_000
    _, pdr = search(Device(capacity_pps), loss_goals(0.5))
    assert holds(pdr, 2 * capacity_pps)


def test_what_carries_all_is_limited_by_the_search() -> None:
    for found in search(Device(1e9)):
        assert found == RateFound(found.goal, PLAN.max_rate_pps, None, MAX_RATE)


def test_what_carries_nothing_has_no_rate() -> None:
    for found in search(Device(10)):
        assert found.rate_pps is None and found.limited_by == LOSS
        assert found.fails_at_pps == PLAN.min_rate_pps


def test_no_packet_says_nothing() -> None:
    def measure(rate_pps: int) -> Trial:
        return Trial(rate_pps, {**figures(0), "dropped_by_dut": None})

    found = Search(PLAN, loss_goals(PDR), measure)
    assert {each.limited_by for each in found.run()} == {INSTRUMENT}
    assert {trial.invalid for trial in found.trials} == {"no packet sent"}


def test_drops_on_purpose_are_no_loss() -> None:
    assert loss_ratio(figures(100, lost_in_dut=10, dropped_by_dut=10)) == 0
    assert loss_ratio(figures(100, lost_in_dut=10, dropped_by_dut=4)) == 0.06
    assert loss_ratio(figures(100, lost_where_unknown=5)) == 0.05
    assert loss_ratio(figures(100, late=1, corrupt=2)) == 0.03
    assert loss_ratio(figures(0)) == 0


def test_what_is_known_survives_an_interruption() -> None:
    device, made = Device(87_400), 0

    def measure(rate_pps: int) -> Trial:
        nonlocal made
        made += 1
        if made == 9:
            raise KeyboardInterrupt
        return device(rate_pps)

    found = Search(PLAN, loss_goals(PDR), measure)
    assert [each.rate_pps for each in found.found()] == [None, None]
    with pytest.raises(KeyboardInterrupt):
        found.run()
    assert len(found.trials) == 8
    assert not {each.limited_by for each in found.found()} & {INSTRUMENT, BACK_PRESSURE}
    for each in found.found():
        assert each.rate_pps is None or each.rate_pps <= 88_000


def test_the_engine_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    search(Device(87_400))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("low", "high", "width", "named", "code"),
    [
        (1_000, 1_000, 0.05, "--max-rate: got 1,000, expected more than 1,053", "max-rate"),
        (1_000, 500, 0.05, "--max-rate: got 500", "max-rate"),
        (1_000, 10_000, 0.0, "--width: got 0", "width"),
        (1_000, 10_000, 1.0, "--width: got 1", "width"),
        (1_000, 10_000, math.nan, "--width: got nan", "width"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    low: int, high: int, width: float, named: str, code: str
) -> None:
    with raises(UsageError, code) as refused:
        SearchPlan(low, high, 1.0, width)
    assert str(refused.value).startswith(named)


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, math.nan])
def test_a_loss_is_a_ratio(ratio: float) -> None:
    with raises(UsageError, "pdr-loss"):
        loss_goals(ratio)


SHORT = ("--trial-duration", "100ms", "--warm-up", "50ms", "--width", "0.8")
RATES = ("--min-rate", "5k", "--max-rate", "40k")


def names_of(found: dict[str, Any]) -> set[str]:
    inner = [*found["goals"], *found["trials"], *found["without_device"]]
    return set(found).union(*inner)


@pytest.mark.usefixtures("dataplane")
def test_a_device_is_searched(tailscope: Callable[..., Any], place: Place) -> None:
    out = place.path / "out"
    arguments = ("search", "--dut", "l2fwd", *SHORT, *RATES, "--out", out, "--json", "-")
    done = tailscope(*arguments, env=place.environment)
    # On a machine that is busy enough not even the lowest rate says anything: that is said.
    assert done.returncode in (0, 3), done.stderr
    found = json.loads(done.stdout)
    kept = json.loads((out / "search.json").read_text())
    assert kept == {"format": 2, **found}
    assert not undocumented(sorted(names_of(found)), "overload.md", "extra/standards/reference.md")
    assert [goal["goal"] for goal in found["goals"]] == ["NDR", "PDR"]
    for goal in found["goals"]:
        assert (goal["rate_pps"] is None) == (done.returncode == 3)
        assert goal["limited_by"] in (LOSS, BACK_PRESSURE, INSTRUMENT, MAX_RATE)
    assert found["partial"] == [] and found["prediction"] is None
    lines = [line for line in done.stderr.splitlines() if line.startswith("trial ")]
    assert len(lines) == len(found["trials"]) + len(found["without_device"]) > 0
    assert all(trial["sent"] > 0 for trial in found["trials"])
    again = tailscope(*arguments, env=place.environment)
    assert again.returncode == 1 and code_of(again) == "run-exists"


@pytest.mark.usefixtures("dataplane")
def test_ctrl_c_leaves_what_is_known(place: Place) -> None:
    out, pipe = place.path / "out", subprocess.PIPE
    long = ("--trial-duration", "2s", "--max-rate", "40k", "--out", str(out))
    command = [str(COMMAND), "search", "--dut", "l2fwd", *long]
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=place.environment
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        assert process.stderr.readline().startswith("trial   1")
        process.send_signal(signal.SIGINT)
        said, output = process.stderr.read(), process.stdout.read()
    assert process.returncode == 130 and "error: interrupted" in said
    assert "partial   interrupted" in output
    found = json.loads((out / "search.json").read_text())
    assert found["partial"] == ["interrupted"] and found["trials"]


@pytest.mark.parametrize(
    ("options", "named", "code"),
    [
        (
            ["--dut", "l2fwd", "--max-rate", "1k"],
            "--max-rate: got 1,000, expected more than 1,053",
            "max-rate",
        ),
        (["--dut", "l2fwd", "--pdr-loss", "0"], "--pdr-loss: got 0", "pdr-loss"),
        (["--dut", "l2fwd", "--pdr-loss", "nan"], "--pdr-loss: got nan", "pdr-loss"),
        (["--dut", "l2fwd", "--width", "1"], "--width: got 1", "width"),
        (["--dut", "l2fwd", "--trial-duration", "0s"], "--trial-duration: ", "duration"),
        (["--dut", "l2fwd", "--forwarder", "nobody"], "got 'nobody'", "unknown-name"),
        (["--dut", "loop"], "--dut: got 'loop'", "dut-loop"),
        ([], "--dut: got none", "no-dut"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    tailscope: Callable[..., Any], options: list[str], named: str, code: str
) -> None:
    done = tailscope("search", *options, "--dry-run")
    assert done.returncode == 1 and code_of(done) == code
    assert named in done.stderr


def test_a_dry_run_says_what_is_searched(tailscope: Callable[..., Any]) -> None:
    done = tailscope("search", "--dut", "l2fwd", "--forwarder", "loop", "--dry-run")
    assert done.returncode == 0, done.stderr
    asked = ("rates ", "trials ", "forwarder ")
    lines = [line for line in done.stdout.splitlines() if line.startswith(asked)]
    assert_wording("search/dry-run", "\n".join(lines))
    done = tailscope("search", "--dut", "l2fwd", "--dry-run", "--json", "-")
    assert json.loads(done.stdout)["width"] == 0.05
