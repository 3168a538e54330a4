"""Measure, explain and predict the tail latency of network functions.

``tailscope.analyze(pre, post)`` turns two captures of the same traffic, one before and one after a
device under test, into exact figures. ``tailscope.open(path)`` opens a run directory or a campaign.
The command line offers the same as ``tailscope analyze`` and ``tailscope show``.
Submodules are imported when they are first used, because starting quickly is a feature, and so that
the program can handle Ctrl-C before anything else.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tailscope import exceptions, slices
    from tailscope.analysis import Analysis, analyze
    from tailscope.exceptions import TailscopeError
    from tailscope.opened import OpenedCampaign, OpenedRun, open  # noqa: A004

__all__ = [
    "Analysis",
    "OpenedCampaign",
    "OpenedRun",
    "TailscopeError",
    "__version__",
    "analyze",
    "exceptions",
    "open",
    "slices",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from tailscope import _engine

        return _engine.VERSION
    if name in ("Analysis", "analyze"):
        from tailscope import analysis

        return getattr(analysis, name)
    if name in ("OpenedCampaign", "OpenedRun", "open"):
        from tailscope import opened

        return getattr(opened, name)
    if name in ("exceptions", "slices"):
        from importlib import import_module

        return import_module(f"tailscope.{name}")
    if name == "TailscopeError":
        from tailscope import exceptions

        return exceptions.TailscopeError
    raise AttributeError(f"module 'tailscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__]
