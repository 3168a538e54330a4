"""What captures alone say about a device: queues, buckets, stalls, batches, paths."""

from __future__ import annotations

from tailscope.registry import Addition

ADDITION = Addition(services={"packets_alone": "explain:explain_packets"})
