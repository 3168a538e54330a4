"""Many pairs of captures on the workers of a Dask scheduler."""

from __future__ import annotations

from tailscope.registry import Addition, Extra

ADDITION = Addition(
    services={"analyze_pairs": "pairs:analyze_pairs", "read_runs": "runs:read_runs"},
    extra=Extra(
        "cluster",
        {
            "dask": "dask[distributed]",
            "distributed": "dask[distributed]",
            "cryptography": "cryptography",
        },
    ),
)
