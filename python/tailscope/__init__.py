"""Measure, explain and predict the tail latency of network functions.

``tailscope.analyze(pre, post)`` turns two captures of the same traffic, one before and one after a
device under test, into exact figures. ``tailscope.open(path)`` opens a run directory or a campaign.
The command line offers the same as ``tailscope analyze`` and ``tailscope runs show``.
Submodules are imported when they are first used, because starting quickly is a feature, and so that
the program can handle Ctrl-C before anything else.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tailscope import exceptions
    from tailscope.engine import slices
    from tailscope.engine.analysis import Analysis, analyze
    from tailscope.exceptions import TailscopeError
    from tailscope.opened.views import OpenedCampaign, OpenedRun, open  # noqa: A004

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


_MODULES = {"exceptions": "tailscope.exceptions", "slices": "tailscope.engine.slices"}
_HOMES = {
    "Analysis": "tailscope.engine.analysis",
    "OpenedCampaign": "tailscope.opened.views",
    "OpenedRun": "tailscope.opened.views",
    "TailscopeError": "tailscope.exceptions",
    "analyze": "tailscope.engine.analysis",
    "open": "tailscope.opened.views",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "__version__":
        from tailscope._engine import VERSION

        return VERSION
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tailscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__]
