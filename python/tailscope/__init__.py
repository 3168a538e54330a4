"""Measure, explain and predict the tail latency of network functions.

``tailscope.analyze(pre, post)`` turns two captures of the same traffic, one before and one after a
device under test, into exact figures. The command line offers the same as ``tailscope analyze``.
Submodules are imported when they are first used, because starting quickly is a feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailscope.analysis import Analysis, analyze
    from tailscope.exceptions import TailscopeError

__all__ = ["Analysis", "TailscopeError", "__version__", "analyze"]

_HOMES = {
    "Analysis": "tailscope.analysis",
    "TailscopeError": "tailscope.exceptions",
    "analyze": "tailscope.analysis",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from tailscope import _engine

        return _engine.VERSION
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tailscope' has no attribute {name!r}")
