"""Co-runners: loads of stress-ng and functions with traffic of their own, on any platform."""

from __future__ import annotations

from tailscope.registry import Addition

ADDITION = Addition(services={"co-runners": "co_runners:CoRunners"})
