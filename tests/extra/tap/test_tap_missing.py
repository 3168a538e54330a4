"""A tap that is kept from listening: what it misses itself is never the device's loss."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from foreign.network import routed_network
from runs import AS_ROOT, needed
from taps import Tap

from tailscope.testbed.process import find_binary

if TYPE_CHECKING:
    from pathlib import Path

EAL = ("-l", "0", "--no-huge", "--no-pci", "-m", "256", "--vdev=net_af_packet0,iface=eth0")
TRAFFIC = (
    *("--rate=40k", "--duration=14s", "--warm-up=0s", "--drain=0s", "--dst-port=5001"),
    *("--src-ip=10.1.0.2", "--dst-ip=10.2.0.2"),
)
STOPPED_S = 8


@pytest.mark.long
@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_what_a_tap_misses_is_not_lost(tmp_path: Path) -> None:
    """It is stopped until the kernel's rings are full: seconds around say what they do not know."""
    needed("ip", "ethtool", "tcpdump")
    with routed_network() as router:
        links = json.loads(router.run("router", "ip", "-j", "link", "show", "tap-in"))
        options = ("--filter", "udp port 5001", "--slo", "lost=0", "--keep", 0)
        tap = Tap(router, tmp_path, *options)
        tap.wait_heard()
        command = [find_binary()[0], "gen", *EAL, "--", *TRAFFIC]
        router.start("client", *command, f"--dst-mac={links[0]['address']}", ready='"ready"')
        time.sleep(3)
        [pid] = tap.listeners()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        os.kill(pid, signal.SIGCONT)
        time.sleep(5)
        status, told = tap.end()
    summary, heard = told[-1]["summary"], told[-1]["tap"]
    print(
        {name: summary[name] for name in ("sent", "count", "lost", "outside")},
        heard["pre"],
        heard["post"],
    )
    missed = [heard[side]["dropped"] + heard[side]["late"] for side in ("pre", "post")]
    assert min(missed) > 0
    assert summary["lost"] == 0
    assert summary["sent"] == summary["count"] + summary["outside"]
    assert status == 3
    told_missed = [second["missed_pre"] + second["missed_post"] for second in told[:-1]]
    assert sum(told_missed) == sum(missed)
