"""Values as people write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

from tailscope.exceptions import UsageError
from tailscope.units import (
    count_text,
    duration_ns,
    duration_text,
    frame_size,
    long_text,
    percentile_name,
    quantile_of,
    rate_pps,
    share_text,
    typed_duration,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("0.999", ".999", "p99.9", "99.9%", "99.9 %", "99.9", "p99.900"), 0.999),
        (("0.99999", "p99.999", "99.999%", "99.999"), 0.99999),
        (("0.5", "p50", "50%", "50"), 0.5),
        (("0", "p0", "0%"), 0.0),
        (("1", "p100", "100%", "100"), 1.0),
    ],
)
def test_quantiles(texts: tuple[str, ...], expected: float) -> None:
    assert {quantile_of(text, "--quantile") for text in texts} == {expected}


@pytest.mark.parametrize(
    "text", ["", "p", "%", "p99.9x", "p99.9%", "nan", "-0.5", "1e-3", "٠", "100.1"]
)
def test_what_is_no_quantile(text: str) -> None:
    with raises(UsageError, "quantile") as refused:
        quantile_of(text, "--quantile")
    assert str(refused.value).startswith(f"--quantile: got {text!r}, ")


@pytest.mark.parametrize(
    ("texts", "expected_ns"),
    [
        (("500us", "500usec", "500 µs", "500 \u03bcs", "0.5 ms", "0.5msec"), 500_000),
        (("500,000 ns",), 500_000),
        (("10s", "10 sec", "10 seconds", "10,000ms"), 10_000_000_000),
        (("2min", "2 minutes", "120s"), 120_000_000_000),
        (("1.5 days", "36h", "36 hours"), 129_600_000_000_000),
    ],
)
def test_durations(texts: tuple[str, ...], expected_ns: int) -> None:
    assert {duration_ns(text, "--duration") for text in texts} == {expected_ns}


@pytest.mark.parametrize(
    ("texts", "expected_pps"),
    [
        (("10k", "10kpps", "10 kpps", "10000", "10,000 packets/s"), 10_000),
        (("1M", "1Mpps", "1,000,000 pps"), 1_000_000),
        (("1Gbps", "1 Gbps", "1000 Mbit/s", "1000Mb/s"), 1_488_095),
        (("10Gbps",), 14_880_952),
    ],
)
def test_rates(texts: tuple[str, ...], expected_pps: int) -> None:
    """Bits are those of frames of 64 bytes: the maximum rates of RFC 2544's appendix B."""
    assert {rate_pps(text, "--rate", frame_bytes=64) for text in texts} == {expected_pps}


def test_bits_need_a_size_of_frames() -> None:
    assert rate_pps("1Gbps", "--rate", frame_bytes=1518) == 81_274
    with raises(UsageError, "rate"):
        rate_pps("1Gbps", "--rate")


@pytest.mark.parametrize(
    ("read", "text"),
    [(rate_pps, "fast"), (duration_ns, "soon"), (quantile_of, "most"), (frame_size, "big")],
)
def test_an_error_has_an_example_that_is_read(read: Callable[..., object], text: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(text, "--option")
    example = re.split(r"\blike |such as ", str(refused.value))[-1].split(", ")[0].split(" or ")[0]
    read(example, "--option")


NANOSECONDS = st.integers(0, 2**63)


@given(NANOSECONDS)
def test_a_printed_duration_is_read_back(ns: int) -> None:
    assert duration_ns(duration_text(ns), "--x") == ns
    assert duration_ns(typed_duration(ns), "--x") == ns


@given(st.floats(0, 1e9))
def test_a_rough_duration_is_read_back(seconds: float) -> None:
    read_s = duration_ns(long_text(seconds), "--x") / 1e9
    assert read_s == pytest.approx(seconds, rel=0.05, abs=0.051)


@given(st.integers(0, 2**63))
def test_a_printed_rate_is_read_back(pps: int) -> None:
    for text in (str(pps), count_text(pps), f"{count_text(pps)} packets/s"):
        assert rate_pps(text, "--x") == pps


@given(st.integers(0, 10**6))
def test_a_printed_percentile_is_read_back(millionths: int) -> None:
    q = millionths / 10**6
    assert quantile_of(percentile_name(q), "--x") == pytest.approx(q, abs=1e-12)


@given(st.floats(0, 1))
def test_a_printed_share_is_read_back(share: float) -> None:
    if "e" not in (text := share_text(share)):
        assert quantile_of(text, "--x") == pytest.approx(share, rel=0.051, abs=0.0051)
