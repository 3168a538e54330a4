"""``tailscope schema``: what an experiment may say, for editors."""

from __future__ import annotations

import json

EXAMPLE = "tailscope schema > experiment.schema.json"


def command() -> int:
    from tailscope.experiment.campaign.spec import schema

    print(json.dumps(schema(), indent=2))
    return 0
