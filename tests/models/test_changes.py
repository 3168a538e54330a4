"""Change points: found where they are, and not where there are none."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tailscope.exceptions import ModelError
from tailscope.models.changes import change_points, fewest_values

SERIES = 40
MOST_FALSE = 7
"""Of 40 series at 5 %: more would come by chance once in a thousand times."""


def stationary(seed: int, n: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0, 0.3, n)


def test_values_in_any_order_rarely_show_a_change() -> None:
    false = sum(bool(change_points(stationary(seed), 0.05)) for seed in range(SERIES))
    assert 0 < false <= MOST_FALSE


def test_a_step_is_found_where_it_is() -> None:
    values = np.random.default_rng(1).normal(100, 2, 24)
    values[9:] += 10
    values[18:] -= 30
    found = change_points(values, 0.05)
    assert [each.at for each in found] == [9, 18]
    assert all(0 < each.p <= 0.05 for each in found)
    assert change_points(values, 0.05) == found


def test_a_single_outlier_is_no_change() -> None:
    values = np.random.default_rng(2).normal(100, 2, 24)
    values[23] = 1000
    assert change_points(values, 0.05) == []


def test_what_does_not_vary_does_not_change() -> None:
    assert change_points(np.zeros(50), 0.05) == []


@pytest.mark.parametrize("error", [0.05, 0.01])
def test_the_clearest_step_of_the_fewest_values_is_found(error: float) -> None:
    fewest = fewest_values(error)
    values = np.arange(fewest) * 1e-3
    values[fewest // 2 :] += 1
    assert [each.at for each in change_points(values, error)] == [fewest // 2]
    assert change_points(values[1:], error) == []


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "otava.change_point_divisive.calculator", None)
    with pytest.raises(ModelError, match="apache-otava, which cannot be imported") as raised:
        change_points(stationary(1), 0.05)
    assert "pip install --no-deps apache-otava" in str(raised.value.hint)
