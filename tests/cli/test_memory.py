"""Commands have a budget of memory: they read captures and runs a part at a time."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import campaigns
import pytest
from command import COMMAND
from docs.reference.cli import commands
from measurements import started
from runs import AS_ROOT

from tailscope.cli.status import UNDECIDED
from tailscope.registry import additions

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.mark import ParameterSet
    from measurements import Place

PACKETS = 300_000
"""As rows of Python's they take more than any budget."""

RATE = ("--rate", "200k", "--duration", "1s")
POWER = ("--power", "command:echo 45", "--power-phase", "300ms")
HEAVY = ("--rate", "20k", "--latency", "lognormal:10us,1.2")

OF_THE_CORE = {
    "analyze {captures} --out {folder}/again": 128,
    "calibrate --duration 1s": 256,
    "compare {run} {recorded}": 128,
    "compare baseline {baseline} {run}": 128,
    "compare save {run} --out {folder}/saved.json": 128,
    "doctor": 128,
    "explain {recorded}": 128,
    "host apply --cpus 1 --dry-run": 128,
    "host audit --cpus 1": 128,
    "host export --cpus 1 --format grub": 128,
    "host revert --dry-run": 128,
    "model energy {recorded} {recorded}": 128,
    "model overload {run} {recorded}": 128,
    "noise --duration 1s": 256,
    "plan --quantile p99.99 --rate 1M": 128,
    "report {run} --out {folder}/page.html": 128,
    "run --dut l2fwd --rate 200k --duration 1s --noise stalls --out {folder}/measured": 256,
    "runs clean {folder} --dry-run": 128,
    "runs finish {run}": 128,
    "runs list {folder}": 128,
    "runs note {run} busy": 128,
    "runs show {run}": 128,
    "runs tag {run} --add busy": 128,
    "schema": 128,
    "simulate {folder}/more --seed 2 --packets 300000": 128,
    "verify {run} --slo p50<1s": 128,
}
"""Address space of each command beyond what NumPy maps, in MiB; those of an addition are a file
beside its tests.

Devices and generators of those that measure are not counted: DPDK reserves far more than it uses.
"""

FOLDERS = Path(__file__).parents[1] / "extra"
BUDGETS_MIB: dict[str, int] = OF_THE_CORE | {
    words: mib
    for path in sorted(FOLDERS.glob("*/budgets_mib.json"))
    for words, mib in json.loads(path.read_text()).items()
}

NAMES = {name.removeprefix("tailscope ") for name, _ in commands()}
MEASURING = {
    *("calibrate", "noise", "run"),
    *(
        each.words
        for addition in additions().values()
        for each in addition.commands
        if each.measures
    ),
}
AS_ROOT_ONLY = {"host apply", "host revert", "host tune"}
AT_ONCE = {"noise", "run"}
"""Measurements that start all that they start right at the beginning."""
SERVED = {"agent"}
"""What another command starts, and that reads nothing of a run."""

LIMIT_S = 60
"""A library that gets no memory may try for ever."""

ONE_THREAD = {"MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
"""What a thread reserves and does not use is no part of a budget."""
ENVIRONMENT = {**os.environ, **ONE_THREAD}

MAPPED = 'import numpy; print(*(s for s in open("/proc/self/status") if s.startswith("VmPeak")))'

EXPERIMENT = """\
name: small
fixed: {dut: l2fwd, duration: 500ms, warm_up: 50ms, rate: 20k, noise: stalls}
"""


def name_of(words: str) -> str:
    """The command that these words call: one, or one below another."""
    first, second, *_ = (*shlex.split(words), "")
    return f"{first} {second}" if f"{first} {second}" in NAMES else first


def cases(of: Callable[[str], bool]) -> list[ParameterSet]:
    """The commands of which this is so; those that measure but `run` are long."""
    found = []
    for words in BUDGETS_MIB:
        if of(name := name_of(words)):
            marks = [AS_ROOT] * (name in AS_ROOT_ONLY)
            marks += [pytest.mark.long] * (name in MEASURING and name != "run")
            found.append(pytest.param(words, id=name, marks=marks))
    return found


@pytest.fixture(scope="module")
def numpy_mib() -> int:
    """The address space of Python with NumPy."""
    done = subprocess.run(
        [sys.executable, "-c", MAPPED], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    return int(done.stdout.split()[1]) // 1024


@pytest.fixture(scope="module")
def places(
    tailscope: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("memory")
    names = ("captures", "heavy", "recorded", "baseline", "campaign")
    found = {"folder": folder, **{name: folder / name for name in names}}
    packets = ("--seed", "1", "--packets", PACKETS)
    for command in (
        ("simulate", folder / "captures", *packets, "--rate", "1M"),
        ("analyze", folder / "captures", "--csv", folder / "csv", "--out", folder / "of"),
        ("simulate", folder / "bursts", *packets, *HEAVY),
        ("analyze", folder / "bursts", "--out", folder / "of_bursts"),
        ("run", "--dut", "l2fwd", *RATE, *POWER, "--noise", "stalls", "--out", folder / "recorded"),
        ("compare", "save", folder / "recorded", "--out", folder / "baseline"),
    ):
        done = tailscope(*command)
        assert done.returncode == 0, done.stderr
    campaigns.write(folder / "campaign", {"rate": ["10k", "20k"]})
    found["run"], found["heavy"] = (
        next(path.parent for path in folder.glob(f"{name}/*/run.json"))
        for name in ("of", "of_bursts")
    )
    found["tables"] = folder / "csv"
    return found


def test_every_command_has_a_budget() -> None:
    groups = {name.rpartition(" ")[0] for name in NAMES}
    assert {name_of(words) for words in BUDGETS_MIB} == NAMES - SERVED, groups


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize("words", cases(lambda name: name not in MEASURING))
def test_a_command_keeps_to_its_budget(words: str, places: dict[str, Path], numpy_mib: int) -> None:
    most = numpy_mib + BUDGETS_MIB[words] << 20
    done = subprocess.run(
        [COMMAND, *(word.format(**places) for word in shlex.split(words))],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=LIMIT_S,
    )
    # A comparison of unlike runs says so, by a status of its own.
    assert done.returncode in (0, UNDECIDED), done.stderr


@pytest.fixture
def measure_started(place: Place) -> Callable[[str], subprocess.Popen[str]]:
    """Start a measurement, and wait until a process of the data plane polls."""
    environment = {**place.environment, **ONE_THREAD}
    experiment = place.experiment(EXPERIMENT)

    def start(words: str) -> subprocess.Popen[str]:
        places = {"folder": place.path, "experiment": experiment}
        given = (word.format(**places) for word in shlex.split(words))
        processes = 2 if words.startswith("run ") else 1
        return started(replace(place, environment=environment), *given, processes=processes)

    return start


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize("words", cases(lambda name: name in AT_ONCE))
def test_a_measurement_keeps_to_its_budget(
    words: str, measure_started: Callable[[str], subprocess.Popen[str]], numpy_mib: int
) -> None:
    most = numpy_mib + BUDGETS_MIB[words] << 20
    process = measure_started(words)
    # What it has started by then keeps what it had.
    resource.prlimit(process.pid, resource.RLIMIT_AS, (most, most))
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize("words", cases(lambda name: name in MEASURING - AT_ONCE))
def test_what_measures_many_times_keeps_to_its_budget(
    words: str, measure_started: Callable[[str], subprocess.Popen[str]], numpy_mib: int
) -> None:
    """What it starts later would inherit a limit: its peak is looked at instead."""
    process = measure_started(words)
    status, most_kib = Path(f"/proc/{process.pid}/status"), 0
    deadline = time.monotonic() + 2 * LIMIT_S
    while "VmPeak" in (text := status.read_text()):
        most_kib = max(most_kib, int(text.partition("VmPeak:")[2].split()[0]))
        assert time.monotonic() < deadline
        time.sleep(0.02)
    _, errors = process.communicate()
    assert process.returncode in (0, UNDECIDED), errors
    assert 0 < most_kib >> 10 <= numpy_mib + BUDGETS_MIB[words]
