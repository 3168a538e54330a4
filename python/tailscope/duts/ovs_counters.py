"""What Open vSwitch's programs say of its counters."""

from __future__ import annotations

import re

from tailscope.store.records.dataplane import LinkCounts, OvsCounts, OvsThreadCounts

_PORT = re.compile(r"^  port \d+: (\S+)")
_SIDE = re.compile(r"^ +(RX|TX) packets:(\d+|\?) errors:(\d+|\?) dropped:(\d+|\?)")
_THREAD = re.compile(r"^(pmd thread .*|main thread):$")
_LOST = re.compile(r"lookups:.* lost:(\d+)")
_FLOW = re.compile(r"n_packets=(\d+),.* actions=(.*)$", re.MULTILINE)
_OWN = ("ovs-netdev", "bridge0")
"""Links that it has for itself."""
_COUNTED = {
    "packets received": "received",
    "emc hits": "exact_match_hits",
    "smc hits": "signature_match_hits",
    "simple match hits": "simple_match_hits",
    "megaflow hits": "megaflow_hits",
    "miss with success upcall": "misses",
    "miss with failed upcall": "lost",
    "idle cycles": "idle_cycles",
    "processing cycles": "processing_cycles",
}


def counts_of(datapath: str, threads: str, flows: str) -> OvsCounts:
    """Read what was counted."""
    lost, listed = _LOST.search(datapath), _FLOW.findall(flows)
    return OvsCounts(
        ports=_ports(datapath),
        threads=_threads(threads),
        flows=len(listed),
        dropped=sum(int(packets) for packets, actions in listed if actions == "drop"),
        lost=int(lost[1]) if lost else 0,
    )


def _ports(datapath: str) -> dict[str, LinkCounts]:
    found: dict[str, dict[str, int]] = {}
    own: dict[str, int] = {}
    for line in datapath.splitlines():
        if port := _PORT.match(line):
            own = {}
            if port[1] not in _OWN:
                found[port[1]] = own
        elif side := _SIDE.match(line):
            way = side[1].lower()
            for name, text in zip(("packets", "errors", "dropped"), side.groups()[1:], strict=True):
                # A question mark stands for what its driver does not count.
                own[f"{way}_{name}"] = int(text) if text != "?" else 0
    return {name: LinkCounts(**counts) for name, counts in found.items()}


def _threads(text: str) -> dict[str, OvsThreadCounts]:
    found: dict[str, dict[str, int]] = {}
    own: dict[str, int] = {}
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            own = found[thread[1]] = dict.fromkeys(_COUNTED.values(), 0)
        else:
            name, _, value = line.strip().partition(": ")
            if name in _COUNTED:
                own[_COUNTED[name]] = int(value.split()[0])
    return {
        name: OvsThreadCounts(**counts) for name, counts in found.items() if any(counts.values())
    }
