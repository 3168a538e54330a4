"""Devices of the user's own, and their errors."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of, raises
from runs import AS_ROOT, sound

from tailscope.duts.catalogue import dut_named
from tailscope.duts.command import Command
from tailscope.duts.dut import DutContext
from tailscope.exceptions import UsageError
from tailscope.testbed.places import Here
from tailscope.testbed.process import find_binary
from tailscope.testbed.wires import Side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measurements import Place

    Measure = Callable[..., dict[str, Any]]

RATE = ("--rate", "2k")


def test_any_program_of_dpdk_is_a_device(measure: Measure, dataplane: Path) -> None:
    run = f"'{dataplane}' l2fwd -l {{cpus}} --no-telemetry {{eal}} -- --die-with-parent"
    options = ("run=" + run, 'ready="event":"ready"', f"version='{dataplane}' --version")
    given = [word for option in options for word in ("--dut-option", option)]
    figures = measure("--dut", "command", *given, *RATE)
    info = sound(figures["out"])
    assert figures["count"] == figures["sent"]
    assert info["dut"]["version"] == find_binary()[1]


@pytest.mark.parametrize(
    ("run", "cpus"), [("./forward {eal}", (3,)), ("x -l {cpus} {eal}", (0, 3))]
)
def test_a_program_that_places_no_threads_stays_on_the_cpus_of_the_device(
    tmp_path: Path, run: str, cpus: tuple[int, ...]
) -> None:
    dut = dut_named("command", {"run": run, "ready": "x"}, "memif")
    context = DutContext(Here(tmp_path), Side((), ("net_memif0",)), (3,), (0,), 1000)
    assert isinstance(dut, Command)
    assert dut.cpus_of(context) == cpus


def test_a_program_that_runs_beside_its_cpus_is_named(
    measure: Measure, tailscope: Any, dataplane: Path
) -> None:
    own, generator, *others = sorted(os.sched_getaffinity(0), reverse=True)
    elsewhere = others[0] if others else generator
    run = f"run='{dataplane}' l2fwd -l {elsewhere} --no-telemetry {{eal}} -- --die-with-parent"
    given = ("--dut-option", run, "--dut-option", 'ready="event":"ready"')
    cpus = ("--cpus", f"generator={generator},dut={own}")
    figures = measure("--dut", "command", *given, *cpus, *RATE, "--duration", "1s")
    info = json.loads((figures["out"] / "run.json").read_text())
    assert [*info["noise"]["elsewhere_ns"]] == [str(elsewhere)]
    explained = tailscope("explain", figures["out"])
    for said in (" ".join(figures["warnings"]), explained.stdout + explained.stderr):
        assert f"the device ran on CPU {elsewhere} for" in said and "{cpus}" in said


@AS_ROOT
def test_any_program_of_the_kernel_is_a_device(measure: Measure, tmp_path: Path) -> None:
    """The program sets up redirection, reports that, and waits."""
    script = tmp_path / "forward.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "a, b = sys.argv[1:3]\n"
        "tc = lambda *words: subprocess.run(['tc', *words], check=True)\n"
        "tc('qdisc', 'add', 'dev', a, 'ingress')\n"
        "tc(*'filter add dev'.split(), a, *'parent ffff: protocol all u32 match u32 0 0'.split(),\n"
        "   *'action mirred egress redirect dev'.split(), b)\n"
        "open(sys.argv[3], 'w').close()\n"
        "time.sleep(600)\n"
    )
    run = f"run='{sys.executable}' '{script}' {{links}} {{folder}}/ready"
    given = ("--dut-option", run, "--dut-option", "ready-command=test -e {folder}/ready")
    figures = measure("--dut", "command", "--wire", "veth", *given, *RATE, "--noise", "auto")
    sound(figures["out"])
    assert figures["count"] == figures["sent"]


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        ({}, "no-command", "run"),
        ({"run": "", "ready": "x"}, "no-command", "run"),
        ({"run": "sleep 1"}, "no-probe", "ready-command"),
        ({"run": "sleep 1", "ready": "x", "ready-command": "y"}, "no-probe", "ready-command"),
        ({"run": "sleep 1", "ready": "["}, "ready-pattern", "'['"),
        ({"run": "sleep '1", "ready": "x"}, "command-syntax", "run"),
        ({"run": "sleep 1", "ready": "x"}, "no-eal", "{eal}"),
        ({"run": "forward {links}", "ready": "x"}, "no-kernel-links", "{links}"),
        (
            {"run": "forward {eal}", "ready-command": "ip link show {link0}"},
            "no-kernel-links",
            "{link0}",
        ),
        ({"run": "forward {link2}", "ready": "x"}, "unknown-link", "{link2}"),
    ],
)
def test_a_command_needs_a_probe(options: dict[str, str], code: str, value: str) -> None:
    with raises(UsageError, code) as error:
        dut_named("command", options)
    assert value in str(error.value)


def test_the_time_for_a_probe_is_a_duration() -> None:
    with pytest.raises(UsageError) as error:
        dut_named("command", {"run": "forward {eal}", "ready": "x", "ready-within": "soon"})
    assert "soon" in str(error.value) and "ready-within" in str(error.value)


def test_a_command_that_ends_is_quoted(tailscope: Any, place: Place, dataplane: Path) -> None:
    run = f"run='{sys.executable}' -c 'print(\"no licence\"); raise SystemExit(3)' {{eal}}"
    given = ("--dut-option", run, "--dut-option", "ready=never")
    out = place.path / "out"
    done = tailscope("run", "--dut", "command", *given, "--out", out, env=place.environment)
    assert done.returncode == 1
    assert code_of(done) == "program-ended"
    assert "status 3" in done.stderr and "no licence" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("probe", "waits_for"),
    [("ready=never", "'never' in its output"), ("ready-command=test -e {folder}/x", "test -e /")],
)
def test_a_command_that_is_not_ready_says_for_what_it_waited(
    tailscope: Any, place: Place, dataplane: Path, probe: str, waits_for: str
) -> None:
    options = ("run=sh -c 'echo begun; sleep 60' {eal}", probe, "ready-within=300ms")
    given = [word for option in options for word in ("--dut-option", option)]
    done = tailscope("run", "--dut", "command", *given, env=place.environment)
    assert done.returncode == 1
    assert code_of(done) == "not-ready"
    assert "0.3 s" in done.stderr and waits_for in done.stderr and "begun" in done.stderr


def test_a_command_that_is_not_there_is_looked_for_somewhere(
    tailscope: Any, place: Place, dataplane: Path
) -> None:
    given = ("--dut-option", "run=no-such-function {eal}", "--dut-option", "ready=never")
    done = tailscope("run", "--dut", "command", *given, env=place.environment)
    assert done.returncode == 1
    assert code_of(done) == "no-program" and "no-such-function" in done.stderr
    [hint] = [line for line in done.stderr.splitlines() if line.startswith("hint: ")]
    assert "/usr/sbin" in hint
