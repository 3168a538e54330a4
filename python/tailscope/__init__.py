"""Measure, explain and predict the tail latency of network functions.

``tailscope.analyze(pre, post)`` turns two captures of the same traffic, one before and one after a
device under test, into exact figures. The command line offers the same as ``tailscope analyze``.
Submodules are imported when they are first used, because starting quickly is a feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.exceptions import TailscopeError

if TYPE_CHECKING:
    from tailscope.analysis import Analysis, analyze

__all__ = ["Analysis", "TailscopeError", "__version__", "analyze"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from tailscope import _engine

        return _engine.VERSION
    if name in ("Analysis", "analyze"):
        from tailscope import analysis

        return getattr(analysis, name)
    raise AttributeError(f"module 'tailscope' has no attribute {name!r}")
