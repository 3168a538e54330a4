"""Results of others as run directories: what they hold, what follows from it, and what does not."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "import",
            "Import results of others: tables, histograms and logs of other tools.",
            group="runs",
        ),
        AddedCommand(
            "pos",
            "Write runs as a result tree of pos: loop variables, and the authors' tables.",
            module="pos_command",
            group="runs",
        ),
    ),
)
