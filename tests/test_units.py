"""Values as people write them."""

from __future__ import annotations

import pytest
from errors import raises

from tailscope.exceptions import UsageError
from tailscope.units import quantile_of


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("0.999", ".999", "p99.9", "99.9%", "p99.900"), 0.999),
        (("0.99999", "p99.999", "99.999%"), 0.99999),
        (("0.5", "p50", "50%"), 0.5),
        (("0", "p0", "0%"), 0.0),
        (("1", "p100", "100%"), 1.0),
    ],
)
def test_quantiles(texts: tuple[str, ...], expected: float) -> None:
    assert {quantile_of(text, "--quantile") for text in texts} == {expected}


@pytest.mark.parametrize("text", ["", "p", "%", "p99.9x", "p99.9%", "nan", "-0.5", "1e-3", "٠"])
def test_what_is_no_quantile(text: str) -> None:
    with raises(UsageError, "quantile") as refused:
        quantile_of(text, "--quantile")
    assert str(refused.value).startswith(f"--quantile: got {text!r}, ")
