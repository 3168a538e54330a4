"""Counters of Open vSwitch, read from the output of its programs."""

from __future__ import annotations

import re

from tailscope.store.records.dataplane import LinkCounts, OvsCounts, OvsThreadCounts

_PORT = re.compile(r"^  port \d+: (\S+)")
_SIDE = re.compile(r"^ +(RX|TX) packets:(\d+|\?) errors:(\d+|\?) dropped:(\d+|\?)")
_THREAD = re.compile(r"^(pmd thread .*|main thread):$")
_LOST = re.compile(r"lookups:.* lost:(\d+)")
_FLOW = re.compile(r"n_packets=(\d+),.* actions=(.*)$", re.MULTILINE)
_OWN = ("ovs-netdev", "bridge0")
"""Internal links of the switch."""
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
    """Read the counters of ports, threads and flows."""
    lost, listed = _LOST.search(datapath), _FLOW.findall(flows)
    return OvsCounts(
        ports=_ports(datapath),
        threads=_threads(threads),
        flows=len(listed),
        dropped=sum(int(packets) for packets, actions in listed if actions == "drop"),
        lost=int(lost[1]) if lost else 0,
    )


def _ports(datapath: str) -> dict[str, LinkCounts]:
    ports: dict[str, dict[str, int]] = {}
    counts: dict[str, int] = {}
    for line in datapath.splitlines():
        if port := _PORT.match(line):
            counts = {}
            if port[1] not in _OWN:
                ports[port[1]] = counts
        elif side := _SIDE.match(line):
            way = side[1].lower()
            for name, text in zip(("packets", "errors", "dropped"), side.groups()[1:], strict=True):
                # A question mark stands for a counter that the driver does not have.
                counts[f"{way}_{name}"] = int(text) if text != "?" else 0
    return {name: LinkCounts(**counts) for name, counts in ports.items()}


def _threads(text: str) -> dict[str, OvsThreadCounts]:
    threads: dict[str, dict[str, int]] = {}
    counts: dict[str, int] = {}
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            counts = threads[thread[1]] = dict.fromkeys(_COUNTED.values(), 0)
        else:
            name, _, value = line.strip().partition(": ")
            if name in _COUNTED:
                counts[_COUNTED[name]] = int(value.split()[0])
    return {
        name: OvsThreadCounts(**counts) for name, counts in threads.items() if any(counts.values())
    }
