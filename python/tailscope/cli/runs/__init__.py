"""``tailscope runs``: what is kept of measurements, and what was left behind."""

COMMANDS = {
    "list": "List runs, with their settings, dates and most important figures.",
    "show": "Show the table of a run again, with its tags, notes, files and command.",
    "tag": "Add or remove tags of runs; without either, print their tags.",
    "note": "Add a dated note to a run; without a text, print its notes.",
    "finish": "Complete an interrupted run: explanation and report.",
    "clean": "Remove sockets, folders and namespaces of measurements that were killed.",
}
"""The commands, by name, with a summary of each."""
