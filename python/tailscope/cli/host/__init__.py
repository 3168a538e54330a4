"""``tailscope host``: how this machine is set, and how it should be."""

__all__ = ["COMMANDS"]

COMMANDS = {
    "audit": "Say of each knob what it is and what it should be; nothing is changed.",
    "apply": "Set as root what can be set while the machine runs, until `host revert`.",
    "revert": "Restore as root, exactly, what was there before; also after a crash.",
    "export": "Write what needs a reboot, or should last, for the tool that keeps it.",
}
"""What each of them does, by its name."""
