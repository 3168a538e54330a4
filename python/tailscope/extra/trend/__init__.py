"""How figures change from run to run, and from which run on they are others.

`series` sorts runs into series of steps, `changes` finds change points and judges the last one,
`words` says it.
"""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(AddedCommand("trend", "Show how figures change from run to run, and since when."),),
)
