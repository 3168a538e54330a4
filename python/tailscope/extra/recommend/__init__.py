"""Recommendations by the evidence of runs: the papers' recommendations, and their tables.

Read `evidence` first: what runs are, and which of them may be compared. `compare` says when one
tail lies above another, `rules` what follows from that, `tables` puts all of it side by side.
"""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "recommend", "Recommend a set-up that these runs support.", section="Improving"
        ),
    ),
    services={"campaign_tables": "campaign:campaign_tables"},
)
