"""``tailscope model``: what follows from the figures of a run."""

COMMANDS = {
    "energy": "Compare the power of idling, running and processing, and the energy of packets.",
    "overload": (
        "Predict the rate at which a function overloads from medians and noise at low load."
    ),
}
"""The commands, by name, with a summary of each."""
