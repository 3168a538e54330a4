"""The figure of the variation of delays, against the summary of the run and its packets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from whole_run import whole_run

from tailscope.extra.standards.figures import variation
from tailscope.report.material import Material

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.store.run import Run


@pytest.fixture(scope="module")
def run(tailscope: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return whole_run(tailscope, tmp_path_factory.mktemp("whole"))


def test_both_forms_are_drawn_as_far_as_samples_support_them(run: Run) -> None:
    picture = variation([Material(run)])
    assert picture is not None
    pdv, ipdv = picture.layers
    assert (pdv.part, ipdv.part) == ("PDV", "IPDV")
    supported = [name for name in ("p50", "p90", "p99", "p999") if run.summary[f"pdv_ns_{name}"]]
    assert 1 <= len(supported) == len(pdv.columns["x"]) < 7
    odds = {"p50": 2, "p90": 10, "p99": 100, "p999": 1000}
    assert pdv.columns["x"] == pytest.approx([odds[name] for name in supported])
    for layer, name in ((pdv, "pdv_ns"), (ipdv, "ipdv_abs_ns")):
        expected = [run.summary[f"{name}_{quantile}"] for quantile in supported]
        assert (layer.columns["y"] * 1e3).round().tolist() == expected
    least = run.summary["latency_ns_min"]
    latencies = np.sort(run.worst.latency_ns.astype(np.int64))
    assert pdv.columns["y"][0] * 1e3 == pytest.approx(np.median(latencies) - least, rel=0.1)


def test_several_runs_share_it_and_runs_without_it_have_none(run: Run) -> None:
    picture = variation([Material(run), Material(replace(run, label="other"))])
    assert picture is not None
    assert [layer.label for layer in picture.layers] == [
        *(f"{run.label}, {form}" for form in ("PDV", "IPDV")),
        *(f"other, {form}" for form in ("PDV", "IPDV")),
    ]
    bare = {name: value for name, value in run.summary.items() if "pdv" not in name}
    assert variation([Material(replace(run, summary=bare))]) is None
