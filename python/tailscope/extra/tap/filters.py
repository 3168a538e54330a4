"""Filters of packets, in the language of libpcap."""

from __future__ import annotations

import re
import subprocess

from tailscope.exceptions import UsageError
from tailscope.testbed.programs import find_program, search_path

_TIMEOUT_S = 30.0
_TAGS = re.compile(r"\bvlan\b")
_ETHERNET = "EN10MB"
_NOTHING = "0"
"""A program without instructions, which accepts all."""


def compiled(expression: str, *, option: str = "--filter", frames: str = _ETHERNET) -> str:
    """Compile a filter: the length of the program, and its instructions."""
    if not expression.strip():
        return _NOTHING
    if _TAGS.search(expression):
        raise UsageError(
            f"{option}: {expression!r}: the kernel takes the tags of VLANs off",
            code="filter",
            hint="leave `vlan` out; a tap of eth0.5 hears that VLAN",
        )
    program = find_program(option, "tcpdump", "tcpdump")
    done = subprocess.run(  # noqa: S603
        [program, "-y", frames, "-ddd", "--", expression],
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
            f"{option}: {expression!r}: {reason[0]}",
            code="filter",
            hint="expected an expression of pcap-filter(7), such as 'udp port 5201'",
        )
    return ",".join(done.stdout.split("\n")[:-1])
