"""Commands have a budget of memory: they read captures and runs a part at a time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from command import COMMAND
from measurements import started

from tailscope.cli.status import UNDECIDED
from tailscope.store.reader import read_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measurements import Place

PACKETS = 300_000
"""As rows of Python's they take more than any budget."""

RATE = ("--rate", "200k", "--duration", "1s")

BUDGETS_MIB = {
    ("analyze", "{captures}", "--out", "{folder}/again"): 128,
    ("compare", "{run}", "{recorded}"): 128,
    ("explain", "{recorded}"): 128,
    ("model", "aliasing", "{recorded}"): 128,
    ("report", "{run}", "--out", "{folder}/page.html"): 128,
    ("runs", "list", "{folder}"): 128,
    ("runs", "show", "{run}"): 128,
    ("simulate", "{folder}/more", "--seed", "2", "--packets", str(PACKETS)): 128,
    ("verify", "{run}", "--slo", "p50<1s"): 128,
}
"""Address space of each command beyond what NumPy maps, in MiB."""

MEASURING_MIB = 256
"""The same of a measurement. Devices and generators are not counted: DPDK reserves far more than it
uses."""

ONE_THREAD = {"MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1"}
"""What a thread reserves and does not use is no part of a budget."""
ENVIRONMENT = {**os.environ, **ONE_THREAD}

MAPPED = 'import numpy; print(*(s for s in open("/proc/self/status") if s.startswith("VmPeak")))'


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
    found = {"folder": folder, "captures": folder / "captures", "run": folder / "run"}
    words = ("--seed", "1", "--packets", PACKETS, "--rate", "1M")
    for command in (
        ("simulate", found["captures"], *words),
        ("analyze", found["captures"], "--out", folder / "of"),
        ("run", "--dut", "l2fwd", *RATE, "--noise", "stalls", "--out", folder / "recorded"),
    ):
        done = tailscope(*command)
        assert done.returncode == 0, done.stderr
    (run,) = folder.glob("of/*/run.json")
    return {**found, "run": run.parent, "recorded": folder / "recorded"}


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize("words", BUDGETS_MIB, ids=lambda words: " ".join(words[:2]))
def test_a_command_keeps_to_its_budget(
    words: tuple[str, ...], places: dict[str, Path], numpy_mib: int
) -> None:
    most = numpy_mib + BUDGETS_MIB[words] << 20
    done = subprocess.run(
        [COMMAND, *(word.format(**places) for word in words)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    # A comparison of unlike runs says so, by a status of its own.
    assert done.returncode in (0, UNDECIDED), done.stderr


@pytest.mark.usefixtures("dataplane")
def test_a_measurement_keeps_to_its_budget(place: Place, numpy_mib: int) -> None:
    most = numpy_mib + MEASURING_MIB << 20
    variables = {**place.environment, **ONE_THREAD}
    measuring = replace(place, environment=variables)
    words = ("run", "--dut", "l2fwd", *RATE, "--noise", "stalls", "--out", f"{place.path}/out")
    process = started(measuring, *words)
    # What it has started by then keeps what it had.
    resource.prlimit(process.pid, resource.RLIMIT_AS, (most, most))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert (read_run(place.path / "out").summary["count"] or 0) > 0
