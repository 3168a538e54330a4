"""Texts of a page with the digits that people need: all of them show where one points."""

from __future__ import annotations

import re

from markupsafe import Markup

from tailscope.units import printable, short_duration_text

_UNITS = {"µs": 1e3, "ms": 1e6, "s": 1e9}
_DIGITS = 4
_DURATION = r"[-+±]?\d[\d,]*\.\d+ (?:s|ms|µs)\b"
_SHORTENED = re.compile(rf"(?<![\w.,])(?:({_DURATION}) to ({_DURATION})|({_DURATION}))")
_TAINTED = re.compile(r" \((?:instrument|tainted)\)")
TAINT = Markup('<span class="taint" title="changed by stalls of the instrument">~</span>')
"""The mark of a figure that stalls of the instrument may have changed."""


def brief(text: str) -> Markup:
    """Escape a text, round its durations to four digits, and mark what is tainted.

    >>> print(brief("p99.9 <2.271889 ms to 3.022777 ms>"))
    p99.9 &lt;<span title="2.271889 ms to 3.022777 ms">2.272 to 3.023 ms</span>&gt;
    """
    first, *others = (_rounded(part) for part in _TAINTED.split(printable(text)))
    return first + Markup().join(Markup("&nbsp;") + TAINT + part for part in others)


def _rounded(text: str) -> Markup:
    made, at = Markup(), 0
    for found in _SHORTENED.finditer(text):
        low, high, alone = found.groups()
        shown = _short(alone) if alone else _between(_short(low), _short(high))
        made += text[at : found.start()]
        is_same = shown == found[0]
        made += shown if is_same else Markup('<span title="{}">{}</span>').format(found[0], shown)
        at = found.end()
    return made + text[at:]


def _between(low: str, high: str) -> str:
    (number, unit), other = low.split(" "), high.split(" ")[1]
    return f"{number} to {high}" if unit == other else f"{low} to {high}"


def _short(text: str) -> str:
    """Round a duration, in the unit that suits what is left of it."""
    number, unit = text.replace(",", "").split(" ")
    digits = number.lstrip("+-±")
    if len(digits.replace(".", "").lstrip("0")) <= _DIGITS:
        return text
    return number.removesuffix(digits) + short_duration_text(float(digits) * _UNITS[unit])
