"""Values as people write them."""

from __future__ import annotations

from typing import Any

from tailscope.exceptions import UsageError

__all__ = ["positive_duration_ns", "rate_pps", "value_label"]


def positive_duration_ns(text: str, option: str) -> int:
    """Read a duration of at least 1 ns, such as ``5ms``.

    Raises
    ------
    UsageError
        If it is none.
    """
    from tailscope.analysis import duration_ns

    found = duration_ns(text, option)
    if found == 0:
        raise UsageError(f"{option}: expected at least 1ns, got {text}")
    return found


def rate_pps(text: str, option: str) -> int:
    """Read a packet rate, such as ``10k``.

    Raises
    ------
    UsageError
        If it is none.
    """
    from tailscope import _engine

    try:
        return int(_engine.parse_rate_pps(str(text)))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def value_label(value: Any) -> str:
    """What a value of a variable is called."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
