"""The folder of tailscope's knowledge of this machine."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Return that folder, within the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tailscope"
