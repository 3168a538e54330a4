"""The inventory of a machine that every run records: memory, NUMA nodes, caches, network cards."""

from __future__ import annotations

from tailscope.registry import Addition

ADDITION = Addition(services={"inventory": "look:inventory"})
