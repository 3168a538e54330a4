"""Change points: found where they are, and not where there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from tailscope.cli import main
from tailscope.extra.trend.points import change_points, fewest_values

if TYPE_CHECKING:
    from pathlib import Path

SERIES = 20
MOST_FALSE = 5
"""Most false alarms in 20 series at 5 %: more come by chance once in a thousand times."""


def stationary(seed: int, n: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0, 0.3, n)


def test_values_in_any_order_rarely_show_a_change() -> None:
    false = sum(bool(change_points(stationary(seed), 0.05)) for seed in range(SERIES))
    assert 0 < false <= MOST_FALSE


def test_a_step_is_found_where_it_is() -> None:
    values = np.random.default_rng(1).normal(100, 2, 24)
    values[9:] += 10
    values[18:] -= 30
    points = change_points(values, 0.05)
    assert [each.at for each in points] == [9, 18]
    assert all(0 < each.p <= 0.05 for each in points)
    assert change_points(values, 0.05) == points


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


def p99_of_blocks(data: Path, tmp_path: Path) -> np.ndarray:
    """The series are figures of each second of a real capture."""
    folder = data / "noms2020" / "snort-filter" / "hw"
    pre, post = (next(folder.glob(f"*-{side}-*.pcap.zst")) for side in ("pre", "post"))
    out = tmp_path / "run"
    assert main(["analyze", str(pre), str(post), "--trim", "1s", "--out", str(out)]) == 0
    latency_ns = pq.read_table(out / "latency.parquet").column("latency_ns").to_numpy()
    blocks = latency_ns[: len(latency_ns) // 10_000 * 10_000].reshape(-1, 10_000)
    return np.sort(blocks, axis=1)[:, 9_899].astype(np.float64)


@pytest.mark.long
def test_the_rates_of_the_page(data: Path, tmp_path: Path) -> None:
    """The trend page (`docs/extra/trend`) has these, and those of other captures."""
    chance = np.random.default_rng(7)
    pool = p99_of_blocks(data, tmp_path)
    false, points = 0, 0
    for _ in range(100):
        values = chance.choice(pool, 30)
        false += bool(change_points(values, 0.05))
        values[20:] *= 1.1
        points += any(abs(each.at - 20) <= 2 for each in change_points(values, 0.05))
    assert false <= 12
    assert points >= 97
