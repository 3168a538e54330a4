"""Logs of what keeps a clock (ptp4l, phc2sys, chronyd): when the clock of a capture is in doubt."""

from __future__ import annotations

from tailscope.registry import Addition

ADDITION = Addition(services={"clock_doubts": "doubts:clock_doubts"})
