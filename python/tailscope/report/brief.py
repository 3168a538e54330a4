"""Texts of a page with the digits that people need: all of them show where one points."""

from __future__ import annotations

import re

from markupsafe import Markup

from tailscope.units import printable, rounded

_NUMBER = r"[-+±]?\d[\d,]*(?:\.\d+)?"
_UNIT = r" ?(?:(?:s|ms|µs|packets/s)\b|%)"
_QUANTITY = re.compile(rf"(?<![\w.,])(?:{_NUMBER}(?:{_UNIT})? (?:to|and) )?{_NUMBER}{_UNIT}")
"""A duration, a share or a rate, or both ends of one."""
_TAINTED = re.compile(r" \((?:instrument|tainted)\)")
TAINT = Markup('<span class="taint" title="changed by stalls of the instrument">~</span>')
"""The mark of a figure that stalls of the instrument may have changed."""


def brief(text: str) -> Markup:
    """Escape a text, round its quantities to four digits, and mark what is tainted.

    >>> print(brief("p99.9 <2.271889 ms to 3.022777 ms>"))
    p99.9 &lt;<span title="2.271889 ms to 3.022777 ms">2.272 to 3.023 ms</span>&gt;
    """
    first, *others = (_rounded(part) for part in _TAINTED.split(printable(text)))
    return first + Markup().join(Markup("&nbsp;") + TAINT + part for part in others)


def _rounded(text: str) -> Markup:
    made, at = Markup(), 0
    for found in _QUANTITY.finditer(text):
        shown = rounded(found[0])
        is_same = shown == found[0]
        made += text[at : found.start()]
        made += shown if is_same else Markup('<span title="{}">{}</span>').format(found[0], shown)
        at = found.end()
    return made + text[at:]
