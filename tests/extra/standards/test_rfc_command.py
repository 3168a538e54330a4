"""Tests of standards on real devices: short trials, which reports must not call conforming."""

from __future__ import annotations

import json
import math
import signal
import subprocess
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import COMMAND
from docs.reference import added
from documentation import undescribed, undocumented
from errors import code_of
from runs import AS_ROOT, left_behind
from wording import assert_wording

from tailscope.extra.standards.delays import Delays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Tailscope
    from measurements import Place

SHORT = ("--trial-duration", "200ms", "--warm-up", "50ms", "--width", "0.9", "--trials", "1")
LOW = ("--frame-sizes", "64", "--max-rate", "2k")


def names_in(content: object) -> Iterator[str]:
    if isinstance(content, dict):
        for name, value in content.items():
            yield name
            if name not in ("plan", "host"):
                yield from names_in(value)
    elif isinstance(content, list):
        for each in content:
            yield from names_in(each)


def made(tailscope: Tailscope, place: Place, *arguments: str) -> dict[str, Any]:
    out = place.path / "out"
    done = tailscope(
        "search", "standard", *arguments, "--out", out, "--json", "-", env=place.environment
    )
    # At the highest rate that is offered, only the instrument's limit is known.
    assert done.returncode in (0, 3), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert json.loads((out / "standard.json").read_text()) == {"format": 1, **found}
    assert not undescribed(out, added.files_of("standards"))
    assert not undocumented(sorted({*names_in(found)}), "extra/standards/reference.md")
    lines = [line for line in done.stderr.splitlines() if line.startswith("trial ")]
    assert len(lines) == len(found["trials"]) > 0
    page = (out / "report.html").read_text()
    assert "0.2 s, 60 s" in page and "RFC 2544 §24" in page
    assert found["partial"] == []
    assert found["cannot_claim"]
    return found


@pytest.mark.usefixtures("dataplane")
@pytest.mark.long
def test_rfc_8219_on_a_forwarder(tailscope: Tailscope, place: Place) -> None:
    tests = ("--tests", "throughput,latency,pdv,recovery")
    found = made(tailscope, place, "8219", "--dut", "l2fwd", *LOW, *SHORT, *tests)
    [size] = found["sizes"]
    assert size["frame_bytes"] == 64 and size["max_rate_from"] == "option"
    if (delays := size["delays"]) is not None:
        frames = [trial for trial in found["trials"] if trial["test"] == "latency"][-1]
        assert frames["frames_received"] >= delays["frames_min"] > 0
        typical, worst = (
            delays[name]["median_ns"] for name in ("typical_latency", "worst_case_latency")
        )
        assert 0 < typical <= worst
        assert delays["ipdv_min"]["median_ns"] <= 0 <= delays["ipdv_max"]["median_ns"]
    # 200 ms at one rate, and 200 ms at half of it.
    for trial in (each for each in found["trials"] if each["test"] == "recovery"):
        intended = trial["rate_pps"] * 0.2 + trial["rate_pps"] // 2 * 0.2
        assert abs(trial["frames_sent"] + trial["frames_unsent"] - intended) <= 2
    conforming = {each["section"]: each["conforms"] for each in found["clauses"]}
    assert not any(conforming[section] for section in ("24", "7.2", "7.3.1", "7.3.2", "7.6"))


@pytest.mark.long
@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_rfc_2544_on_the_kernels_router(tailscope: Tailscope, place: Place) -> None:
    tests = ("--tests", "throughput,latency,loss")
    found = made(
        tailscope, place, "2544", "--dut", "router", "--wire", "veth", *LOW, *SHORT, *tests
    )
    [size] = found["sizes"]
    assert [point["rate_pps"] for point in size["loss"]][:2] == [2_000, 1_800]
    for point in size["loss"]:
        lost = point["frames_sent"] - point["frames_received"]
        assert point["loss_percent"] in (None, pytest.approx(100 * lost / point["frames_sent"]))
    assert not left_behind()


@pytest.mark.long
@AS_ROOT
@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize("standard", ["2544", "8219", "tst009", "mlrsearch"])
@pytest.mark.parametrize("dut", ["l2fwd", "router"])
def test_every_test_of_every_standard(
    tailscope: Tailscope, place: Place, standard: str, dut: str
) -> None:
    sizes = ("--frame-sizes", "64,imix", "--max-rate", "2k")
    found = made(tailscope, place, standard, "--dut", dut, *sizes, *SHORT)
    assert [size["frame_mix"] for size in found["sizes"]] == [None, "64:7,594:4,1518:1"]


@pytest.mark.long
@pytest.mark.usefixtures("dataplane")
def test_the_highest_rate_is_the_wires(tailscope: Tailscope, place: Place) -> None:
    tests = ("--frame-sizes", "1518", "--tests", "throughput")
    found = made(tailscope, place, "2544", "--dut", "l2fwd", *tests, *SHORT)
    [size] = found["sizes"]
    assert size["max_rate_from"] == "wire" and size["max_rate_pps"] > 0
    alone = [trial for trial in found["trials"] if trial["test"].startswith("highest rate")]
    sent = max(trial["frames_sent"] for trial in alone)
    assert len(alone) == 3 and size["max_rate_pps"] == math.floor(sent / 0.2)


@pytest.mark.usefixtures("dataplane")
def test_delays_are_those_of_a_runs_packets(measure: Callable[..., dict[str, Any]]) -> None:
    """PDV, IPDV, TL and WCL, computed plainly from the packets that a run keeps."""
    run = measure("--dut", "l2fwd", "--duration", "200ms")
    table = pq.read_table(run["out"] / "latency.parquet").to_pydict()
    rows = sorted(zip(table["seq"], table["pre_ns"], table["latency_ns"], strict=True))
    half_ns = 100_000_000
    delays = Delays(half_ns)
    delays(
        *(
            np.array(table[name])
            for name in ("seq", "pre_ns", "latency_ns", "intended_ns", "tainted")
        )
    )

    own = sorted(latency for _, _, latency in rows)
    late = [latency for _, sent, latency in rows if sent >= rows[0][1] + half_ns]
    changes = [
        after[2] - before[2] for before, after in pairwise(rows) if after[0] == before[0] + 1
    ]
    assert delays.pdv_ns == own[math.ceil(0.999 * len(own)) - 1] - own[0]
    assert delays.second_half.median == median(late)
    assert delays.second_half.quantile(0.999) == sorted(late)[math.ceil(0.999 * len(late)) - 1]
    assert delays.differences.least == min(changes)
    assert delays.differences.median == median(changes)
    assert delays.differences.most == max(changes)
    assert delays.tainted == sum(table["tainted"])
    # What the engine says of the same packets.
    assert (run["ipdv_ns_min"], run["ipdv_ns_max"]) == (min(changes), max(changes))
    assert run["pdv_ns_p999"] in (None, delays.pdv_ns)


@pytest.mark.usefixtures("dataplane")
@pytest.mark.long
def test_ctrl_c_leaves_the_trials(place: Place) -> None:
    out, pipe = place.path / "out", subprocess.PIPE
    command = [
        str(COMMAND),
        "search",
        "standard",
        "2544",
        "--dut",
        "l2fwd",
        *LOW,
        "--out",
        str(out),
    ]
    with subprocess.Popen(
        [*command, "--trial-duration", "1s"],
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=place.environment,
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        while not process.stderr.readline().startswith("trial   1"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said, output = process.stderr.read(), process.stdout.read()
    assert process.returncode == 130 and "error: interrupted" in said
    assert "partial   interrupted" in output
    found = json.loads((out / "standard.json").read_text())
    assert found["partial"] == ["interrupted"] and found["trials"]


def test_a_dry_run_says_clauses_and_time(tailscope: Tailscope) -> None:
    done = tailscope("search", "standard", "2544", "--dut", "l2fwd", "--dry-run")
    assert done.returncode == 0, done.stderr
    planned = ("latency (", "in all ")
    lines = [line for line in done.stdout.splitlines() if any(part in line for part in planned)]
    assert_wording("standards/dry-run", "\n".join(lines))
    done = tailscope("search", "standard", "8219", "--dut", "l2fwd", "--dry-run", "--json", "-")
    found = json.loads(done.stdout)
    assert [each["clause"] for each in found["tests"]][:2] == ["RFC 8219 §7.1", "RFC 8219 §7.2"]
    assert found["lasts_s"] == pytest.approx(8 * sum(each["lasts_s"] for each in found["tests"]))


@pytest.mark.parametrize(
    ("arguments", "named", "code"),
    [
        (["2889", "--dut", "l2fwd"], "STANDARD: got '2889'", "unknown-standard"),
        (["2544"], "--dut: got none", "no-dut"),
        (["2544", "--dut", "loop"], "--dut: got 'loop'", "dut-loop"),
        (
            ["2544", "--dut", "l2fwd", "--tests", "pdv"],
            "--tests: got 'pdv', expected one of throughput",
            "unknown-test",
        ),
        (
            ["2544", "--dut", "l2fwd", "--frame-sizes", "64,9000"],
            "--size: got 9000",
            "out-of-range",
        ),
        (
            ["2544", "--dut", "l2fwd", "--frame-sizes", "64,,128"],
            "--frame-sizes: got '64,,128'",
            "option-list",
        ),
        (["2544", "--dut", "l2fwd", "--width", "0"], "--width: got 0", "width"),
        (
            ["tst009", "--dut", "l2fwd", "--capacity-loss", "1"],
            "--capacity-loss: got 1",
            "capacity-loss",
        ),
        (
            ["2544", "--dut", "l2fwd", "--goal", "loss=0"],
            "--goal: expected with mlrsearch",
            "goal-standard",
        ),
        (["mlrsearch", "--dut", "l2fwd", "--goal", "loss"], "--goal: got 'loss'", "goal-term"),
        (
            ["2544", "--dut", "l2fwd", "--trial-duration", "0s"],
            "--trial-duration: ",
            "duration",
        ),
    ],
)
def test_what_no_standard_has_is_refused(
    tailscope: Tailscope, arguments: list[str], named: str, code: str
) -> None:
    done = tailscope("search", "standard", *arguments, "--dry-run")
    assert done.returncode == 1 and code_of(done) == code
    assert f"error: {named}" in done.stderr
