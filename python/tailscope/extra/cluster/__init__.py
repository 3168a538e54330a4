"""Many pairs of captures on the workers of a Dask scheduler."""

from __future__ import annotations

from tailscope.registry import Addition

ADDITION = Addition(
    services={"analyze_pairs": "pairs:analyze_pairs", "read_runs": "runs:read_runs"},
)
