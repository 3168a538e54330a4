"""The grade of an instrument, at the borders between grades."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import synthetic
from msgspec import convert, structs

from tailscope.store.reader import read_run
from tailscope.store.records.floor import FloorRecord
from tailscope.store.records.plan import AnalysisPlan
from tailscope.store.records.run import NeighbourProgram, NeighboursRecord
from tailscope.verdict.trust import Grade, trust_of

if TYPE_CHECKING:
    from tailscope.store.run import Run

WATCHED = NeighboursRecord(
    known_from="events",
    unknown_because=None,
    held_ns=100,
    watched_ns=1_000,
    programs=(NeighbourProgram(name="cc1", run_ns=100),),
    sampling_ns=0,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("trust") / "run"
    return read_run(synthetic.write_run(path, np.full(200, 1_000)))


def graded(
    run: Run,
    *,
    least: dict[str, int] | None = None,
    believed: float | None = 0.9999,
    is_calibrated: bool = True,
    neighbours: NeighboursRecord | None = WATCHED,
    **instrument: Any,
) -> tuple[Grade, str, str]:
    """The grade, up to where a run is believed or why it is not, and the reasons."""
    assert run.info.noise is not None and run.info.instrument is not None
    floor = convert(synthetic.floor_of(100, 200, believed), FloorRecord)
    info = structs.replace(
        run.info,
        floor=floor if is_calibrated else None,
        noise=structs.replace(run.info.noise, neighbours=neighbours),
        instrument=structs.replace(run.info.instrument, **instrument),
    )
    lower = {f"least_latency_ns_{name}": ns for name, ns in (least or {}).items()}
    trust = trust_of({**run.summary, **lower}, info)
    return trust.grade, trust.label.removeprefix("believed to "), trust.reason


def test_a_calibrated_quiet_machine_is_green(run: Run) -> None:
    assert graded(run) == (Grade.GREEN, "p99.99", "")
    assert graded(run, believed=0.99999)[:2] == (Grade.GREEN, "p99.999")


def test_green_ends_where_the_floor_is_steady_to_less(run: Run) -> None:
    assert graded(run, believed=0.999)[:2] == (Grade.AMBER, "p99.9")
    assert graded(run, believed=None)[:2] == (Grade.RED, "not believed")
    assert graded(run, is_calibrated=False)[:2] == (Grade.AMBER, "not calibrated")


def test_stalls_decide_where_they_change_a_tenth(run: Run) -> None:
    """All packets took 1,000 ns: 910 ns without stalls are within a tenth, 909 ns are not."""
    assert graded(run, least={"p9999": 910})[0] is Grade.GREEN
    assert graded(run, least={"p9999": 909})[:2] == (Grade.AMBER, "p99.9")
    assert graded(run, least={"p90": 909})[:2] == (Grade.AMBER, "p50")
    # Beyond p99.99 it need not be believed.
    assert graded(run, least={"p99999": 500}, believed=0.999999)[:2] == (
        Grade.GREEN,
        "p99.99",
    )
    assert graded(run, least={"p50": 910})[0] is Grade.GREEN
    assert graded(run, least={"p50": 909})[:2] == (Grade.RED, "machine busy")


def test_packets_that_the_instrument_spoilt_count(run: Run) -> None:
    for name in ("unsent", "lost_in_instrument"):
        grade, _, reason = graded(run, **{name: 1})
        assert grade is Grade.AMBER and reason.startswith("1 packet ")


def test_other_programs_make_a_machine_busy_where_they_spoil_a_figure(run: Run) -> None:
    assert graded(run, neighbours=WATCHED)[0] is Grade.GREEN
    grade, label, reason = graded(run, neighbours=structs.replace(WATCHED, unusable=("p99.9",)))
    assert (grade, label) == (Grade.RED, "machine busy")
    assert "cc1" in reason and "10 %" in reason
    unknown = structs.replace(WATCHED, known_from=None, held_ns=0, programs=())
    assert graded(run, neighbours=unknown)[0] is Grade.AMBER
    assert graded(run, neighbours=None)[0] is Grade.AMBER


def test_an_instrument_that_says_nothing_has_no_grade(run: Run) -> None:
    captured = structs.replace(run.info, plan=AnalysisPlan(pre="pre", post="post"), instrument=None)
    assert trust_of(run.summary, captured).grade is Grade.UNKNOWN
    stamped = {name: value for name, value in run.summary.items() if name != "tainted"}
    assert trust_of(stamped, run.info).grade is Grade.UNKNOWN
    assert trust_of({**run.summary, "count": 0}, run.info).grade is Grade.UNKNOWN
