"""What figures and reports show of a kept model of the tail: against files looked at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import convert, structs
from whole_run import PACKETS, whole_run

from tailscope.extra.tail import TAIL
from tailscope.extra.tail.records import TailRecord
from tailscope.report.figures import pictures
from tailscope.report.material import Material
from tailscope.report.picture import table_of
from tailscope.store.kept import Conclusions
from tailscope.words.figures import conclusion_doubts, conclusion_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.report.picture import Picture

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.csv"))

_TESTED = {"statistic": 0.0, "critical": 0.0, "p_value": 0.5, "lags": 1}
_TAIL = {
    "tainted": 0,
    "duration_s": 6.0,
    "split": 1.0,
    "fit_packets": PACKETS,
    "threshold": 0.9,
    "threshold_lowered_from": None,
    "run_length_ns": 1_000_000,
    "excesses": 6,
    "bursts": 6,
    "extremal_index": 1.0,
    "extremal_index_intervals": None,
    **{f"{name}{end}": 1.0 for name in ("xi", "sigma_ns") for end in ("", "_ci_low", "_ci_high")},
    "return_level_ns_most_likely": 50_600.0,
    "level": 0.95,
    "method": "integrated",
    "intervals": {},
    "bounded": False,
    "js_divergence_bits": 0.0,
    "exceedances_packets": None,
    "exceedances_bursts": None,
    "exceedances_p_value": None,
    "stationary": True,
    "adf": _TESTED,
    "kpss": _TESTED,
    "candidates": [],
    "horizon": None,
    "count": PACKETS,
    "refused": None,
    "limit_ns": None,
    "return_packets": 600.0,
    "return_level_ns": 50_600.0,
    "return_level_ns_ci_low": 49_000.0,
    "return_level_ns_ci_high": 60_600.0,
    "latency_ns_max": 51_560,
    "threshold_ns": 40_000,
    "quantile_pairs": [
        {"law_ns": 41_000.0, "measured_ns": 40_500.0},
        {"law_ns": 51_000.0, "measured_ns": 51_560.0},
    ],
    "levels_ahead": [
        {
            "packets": packets,
            "return_level_ns": 50_000.0 + packets,
            "return_level_ns_ci_low": 49_000.0,
            "return_level_ns_ci_high": 60_000.0 + packets,
        }
        for packets in (60.0, 600.0)
    ],
    "stability": [
        {
            "threshold_ns": 40_000,
            "bursts": 6,
            "sigma_star_ns": [1.0, 0.0, 2.0],
            "xi": [-0.1, -0.2, 0.0],
            "mean_excess_ns": [5_000.0, 4_000.0, 6_000.0],
        }
    ],
}


@pytest.fixture(scope="module")
def record() -> TailRecord:
    return convert(_TAIL, TailRecord)


@pytest.fixture(scope="module")
def drawn(
    tailscope: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, record: TailRecord
) -> dict[str, Picture]:
    run = whole_run(tailscope, tmp_path_factory.mktemp("whole"))
    run = replace(run, kept=Conclusions({TAIL: record, **run.kept}))
    return {picture.name: picture for picture in pictures([Material(run)])}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_figures_show_what_they_did(drawn: dict[str, Picture], golden: Path) -> None:
    """To renew one that was meant to change, write `table_of` into its file."""
    assert table_of(drawn[golden.stem]).splitlines() == golden.read_text().splitlines()


def test_the_tail_is_drawn_behind_the_causes_and_before_the_highest_rate(
    drawn: dict[str, Picture],
) -> None:
    names = [*drawn]
    tail = ["tail-levels", "tail-quantiles", "tail-shape", "tail-mean-excess"]
    at = names.index(tail[0])
    assert names[at : at + 5] == [*tail, "overload"] and "interrupt-rates" in names[:at]
    predicted = [name for name in names if drawn[name].is_predicted]
    assert predicted == [*tail, "overload"]


def test_a_report_has_the_return_level_and_a_refusal(record: TailRecord) -> None:
    kept = Conclusions({TAIL: structs.replace(record, refused="it drifts")})
    rows = [(row.label, row.value, row.interval) for row in conclusion_rows(kept)]
    assert rows == [
        ("largest of the next 600 packets", "50.600 µs", "49.000 µs to 60.600 µs"),
    ]
    assert [*conclusion_doubts(kept)] == ["no return level of the tail: it drifts"]
    assert not [*conclusion_doubts(Conclusions({TAIL: record}))]
