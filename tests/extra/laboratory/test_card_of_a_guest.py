"""The kernel's driver of a real card with timestamps, on two emulated cards in a guest."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from runs import needed

import tailscope
from tailscope.exceptions import TestbedError
from tailscope.platforms.accelerator import machine
from tailscope.platforms.initramfs import build_initramfs, guest_kernel

INIT = """#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules); do insmod $module; done
{python} {script} {package} {dataplane} {frames}
poweroff -f
"""
CARDS = [f"hubport,hubid=0,id=hub{number}" for number in (0, 1)]
FRAMES = 20
LIMIT_S = 300


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, dataplane: Path) -> dict[str, Any]:
    """Boot a guest with two cards (82574L, driver e1000e), and return its report."""
    needed("qemu-system-x86_64", "busybox", "cpio", "ethtool")
    try:
        kernel = guest_kernel("vanilla")
    except TestbedError as error:
        assert not os.environ.get("CI"), error
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("guest")
    python, script = Path(sys.executable).resolve(), Path(__file__).with_name("inside_guest.py")
    package = Path(tailscope.__file__).parent
    init, root = folder / "init.sh", folder / "root.cpio"
    # Beside the package, it would shadow the package.
    program = Path(shutil.copy(dataplane, folder))
    paths = {"python": python, "script": script, "package": package.parent, "dataplane": program}
    quoted = {name: shlex.quote(str(path)) for name, path in paths.items()}
    init.write_text(INIT.format(**quoted, frames=FRAMES))
    init.chmod(0o755)
    build_initramfs(
        root,
        kernel,
        modules=["af_packet", "e1000e"],
        programs=[python, program, Path("/usr/sbin/ethtool")],
        files=[init, script, package, Path(sysconfig.get_path("stdlib"))],
        dpdk=False,
        cards=False,
    )
    command = [*machine("tcg", cpus=1, memory_mb=1536), "-serial", "stdio"]
    for card in CARDS:
        own = card.rpartition("=")[2]
        command += ["-netdev", card, "-device", f"e1000e,netdev={own},romfile="]
    command += ["-kernel", str(kernel.image), "-initrd", str(root)]
    command += ["-append", f"console=ttyS0 quiet panic=-1 rdinit={init}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    line = re.search(r"^found (.*)$", done.stdout, re.M)
    assert line is not None, done.stdout[-2000:]
    content: dict[str, Any] = json.loads(line[1])
    return content


@pytest.mark.long
def test_a_driver_says_what_ethtool_prints(report: dict[str, Any]) -> None:
    for name, clock in (("eth0", 0), ("eth1", 1)):
        printed = report["ethtool"][name]
        assert "hardware-receive" in printed and re.search(r"^\s+all\b", printed, re.M)
        assert re.search(rf"(PTP Hardware Clock|provider index): {clock}", printed)
        assert report["offers"][name] == {"stamps": True, "stamps_all": True, "clock": clock}


@pytest.mark.long
def test_a_card_is_set_and_put_back(report: dict[str, Any]) -> None:
    """The cards start with a filter for PTP, as a time-keeping program sets it."""
    assert report["with_clock"]
    assert report["forced"] == [[0, 1, 1]] * 2
    assert report["after"] == [[0, 1, 12]] * 2


@pytest.mark.long
def test_a_clock_is_read_and_judged(report: dict[str, Any]) -> None:
    """In older versions of QEMU the clocks of these cards stand still."""
    readings = report["readings"]
    assert len(readings) == 4
    for first, second in (readings[:2], readings[2:]):
        assert 0 < first["system_ns"] < second["system_ns"]
        assert 0 <= first["width_ns"] < 10**9
        # The driver sets them to the machine's time when it starts.
        assert abs(first["clock_ns"] - first["system_ns"]) < 600 * 10**9
    keep_time, chosen = report["keep_time"], report["chosen"]
    assert chosen["by_cards"] is all(keep_time)
    assert report["during"] == [[0, 0, int(all(keep_time))]] * 2
    stopped = [number for number, keeps in enumerate(keep_time) if not keeps]
    for number in stopped:
        assert f"ptp{number}" in chosen["warnings"][0]


@pytest.mark.long
def test_frames_that_a_card_did_not_stamp_are_not_written(report: dict[str, Any]) -> None:
    """QEMU's 82574L stamps none of all frames; `tests/guests/driver` is a card that stamps all."""
    counts = report["counts"]
    assert counts["received"] >= FRAMES
    assert (counts["written"], counts["dropped"]) == (0, 0)
    assert counts["unstamped"] == counts["received"]
