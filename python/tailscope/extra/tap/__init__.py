"""A tap, which matches what crosses two interfaces of this machine while it comes."""

from __future__ import annotations

from tailscope.registry import AddedCommand, AddedFile, Addition

RECORD = "tap.json"
"""What a tap heard, beside the run that it became."""
WORST = "worst"
"""The folder of captures around the worst packets, in the run."""

ADDITION = Addition(
    commands=(
        AddedCommand(
            "tap",
            "Match what crosses two interfaces while it comes.",
            measures=True,
            section="Measuring",
        ),
    ),
    services={"kept_explanation": "explain:explain_tapped", "packet_filter": "filters:compiled"},
    files=(
        AddedFile(
            RECORD,
            "What `tailscope tap` heard of its two interfaces, the figures of each flow, and its"
            " alerts. Captures of what surrounds the worst packets are in `worst/`, two for each:"
            " `TIME-LATENCY-pre.pcap` and `-post.pcap` ([index.md](index.md)).",
            "records:TapRecord",
        ),
    ),
)
