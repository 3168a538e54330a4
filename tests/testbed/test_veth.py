"""`tailscope run --wire veth` over links of the kernel, as root."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("driver", "warm_up"), [("af_packet", "100ms"), ("af_xdp", "4s")])
def test_packets_cross_the_kernel(
    measure: Callable[..., dict[str, Any]], driver: str, warm_up: str
) -> None:
    # With AF_XDP, links carry packets only after a moment, and later beside other tests.
    options = ("--wire", "veth", "--wire-option", f"driver={driver}", "--warm-up", warm_up)
    figures = measure("--dut", "l2fwd", *options, "--rate", "1k", "--duration", "1s")
    assert figures["count"] + figures["lost"] == figures["sent"] > 0
    # The kernel's rings overflow while a loop is descheduled.
    assert figures["count"] > 0.9 * figures["sent"], figures
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert "tailscope-" not in listed
