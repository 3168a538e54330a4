"""Values as people write them."""

from __future__ import annotations

import re
from typing import Any

from tailscope.exceptions import UsageError

__all__ = ["positive_duration_ns", "quantile_of", "rate_pps", "value_label"]

_SHARE = re.compile(r"\d*\.?\d+", re.ASCII)
_PERCENTILE = re.compile(r"p(\d*\.?\d+)|(\d*\.?\d+)%", re.ASCII)


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


def quantile_of(text: str, option: str) -> float:
    """Read a quantile: ``0.999``, ``p99.9`` and ``99.9%`` are the same.

    Raises
    ------
    UsageError
        If it is none. Which quantiles make sense is for the caller to say.

    Examples
    --------
    >>> quantile_of("p99.9", "--quantile")
    0.999
    """
    from decimal import Decimal

    if percentile := _PERCENTILE.fullmatch(text):
        return float(Decimal(percentile[1] or percentile[2]) / 100)
    if not _SHARE.fullmatch(text):
        raise UsageError(
            f"{option}: got {text!r}, expected a quantile such as 0.999, p99.9 or 99.9%"
        )
    return float(text)


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
