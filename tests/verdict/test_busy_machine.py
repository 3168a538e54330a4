"""A busy machine is no failing device: what neighbours may have made of a run decides nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from errors import code_of
from neighbours import MARK, busy_neighbour, holds, latencies, recorded
from synthetic import PACKETS, write_run
from wording import assert_wording

from tailscope.cli.model.conclusion import conclude
from tailscope.noise.held import HeldIntervals
from tailscope.noise.neighbour_sampler import RunDelay
from tailscope.noise.neighbours import Held, held_by_neighbours

if TYPE_CHECKING:
    from pathlib import Path

    from measurements import Place
    from numpy.typing import NDArray

Run = Callable[..., Any]

GAP_NS = 100_000
WORK_NS = 10_000
LASTS_NS = PACKETS * GAP_NS
LIVE = ("--duration", "500ms", "--warm-up", "50ms", "--rate", "20k")
SLO = "p50<13us, p99<100us"
NAMED = "other programs (browser, stress-ng) held the device's CPU"


def busy(share: float, mean_ns: int = 3_000_000) -> HeldIntervals:
    return holds(3, LASTS_NS, share, mean_ns)


def took(held: HeldIntervals, work_ns: int = WORK_NS) -> NDArray[np.int64]:
    """What packets took, of which each needs a little more or less."""
    came = np.arange(PACKETS, dtype=np.int64) * GAP_NS
    return latencies(came, work_ns, held) + np.random.default_rng(4).integers(0, 300, PACKETS)


def known(held: HeldIntervals, how: str, reading_ns: int = 0) -> Held:
    """What is known of neighbours by the stalls of the device, or only by its run delay."""
    delays = [
        RunDelay(at, int(held.held_ns[held.end_ns <= at + reading_ns].sum()), reading_ns)
        for at in range(0, LASTS_NS + 1, 100_000_000 + reading_ns)
    ]
    sampled = recorded(delays, programs=PROGRAMS)
    stalls = (held.start_ns, held.end_ns) if how == "stalls" else None
    return held_by_neighbours(sampled, MARK, [1], timelines=None, stalls=stalls)


PROGRAMS = {"browser": 300_000_000, "stress-ng": 200_000_000}


@pytest.mark.parametrize("how", ["stalls", "run delay"])
@pytest.mark.parametrize("share", [0.1, 0.55, 0.8])
def test_a_busy_machine_is_inconclusive_and_says_who(
    tailscope: Run, tmp_path: Path, share: float, how: str
) -> None:
    held = busy(share)
    run = write_run(tmp_path / "run", took(held), rate_pps=10_000, neighbours=known(held, how))
    done = tailscope("verify", run, "--slo", SLO)
    assert done.returncode == 3, done.stdout
    assert done.stdout.startswith(f"{run}: inconclusive")
    second = next(line for line in done.stdout.splitlines() if line.startswith("warning "))
    assert "p99" in second
    assert NAMED in " ".join(done.stdout.split())
    why = tailscope("verify", run, "--slo", SLO, "-v").stdout
    assert "pass without them" in " ".join(why.split())
    as_it_is = tailscope("verify", run, "--slo", SLO, "--as-it-is", "--json", "-")
    assert as_it_is.returncode == 2
    found = json.loads(as_it_is.stdout)
    assert found["as_it_is"]
    assert NAMED in found["runs"][0]["neighbours"].replace("Other", "other")


@pytest.mark.parametrize("how", ["stalls", "run delay"])
def test_a_busy_machine_may_hold_up_the_sampler_too(
    tailscope: Run, tmp_path: Path, how: str
) -> None:
    """Neighbours come for 0.4 s, and go; the sampler lost its CPU whenever it read."""
    held = busy(0.6)
    is_there = held.start_ns // 400_000_000 % 2 == 1
    held = HeldIntervals(*(column[is_there] for column in held))
    run = write_run(
        tmp_path / "run", took(held), rate_pps=10_000, neighbours=known(held, how, 200_000_000)
    )
    done = tailscope("verify", run, "--slo", SLO)
    assert done.returncode == 3, done.stdout


@pytest.mark.parametrize("how", ["stalls", "run delay"])
def test_a_slower_device_on_a_quiet_machine_fails(tailscope: Run, tmp_path: Path, how: str) -> None:
    held = busy(0.0005, 50_000)
    for name, work_ns, status in (("as before", WORK_NS, 0), ("slower", WORK_NS * 13 // 10, 2)):
        run = write_run(
            tmp_path / name, took(held, work_ns), rate_pps=10_000, neighbours=known(held, how)
        )
        assert tailscope("verify", run, "--slo", SLO).returncode == status, name


def test_lost_packets_may_be_theirs_as_many_as_came_then(tailscope: Run, tmp_path: Path) -> None:
    held, quiet = busy(0.2), busy(0.0005, 50_000)
    for name, of, lost, status in (("few", held, 500, 3), ("most", held, PACKETS // 2, 2)):
        run = write_run(
            tmp_path / name, took(of), lost=lost, rate_pps=10_000, neighbours=known(of, "stalls")
        )
        done = tailscope("verify", run, "--slo", "loss<1e-3")
        assert done.returncode == status, done.stdout
    run = write_run(
        tmp_path / "quiet",
        took(quiet),
        lost=500,
        rate_pps=10_000,
        neighbours=known(quiet, "stalls"),
    )
    assert tailscope("verify", run, "--slo", "loss<1e-3").returncode == 2


def test_a_run_says_first_what_it_is_not_usable_for(tailscope: Run, tmp_path: Path) -> None:
    held = busy(0.55)
    run = write_run(tmp_path / "run", took(held), rate_pps=10_000, neighbours=known(held, "stalls"))
    record = json.loads((run / "run.json").read_text())["noise"]["neighbours"]
    assert {"p50", "p99"} <= {*record["unusable"]}
    assert record["known_from"] == "stalls"
    shown = tailscope("runs", "show", run)
    assert_wording("show/not-usable", "\n".join(shown.stdout.splitlines()[:2]))
    done = tailscope("report", run, "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    (answer,) = re.findall(r'<p class="answer">(.*?)</p>', (tmp_path / "page.html").read_text())
    assert {"p50", "p99"} <= {*re.findall(r"p\d+", answer)}


def test_a_quiet_run_is_usable(tailscope: Run, tmp_path: Path) -> None:
    held = busy(0.0001, 20_000)
    run = write_run(tmp_path / "run", took(held), rate_pps=10_000, neighbours=known(held, "stalls"))
    assert not json.loads((run / "run.json").read_text())["noise"]["neighbours"]["unusable"]
    assert tailscope("verify", run, "--slo", SLO).returncode == 0


def test_a_busy_machine_is_no_regression(tailscope: Run, tmp_path: Path) -> None:
    held, quiet = busy(0.55), busy(0.0001, 20_000)
    before = write_run(
        tmp_path / "before", took(quiet), rate_pps=10_000, neighbours=known(quiet, "stalls")
    )
    after = write_run(
        tmp_path / "after", took(held), rate_pps=10_000, neighbours=known(held, "stalls")
    )
    done = tailscope("compare", before, after, "--single", "--fail-on", "p50>+10%")
    assert done.returncode == 3, done.stdout
    assert "browser" in done.stdout


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize("noise", ["auto", "stalls"])
def test_a_busy_loop_on_the_cpu_of_a_device_fails_no_gate(
    tailscope: Run, place: Place, noise: str
) -> None:
    """Beside a loop, a fast device waits 4 ms at a time."""
    out = place.path / "run"
    options = ("--dut", "l2fwd", *LIVE, "--noise", noise, "--out", out)
    with busy_neighbour(max(os.sched_getaffinity(0))):
        done = tailscope("run", *options, env=place.environment)
    assert done.returncode == 0, done.stderr
    unusable = json.loads((out / "run.json").read_text())["noise"]["neighbours"]["unusable"]
    assert any(name in done.stdout.splitlines()[0] for name in unusable)
    judged = tailscope("verify", out, "--slo", "p50<1s, p90<100us, loss<1e-2")
    assert judged.returncode in (0, 3), judged.stdout


def test_models_say_that_the_machine_was_busy(
    tailscope: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = busy(0.8)
    run = write_run(tmp_path / "run", took(held), rate_pps=10_000, neighbours=known(held, "stalls"))
    conclude(str(tmp_path / "model.json"), {"figure": 1}, [run, run], lambda: print("figures"))
    record = json.loads((tmp_path / "model.json").read_text())
    assert record["figure"] == 1
    assert record["trust"].startswith("red, machine busy: ")
    assert re.fullmatch(r"figures\ntrust +red, machine busy: .*", capsys.readouterr().out, re.S)
    refused = tailscope("model", "overload", run, run, run)
    assert refused.returncode == 3
    assert code_of(refused) == "machine-busy"
