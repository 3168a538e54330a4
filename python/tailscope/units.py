"""Durations, rates, quantiles and counts: read as people write them, written for people to read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

QUANTILES = {
    "p50": "p50",
    "p90": "p90",
    "p99": "p99",
    "p999": "p99.9",
    "p9999": "p99.99",
    "p99999": "p99.999",
    "p999999": "p99.9999",
}
"""Quantiles of the summary: as names of figures have them, and as people write them."""

_IMIX = "64:7,594:4,1518:1"
_MIX = re.compile(r"\d+:[1-9]\d*(,\d+:[1-9]\d*)*", re.ASCII)
_SHARE = re.compile(r"\d*\.?\d+", re.ASCII)
_PERCENTILE = re.compile(r"p(\d*\.?\d+)|(\d*\.?\d+)%", re.ASCII)
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_SHOWN_DIGITS = 4
"""Digits that are told of what the instrument may have changed."""
_UNITS = ((1_000_000_000, 9, "s"), (1_000_000, 6, "ms"), (1_000, 3, "µs"))


def duration_text(ns: float) -> str:
    """Write a duration in its natural unit without losing a nanosecond.

    Examples
    --------
    >>> duration_text(3137)
    '3.137 µs'
    >>> duration_text(-2518062)
    '-2.518062 ms'
    """
    value = round(ns)
    sign, value = ("-", -value) if value < 0 else ("", value)
    for size, digits, unit in _UNITS:
        if value >= size:
            return f"{sign}{value // size}.{value % size:0{digits}d} {unit}"
    return f"{sign}{value} ns"


def between_text(low_ns: float, high_ns: float) -> str | None:
    """Write two durations in the unit of the longer one, to its fourth digit.

    Examples
    --------
    >>> between_text(2_991, 16_042)
    '2.99 to 16.04 µs'
    >>> between_text(16_040, 16_042) is None
    True
    """
    size, unit = next(
        ((size, unit) for size, _, unit in _UNITS if round(high_ns) >= size), (1, "ns")
    )
    digits = _SHOWN_DIGITS - len(str(round(high_ns) // size)) if size > 1 else 0
    ends = [f"{end / size:.{max(0, digits)}f}" for end in (low_ns, high_ns)]
    return None if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} {unit}"


def long_text(seconds: float) -> str:
    """Write how long something lasts, roughly.

    Examples
    --------
    >>> long_text(210)
    '3.5 min'
    """
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def count_text(count: int) -> str:
    """Write a count with separated thousands.

    Examples
    --------
    >>> count_text(289992)
    '289,992'
    """
    return f"{count:,}"


def share_text(share: float) -> str:
    """Write a share in percent, with two digits.

    Examples
    --------
    >>> share_text(0.0012), share_text(0.554), share_text(0.999)
    ('0.12 %', '55 %', '100 %')
    """
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun, in the plural but for one.

    Examples
    --------
    >>> counted(1, "packet"), counted(12345, "packet")
    ('1 packet', '12,345 packets')
    """
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"


def did_you_mean(got: str, known: Iterable[str]) -> str | None:
    """Ask which of the known names was meant, if one is like what was given.

    Examples
    --------
    >>> did_you_mean("l2fw", ["l2fwd", "l3fwd", "loop"])
    'did you mean l2fwd or l3fwd?'
    """
    from difflib import get_close_matches

    near = get_close_matches(got, list(known), 2)
    return f"did you mean {' or '.join(near)}?" if near else None


def percentile_name(q: float) -> str:
    """Write a quantile as the percentile that people speak of.

    Examples
    --------
    >>> percentile_name(0.99999)
    'p99.999'
    """
    return f"p{q * 100:.10g}"


def quantity_text(value: float, unit: str) -> str:
    """Write a quantity with four digits, and the prefix of its unit that suits it.

    Examples
    --------
    >>> quantity_text(0.0045, "J")
    '4.500 mJ'
    >>> quantity_text(-14, "W")
    '-14.00 W'
    """
    size, prefix = next((each for each in _PREFIXES if abs(value) >= each[0]), _PREFIXES[-1])
    scaled = value / size
    digits = max(0, 3 - len(str(int(abs(scaled)))) + 1)
    return f"{scaled:.{digits}f} {prefix}{unit}"


def shortened(text: str, most: int) -> str:
    """Cut a text that is longer than so many characters, and mark the cut.

    Examples
    --------
    >>> shortened("a name that does not end", 9)
    'a name...'
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def printable(text: str) -> str:
    r"""Make a name from outside safe to show: what has no shape of its own is escaped.

    File names may hold terminal escapes, text direction marks and bytes that are no text.

    Examples
    --------
    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def typed_duration(ns: int) -> str:
    """Write a duration as it would be typed.

    Examples
    --------
    >>> typed_duration(1_500_000)
    '1500us'
    """
    for size, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if ns % size == 0:
            return f"{ns // size}{unit}"
    return f"{ns}ns"


def duration_ns(value: int | str, name: str) -> int:
    """Read a duration."""
    if isinstance(value, int):
        if value < 0:
            raise UsageError(f"{name}: got {value} ns, expected 0 or more", code="duration")
        return value
    import tailscope._engine as _engine

    try:
        return int(_engine.parse_duration_ns(value))
    except ValueError as error:
        raise UsageError(f"{name}: {error}", code="duration") from None


def positive_duration_ns(text: str, option: str) -> int:
    """Read a duration of at least 1 ns, such as ``5ms``."""
    found = duration_ns(text, option)
    if found == 0:
        raise UsageError(f"{option}: expected at least 1ns, got {text}", code="duration")
    return found


def quantile_of(text: str, option: str) -> float:
    """Read a quantile: ``0.999``, ``p99.9`` and ``99.9%`` are the same.

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
            f"{option}: got {text!r}, expected a quantile such as 0.999, p99.9 or 99.9%",
            code="quantile",
        )
    return float(text)


def rate_pps(text: str, option: str) -> int:
    """Read a packet rate, such as ``10k``."""
    import tailscope._engine as _engine

    try:
        return int(_engine.parse_rate_pps(str(text)))
    except ValueError as error:
        raise UsageError(f"{option}: {error}", code="rate") from None


def value_label(value: object) -> str:
    """Return the name of a value of a variable."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def frame_size(text: str | int, option: str) -> int | str:
    """Read the size of frames in bytes, or a mix of sizes.

    Examples
    --------
    >>> frame_size("128", "--size"), frame_size("imix", "--size")
    (128, '64:7,594:4,1518:1')
    """
    if str(text).isdecimal():
        return int(text)
    mix = _IMIX if text == "imix" else str(text)
    if not _MIX.fullmatch(mix):
        raise UsageError(
            f"{option}: got {text!r}, expected bytes, imix, or a mix such as {_IMIX}",
            code="frame-size",
        )
    parts = mix_parts(mix)
    return parts[0][0] if len(parts) == 1 else mix


def mix_parts(mix: str) -> list[tuple[int, int]]:
    """Sizes and weights of a mix, as `frame_size` returns it.

    Examples
    --------
    >>> mix_parts("64:7,594:4")
    [(64, 7), (594, 4)]
    """
    parts = (part.split(":") for part in mix.split(","))
    return [(int(size), int(weight)) for size, weight in parts]
