"""Filters of packets, in the language of libpcap."""

from __future__ import annotations

import re
import subprocess

from tailscope.exceptions import UsageError
from tailscope.testbed.programs import find_program, search_path

_TIMEOUT_S = 30.0
_TAGS = re.compile(r"\bvlan\b")
_NOTHING = "0"
"""A program without instructions, which accepts all."""


def compiled(expression: str) -> str:
    """Compile a filter for Ethernet: the length of the program, and its instructions."""
    if not expression.strip():
        return _NOTHING
    if _TAGS.search(expression):
        raise UsageError(
            f"--filter: {expression!r}: a tap sees frames without tags of VLANs",
            code="filter",
            hint="tap the interface of the VLAN, such as eth0.5",
        )
    program = find_program("--filter", "tcpdump", "tcpdump")
    done = subprocess.run(  # noqa: S603
        [program, "-y", "EN10MB", "-ddd", "--", expression],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_S,
        env={"PATH": search_path(), "LC_ALL": "C.UTF-8"},
        check=False,
    )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise UsageError(
            f"--filter: {expression!r}: {reason[0]}",
            code="filter",
            hint="expected an expression of pcap-filter(7), such as 'udp port 5201'",
        )
    return ",".join(done.stdout.split("\n")[:-1])
