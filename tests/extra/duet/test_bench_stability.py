"""When `bench.stability` calls an environment stable."""

from __future__ import annotations

import pytest
from bench.stability import (
    is_stable_by_calibrate,
    is_stable_by_search,
    is_stable_by_trials,
)


@pytest.mark.parametrize(
    ("low", "high", "stable"),
    [
        ([0.0] * 10, [0.3] * 10, True),
        ([0.004] * 10, [0.0] * 10, True),
        ([0.02] * 10, [0.3] * 10, False),
        ([0.0] * 9 + [0.006], [0.0] * 10, False),
        ([0.0] * 10, [0.0] * 5 + [0.02] * 5, True),
    ],
)
def test_losses_at_low_loads_decide(low: list[float], high: list[float], stable: bool) -> None:
    assert is_stable_by_trials({0.2: [0.0] * 10, 0.6: low, 0.7: high}) is stable


@pytest.mark.parametrize(
    ("rates", "limited_by", "stable"),
    [
        ([47_000, 48_000, 50_000], "back-pressure", True),
        ([40_000, 48_000, 50_000], "back-pressure", False),
        ([47_000, 48_000, 50_000], "instrument", False),
        ([47_000, None, 50_000], "loss", False),
        ([47_000, 48_000], "loss", False),
    ],
)
def test_searches_have_to_agree(rates: list[int | None], limited_by: str, stable: bool) -> None:
    found = [
        {"goals": [{"goal": "PDR", "rate_pps": rate, "limited_by": limited_by}]} for rate in rates
    ]
    assert is_stable_by_search(found) is stable


def test_a_floor_has_to_be_believed() -> None:
    believed = (0.9999, 0.999, 0.99, None)
    judged = [is_stable_by_calibrate({"believed_up_to": each}) for each in believed]
    assert judged == [True, True, False, False]
