"""Commands have a budget of memory: they read captures and runs a part at a time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from command import COMMAND

from tailscope.cli.status import UNDECIDED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKETS = 300_000
"""As rows of Python's they take more than any budget."""

RATE = ("--rate", "200k", "--duration", "1s")

BUDGETS_MIB = {
    ("analyze", "{captures}", "--out", "{folder}/again"): 128,
    ("compare", "{run}", "{recorded}"): 128,
    ("explain", "{recorded}"): 128,
    ("report", "{run}", "--out", "{folder}/page.html"): 128,
    ("runs", "list", "{folder}"): 128,
    ("runs", "show", "{run}"): 128,
    ("verify", "{run}", "--slo", "p50<1s"): 128,
}
"""Address space of each command beyond what NumPy maps, in MiB."""

ENVIRONMENT = {**os.environ, "MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1"}
"""What a thread reserves and does not use is no part of a budget."""

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
