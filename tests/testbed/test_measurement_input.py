"""Impossible measurements are refused before anything starts, with a hint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import COMMAND
from errors import code_of, raises, unwrapped
from measurements import as_nobody, quick
from runs import left_behind

from tailscope.exceptions import DataplaneError
from tailscope.testbed import process

if TYPE_CHECKING:
    from measurements import Place

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--cpus", "4095"), ["--cpus: ", "CPU 4095"]),
        (("--cpus", "one"), ["--cpus: ", "'one'"]),
        (("--duration", "0s"), ["--duration: ", "0s", "1ns"]),
        (("--duration", "soon"), ["--duration: "]),
        (("--rate", "0"), ["--rate: ", "got 0"]),
        (("--rate", "fast"), ["--rate: "]),
        (("--size", "63"), ["--size: ", "63", "64 to 1518"]),
        (("--burst", "513"), ["--burst: ", "513", "1 to 512"]),
        (("--burst", "2", "--burst-gap", "1ms"), ["--burst-gap: "]),
        (("--protocol", "tcp"), ["--size: ", "76 to 1518"]),
        (("--pattern", "chaos"), ["--pattern: ", "'chaos'", "cbr, poisson, captured"]),
        (("--wire", "string"), ["--wire: ", "'string'", "memif, veth, pci"]),
        (
            ("--wire", "veth", "--wire-option", "driver=tap"),
            ["af_packet or af_xdp", "[wire-driver]"],
        ),
        (("--wire", "pci"), ["generator=ADDRESS+ADDRESS", "[cards-not-given]"]),
        (
            (
                *("--wire", "pci"),
                *("--wire-option", "generator=0000:ff:1f.6+0000:ff:1f.7"),
                *("--wire-option", "dut=0000:ff:1f.4+0000:ff:1f.5"),
            ),
            ["0000:ff:1f.6", "[no-card]"],
        ),
        (("--dut-option", "batch=0"), ["--dut-option batch: ", "'0'", "[dut-option]"]),
        (("--dut-option", "speed=1"), ["'speed'", "[unknown-dut-option]"]),
        (("--dut-option", "batch"), ["NAME=VALUE"]),
        (("--flows", "65536"), ["--flows: ", "65536", "1 to 65535"]),
    ],
)
def test_bad_input_is_named(tailscope: Run, place: Place, options: Any, named: list[str]) -> None:
    done = tailscope("run", "--dut", "l2fwd", *options, env=place.environment, cwd=place.path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert all(text in done.stderr for text in named)
    assert not (place.path / "runs").exists()


def test_an_unknown_device_is_named(tailscope: Run, place: Place) -> None:
    done = tailscope("run", "--dut", "switch", env=place.environment, cwd=place.path)
    assert done.returncode == 1
    assert all(text in done.stderr for text in ("--dut: ", "'switch'", "l2fwd"))


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize(
    ("dut_option", "code", "value"),
    [
        ("law=gauss:1us", "usage", "gauss:1us"),
        ("law=file:/no/such/file", "file", "/no/such/file"),
        ("stall-duration=60ms", "option-value", "--stall-period"),
    ],
)
def test_what_the_device_refuses_is_passed_on(
    tailscope: Run, place: Place, dut_option: str, code: str, value: str
) -> None:
    arguments = ("run", "--dut", "delay", "--dut-option", dut_option, *quick())
    done = tailscope(*arguments, "--out", place.path / "out", env=place.environment)
    assert done.returncode == 1
    assert code_of(done) == code
    assert "error: dut: " in done.stderr and value in done.stderr
    assert not (place.path / "out").exists()


@pytest.mark.usefixtures("dataplane")
def test_one_cpu_works_and_is_warned_of(tailscope: Run, place: Place) -> None:
    cpu = min(os.sched_getaffinity(0))
    arguments = ("run", "--dut", "l2fwd", *quick("--rate", "1k"), "--cpus", cpu)
    done = tailscope(*arguments, "--out", place.path / "out", env=place.environment)
    assert done.returncode == 0, done.stderr
    assert "2 processes poll on 1 CPU" in done.stdout


def test_without_dpdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_BINARY", Path("/nowhere/tailscope-dp"))
    with raises(DataplaneError, "dataplane-missing") as error:
        process.find_binary()
    assert "libdpdk-dev" in str(error.value.hint)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "tailscope-dp"
    other.write_text("#!/bin/sh\necho tailscope-dp 0.0.1\n")
    other.chmod(0o755)
    monkeypatch.setattr(process, "_BINARY", other)
    with raises(DataplaneError, "dataplane-version") as error:
        process.find_binary()
    assert "'tailscope-dp 0.0.1'" in str(error.value)


def test_a_complete_run_is_not_overwritten(tailscope: Run, place: Place) -> None:
    out = place.path / "out"
    out.mkdir()
    (out / "mine").touch()
    arguments = ("run", "--dut", "l2fwd", *quick(), "--out", out)
    done = tailscope(*arguments, env=place.environment)
    assert done.returncode == 1 and code_of(done) == "run-exists"


@pytest.mark.usefixtures("dataplane")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("full", ["run", "out"])
def test_a_full_disk_is_an_error_that_leaves_nothing(place: Place, full: str) -> None:
    small = place.path / full
    small.mkdir(exist_ok=True)
    script = 'mount -t tmpfs -o size=256k,mode=700 none "$1" && shift && exec "$@"'
    enough = ("--duration", "200ms", "--noise", "events")
    out = str(place.path / "out" / "run")
    arguments = ["run", "--dut", "l2fwd", *quick(*enough), "--out", out]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(small), str(COMMAND), *arguments],
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    expected = {"run": "No space left on device", "out": "expected room for"}
    assert expected[full] in unwrapped(done.stderr)
    # What was measured before the disk of other records was full is kept in the run directory.
    kept = place.path / "out" / "run" / "recording"
    assert (code_of(done) == "not-analysed") == kept.is_dir() == (full == "run")
    assert not left_behind()


@pytest.mark.skipif(os.geteuid() != 0, reason="there must be a root to be told from")
def test_links_of_the_kernel_need_root(place: Place) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv")
    code = (
        "from tailscope.testbed.wires import Veth\n"
        "from tailscope.exceptions import TestbedError\n"
        "try: Veth({}).check()\n"
        "except TestbedError as error: print(error.code, error, error.hint)\n"
    )
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = [sys.executable, "-B", "-c", code]
    output, _ = as_nobody(command, place.path, cwd="/", **pipes).communicate(timeout=30)
    if "Permission denied" in output:
        pytest.skip("the interpreter is not to be reached by an ordinary user")
    assert output.startswith("missing-capability ")
    assert "cap_net_admin, cap_net_raw, cap_sys_admin" in output and "--wire memif" in output
