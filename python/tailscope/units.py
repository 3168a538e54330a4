"""Durations, rates, quantiles and counts: read as people write them, written for people to read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

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
_PERCENTILE = re.compile(r"p(\d*\.?\d+)|(\d*\.?\d+) ?%", re.ASCII)
_BIT_RATE = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?)(?:bps|bit/s|b/s)", re.ASCII)
_BITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BETWEEN_FRAMES_BYTES = 20
"""Preamble of a frame (8 bytes) and gap before the next one (12), as RFC 2544 counts them."""
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_SHOWN_DIGITS = 4
_SYNONYMS = {"docker": "podman", "kvm": "vm", "qemu": "vm", "virtio": "vhost"}
"""Names that people know, and the ones that stand for them here."""
"""Digits that are told of what the instrument may have changed."""
_UNITS = ((1_000_000_000, 9, "s"), (1_000_000, 6, "ms"), (1_000, 3, "µs"))
_NANOSECONDS = {"s": 1e9, "ms": 1e6, "µs": 1e3}
_DURATION = re.compile(r"(?<![\w.,])([-+±]?)(\d[\d,]*\.\d+) (s|ms|µs)\b")
"""A duration with its sign, behind the point more digits than people need."""
_SAME_UNIT = re.compile(r"(?<![\w.])([-+]?[\d,.]+) (s|ms|µs|ns) to ([-+]?[\d,.]+) \2\b")
"""Both ends of an interval, in one unit."""
_BOTH = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) (and|to) (\d[\d,]*(?:\.\d+)?) (s|ms|µs)\b")
"""Two times with one unit behind the second."""
_OTHER = re.compile(r"(?<![\w.])(\d[\d,]*\.\d+)(?= ?%| packets/s)")
"""A share, or a rate."""


def duration_text(ns: float) -> str:
    """Write a duration in its natural unit without losing a nanosecond.

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


def short_duration_text(ns: float) -> str:
    """Write a duration in its natural unit with four digits.

    >>> short_duration_text(39_170_815), short_duration_text(999_960), short_duration_text(821)
    ('39.17 ms', '1.000 ms', '821 ns')
    """
    size = abs(ns)
    if round(size) < _NANOSECONDS["µs"]:
        return f"{round(ns)} ns"
    # What rounds to a thousand of a unit is one of the next.
    unit = next(unit for unit, one in _NANOSECONDS.items() if float(f"{size:.4g}") >= one)
    return f"{_four_digits(ns / _NANOSECONDS[unit])} {unit}"


def tick_text(us: float, longest_us: float) -> str:
    """Write a duration beside an axis, in the unit that suits the longest one there.

    Examples
    --------
    >>> tick_text(2_500, 10_000), tick_text(-0.5, -0.5), tick_text(0, 1)
    ('2.5 ms', '-500 ns', '0')
    """
    # A power of ten that was calculated may be a little less.
    longest_ns = 1.0001e3 * abs(longest_us)
    unit = next((unit for unit, size in _NANOSECONDS.items() if longest_ns >= size), "ns")
    shown = float(f"{1e3 * us / _NANOSECONDS.get(unit, 1.0):.4g}")
    return f"{shown:,.10g} {unit}" if us else "0"


def rounded(text: str) -> str:
    """Round the durations and shares of a text to four digits, for people.

    >>> rounded("p99.9 2.622766 ms (2.271889 ms to 3.022777 ms), 99.12345 % in run-1.23456")
    'p99.9 2.623 ms (2.272 to 3.023 ms), 99.12 % in run-1.23456'
    >>> rounded("between 4884.236 and 7745.881 µs")
    'between 4.884 and 7.746 ms'
    """

    def number(found: re.Match[str]) -> str:
        return found[0] if _is_short(found[1]) else _four_digits(_number(found[1]))

    def duration(found: re.Match[str]) -> str:
        sign, digits, unit = found.groups()
        if _is_short(digits):
            return found[0]
        return f"{sign}{short_duration_text(_number(digits) * _NANOSECONDS[unit])}"

    def both(found: re.Match[str]) -> str:
        low, word, high, unit = found.groups()
        if _is_short(low) and _is_short(high):
            return found[0]
        ends = [short_duration_text(_number(end) * _NANOSECONDS[unit]) for end in (low, high)]
        (number, unit), other = ends[0].split(" "), ends[1].split(" ")[1]
        return f"{number if unit == other else ends[0]} {word} {ends[1]}"

    text = _BOTH.sub(both, _OTHER.sub(number, text))
    return _SAME_UNIT.sub(r"\1 to \3 \2", _DURATION.sub(duration, text))


def _number(digits: str) -> float:
    return float(digits.replace(",", ""))


def _is_short(digits: str) -> bool:
    return len(re.sub("[.,]", "", digits).lstrip("0")) <= _SHOWN_DIGITS


def _four_digits(value: float) -> str:
    value = float(f"{value:.{_SHOWN_DIGITS}g}")
    exponent = int(f"{value:e}".partition("e")[2])
    return f"{value:,.{max(0, _SHOWN_DIGITS - 1 - exponent)}f}"


def long_text(seconds: float) -> str:
    """Write how long something lasts, roughly.

    >>> long_text(210)
    '3.5 min'
    """
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def count_text(count: int) -> str:
    """Write a count with separated thousands.

    >>> count_text(289992)
    '289,992'
    """
    return f"{count:,}"


def share_text(share: float) -> str:
    """Write a share in percent, with two digits.

    >>> share_text(0.0012), share_text(0.554), share_text(0.999)
    ('0.12 %', '55 %', '100 %')
    """
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun, in the plural but for one.

    >>> counted(1, "packet"), counted(12345, "packet")
    ('1 packet', '12,345 packets')
    """
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"


def did_you_mean(got: str, known: Iterable[str]) -> str | None:
    """Ask which of the known names was meant, if one is like what was given.

    >>> did_you_mean("l2fw", ["l2fwd", "l3fwd", "loop"])
    'did you mean l2fwd or l3fwd?'
    """
    from difflib import get_close_matches

    near = get_close_matches(got, list(known), 2)
    return f"did you mean {' or '.join(near)}?" if near else None


def refuse_unknown(
    option: str, got: str, known: Collection[str], code: str, *, of: str = "", more: str = ""
) -> None:
    """Refuse a value that is none of the known ones, and ask which was meant.

    Examples
    --------
    >>> refuse_unknown("--dut", "l2fw", ["l2fwd", "loop"], "unknown-dut")
    Traceback (most recent call last):
    tailscope.exceptions.UsageError: --dut: got 'l2fw', expected l2fwd or loop
    hint: did you mean l2fwd?
    """
    if got in known:
        return
    names = " or ".join(known) if len(known) == 2 else f"one of {', '.join(known) or 'none'}"
    expected = f"one of {of}: {', '.join(known) or 'none'}" if of else names
    meant = _SYNONYMS.get(got)
    hint = did_you_mean(got, known) if meant not in known else f"did you mean {meant}?"
    raise UsageError(f"{option}: got {got!r}, expected {expected}{more}", code=code, hint=hint)


def percentile_name(q: float) -> str:
    """Write a quantile as the percentile that people speak of.

    >>> percentile_name(0.99999)
    'p99.999'
    """
    return f"p{q * 100:.10g}"


def quantity_text(value: float, unit: str) -> str:
    """Write a quantity with four digits, and the prefix of its unit that suits it.

    >>> quantity_text(0.0045, "J")
    '4.500 mJ'
    >>> quantity_text(-14, "W")
    '-14.00 W'
    """
    size, prefix = next((each for each in _PREFIXES if abs(value) >= each[0]), _PREFIXES[-1])
    return f"{_four_digits(value / size)} {prefix}{unit}"


def shortened(text: str, most: int) -> str:
    """Cut a text that is longer than so many characters, and mark the cut.

    >>> shortened("a name that does not end", 9)
    'a name...'
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def printable(text: str) -> str:
    r"""Make a name from outside safe to show: what has no shape of its own is escaped.

    File names may hold terminal escapes, text direction marks and bytes that are no text.

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
    """Read a quantile: ``0.999``, ``p99.9``, ``99.9%`` and ``99.9`` are the same.

    >>> quantile_of("p99.9", "--quantile"), quantile_of("99.9", "--quantile")
    (0.999, 0.999)
    """
    from decimal import Decimal

    if percentile := _PERCENTILE.fullmatch(text):
        return float(Decimal(percentile[1] or percentile[2]) / 100)
    if not _SHARE.fullmatch(text) or Decimal(text) > 100:
        raise UsageError(
            f"{option}: got {text!r}, expected a quantile such as 0.999, p99.9, 99.9% or 99.9",
            code="quantile",
        )
    return float(text if Decimal(text) <= 1 else Decimal(text) / 100)


def rate_pps(text: str | int, option: str, *, frame_bytes: float | None = None) -> int:
    """Read a packet rate, such as ``10k`` or ``1Mpps``, or bits per second of frames of a size.

    >>> rate_pps("1Gbps", "--rate", frame_bytes=64)
    1488095
    """
    from fractions import Fraction

    import tailscope._engine as _engine

    if bit_rate := _BIT_RATE.fullmatch(str(text)):
        if frame_bytes is None:
            raise UsageError(
                f"{option}: got {text!r}, expected packets per second such as 10k or 1Mpps: frames"
                " have no size here by which bits are counted",
                code="rate",
            )
        bits = Fraction(bit_rate[1]) * _BITS[bit_rate[2]]
        return int(bits / 8 / Fraction(frame_bytes + _BETWEEN_FRAMES_BYTES))
    try:
        return int(_engine.parse_rate_pps(str(text)))
    except ValueError as error:
        raise UsageError(f"{option}: {error}", code="rate") from None


def is_bit_rate(text: object) -> bool:
    """Return True for a rate in bits per second, such as ``1Gbps``."""
    return _BIT_RATE.fullmatch(str(text)) is not None


def bit_rate_text(text: str, rate_pps: int, frame_bytes: float) -> str:
    """Say which packet rate a rate in bits per second is.

    >>> bit_rate_text("1Gbps", 1_488_095, 64)
    '1Gbps is 1,488,095 packets/s: frames of 64 bytes, with 20 of preamble and gap each (RFC 2544)'
    """
    return (
        f"{text} is {count_text(rate_pps)} packets/s: frames of {frame_bytes:g} bytes, with"
        f" {_BETWEEN_FRAMES_BYTES} of preamble and gap each (RFC 2544)"
    )


def mean_frame_bytes(size: int | str) -> float:
    """Return the mean size of frames, as `frame_size` returns them.

    >>> mean_frame_bytes("64:1,1518:1")
    791.0
    """
    if isinstance(size, int):
        return float(size)
    parts = mix_parts(size)
    return sum(size * weight for size, weight in parts) / sum(weight for _, weight in parts)


def value_label(value: object) -> str:
    """Return the name of a value of a variable."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def frame_size(text: str | int, option: str) -> int | str:
    """Read the size of frames in bytes, or a mix of sizes.

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


def typed_size(size: int | str) -> str:
    """Write a size or a mix of sizes as it would be typed.

    >>> typed_size("64:7,594:4,1518:1")
    'imix'
    """
    return "imix" if size == _IMIX else str(size)


def mix_parts(mix: str) -> list[tuple[int, int]]:
    """Sizes and weights of a mix, as `frame_size` returns it.

    >>> mix_parts("64:7,594:4")
    [(64, 7), (594, 4)]
    """
    parts = (part.split(":") for part in mix.split(","))
    return [(int(size), int(weight)) for size, weight in parts]
