"""``tailscope baseline``: a small file that later runs are compared with."""

COMMANDS = {
    "compare": "Compare runs with a baseline: what differs, and which differences are real.",
    "save": "Write what runs are compared by as one small file, such as an artifact of CI.",
}
"""The commands, by name, with a summary of each."""
