"""Values as people write them on a command line."""

from __future__ import annotations

from tailscope.exceptions import UsageError

__all__ = ["named_values", "positive_duration_ns", "rate_pps"]


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
        return int(_engine.parse_rate_pps(text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def named_values(given: list[str] | None, option: str) -> dict[str, str]:
    """Read an option that is given as NAME=VALUE, once for each name.

    Raises
    ------
    UsageError
        If it is not, or a name comes twice.
    """
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"{option}: got {text!r}, expected NAME=VALUE")
        if name in found:
            raise UsageError(f"{option}: got {name} twice")
        found[name] = value
    return found
