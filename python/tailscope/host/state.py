"""Where what is known of this machine is kept."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """The folder of it, in the user's state."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tailscope"
