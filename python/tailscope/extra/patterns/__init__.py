"""What captures alone say about a device: queues, buckets, stalls, batches, paths, clocks."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "aliasing",
            "Find the clocks that interrupted the device, and what they do to packets.",
            group="model",
        ),
    ),
    services={
        "packets_alone": "explain:explain_packets",
        "unnamed_stalls": "explain:unnamed_stalls",
    },
)
