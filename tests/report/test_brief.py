"""Numbers of a page: few digits, and all of them on hover."""

from __future__ import annotations

import re

import pytest

from tailscope.report.brief import brief


def shown(text: str) -> str:
    """What a reader sees."""
    return re.sub(r"<[^>]*>", "", brief(text))


@pytest.mark.parametrize(
    ("exact", "short"),
    [
        ("39.170815 ms", "39.17 ms"),
        ("3.137 µs", "3.137 µs"),
        ("319.953 µs", "320.0 µs"),
        ("999.960 µs", "1.000 ms"),
        ("999.994 µs", "1.000 ms"),
        ("29.976401476 s", "29.98 s"),
        ("821 ns", "821 ns"),
        ("0.999 µs", "0.999 µs"),
        ("+14.250 µs", "+14.25 µs"),
        ("-2.518062 ms", "-2.518 ms"),
        ("999.960 µs to 1.000001 ms", "1.000 to 1.000 ms"),
        ("+14.188 µs to +14.303 µs", "+14.19 to +14.30 µs"),
        ("2.518 µs to 13.412345 ms", "2.518 µs to 13.41 ms"),
        ("in run-1.234567 seconds, v1.23456", "in run-1.234567 seconds, v1.23456"),
    ],
)
def test_durations_have_four_digits(exact: str, short: str) -> None:
    assert shown(exact) == short
    assert exact in (short, *re.findall(r'title="([^"]*)"', brief(exact)))


def test_what_stalls_have_changed_has_one_mark() -> None:
    text = "median 2.61 to 2.62 ms (instrument), p99 3 ms (instrument)"
    assert shown(text) == "median 2.61 to 2.62 ms&nbsp;~, p99 3 ms&nbsp;~"


def test_names_stay_text() -> None:
    assert shown("1.23456 ms") == "1.235 ms"
    hostile = '<b title="1.23456 ms">\u202e'
    assert "<b" not in brief(hostile) and "\u202e" not in brief(hostile)
    assert brief(hostile).count("<span") == brief(hostile).count("</span>") == 1
