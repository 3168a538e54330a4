"""How far the instrument can be believed, and what later runs say of it."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from errors import raises
from measurements import Place, quick, started
from msgspec import convert
from msgspec.structs import replace
from synthetic import floor_of, info_of

from tailscope.cli import main
from tailscope.cli.status import UNDECIDED
from tailscope.exceptions import EvidenceError
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.search.calibration import known_delay
from tailscope.store import floor
from tailscope.store.records.floor import FloorQuantile, FloorRecord
from tailscope.store.records.run import NeighbourProgram, NeighboursRecord
from tailscope.testbed.cores import Cores

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.experiment.run.measured import Measured


def quantile(
    q: float, value_ns: int, least_ns: int | None = None, *, supported: bool = True
) -> FloorQuantile:
    return FloorQuantile(
        q=q,
        value_ns=value_ns,
        ci_low_ns=None,
        ci_high_ns=None,
        beyond=100,
        supported=supported,
        least_ns=value_ns if least_ns is None else least_ns,
    )


@pytest.mark.parametrize(
    ("quantiles", "believed"),
    [
        ([quantile(0.5, 100), quantile(0.99, 1000), quantile(0.999, 1001)], 0.99),
        ([quantile(0.5, 100), quantile(0.99, 1001), quantile(0.999, 1000)], 0.5),
        ([quantile(0.5, 100, 100), quantile(0.99, 5000, 1000), quantile(0.999, 5000, 1001)], 0.99),
        ([quantile(0.5, 100), quantile(0.99, 200, supported=False)], 0.5),
        ([quantile(0.5, 100, supported=False)], None),
        ([], None),
    ],
)
def test_belief_ends_where_the_floor_rises(
    quantiles: list[FloorQuantile], believed: float | None
) -> None:
    assert floor.believed_up_to(quantiles) == believed


def test_a_floor_is_of_one_machine(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", place.environment["XDG_STATE_HOME"])
    assert floor.load("memif") is None
    path = floor.save(convert(floor_of(1, 2, None), FloorRecord))
    found = floor.load("memif")
    assert found is not None and found.latency_ns_p50 == 1
    assert floor.load("veth") is None
    other = json.loads(path.read_text())
    other["host"]["kernel"] += " of another machine"
    path.write_text(json.dumps(other))
    assert floor.load("memif") is None
    path.write_text("{")
    assert floor.load("memif") is None


def test_drivers_have_floors_of_their_own() -> None:
    def instrument(wire: str, **options: str) -> str:
        return RunPlan(dut="l2fwd", wire=wire, wire_options=options).device.instrument

    assert instrument("memif") == "memif"
    assert instrument("veth") == instrument("veth", driver="af_packet")
    assert instrument("veth") != instrument("veth", driver="af_xdp")
    cards = [instrument("pci", generator=f"0000:0{n}:00.0+0000:0{n}:00.1", dut="a+b") for n in "12"]
    assert cards[0] != cards[1]


def through(p50_ns: int, held_ns: int = 0) -> Measured:
    """A run through a device, of which others held the CPU for so long of a second."""
    programs = (NeighbourProgram(name="browser", run_ns=held_ns),)
    neighbours = NeighboursRecord(
        known_from="stalls",
        unknown_because=None,
        held_ns=held_ns,
        watched_ns=1_000_000_000,
        programs=programs if held_ns else (),
        sampling_ns=0,
    )
    info = info_of()
    assert info.noise is not None
    info = replace(info, noise=replace(info.noise, neighbours=neighbours))
    analysis = SimpleNamespace(summary={"latency_ns_p50": p50_ns})
    return cast("Measured", SimpleNamespace(analysis=analysis, info=info))


@pytest.mark.parametrize("found_ns", [19_900, 20_000, 28_000])
def test_a_known_delay_is_found(found_ns: int) -> None:
    delay = known_delay(through(5_000), through(5_000 + found_ns))
    assert (delay.expected_ns, delay.found_ns) == (20_000, found_ns)


@pytest.mark.parametrize(
    ("found_ns", "held_ns", "values"),
    [
        (1_930_000, 550_000_000, ("got 1.930000 ms", "browser", " 55 % of")),
        (-700_000, 100_000_000, ("got -700.000 µs", "browser", " 10 % of")),
        (1_000, 0, ("got 1.000 µs", "20.000 µs")),
    ],
)
def test_a_floor_is_not_believed_whose_known_delay_was_not_found(
    found_ns: int, held_ns: int, values: tuple[str, ...]
) -> None:
    with raises(EvidenceError, "known-delay") as refused:
        known_delay(through(1_000_000), through(1_000_000 + found_ns, held_ns))
    assert all(value in str(refused.value) for value in values)
    assert ("browser" in str(refused.value)) == (held_ns > 0)


def test_a_refused_calibration_keeps_the_former_floor(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", place.environment["XDG_STATE_HOME"])
    path = floor.save(convert(floor_of(1, 2, None), FloorRecord))
    before = path.read_bytes()

    def busy(*_plan: object, **_how: object) -> Measured:
        return through(next(medians_ns), 500_000_000)

    medians_ns = iter((1_000, 5_000, 1_935_000))
    monkeypatch.setattr("tailscope.experiment.search.calibration.execute_whole", busy)
    monkeypatch.setattr("tailscope.testbed.cores.pick_cores", lambda *_: Cores((0, 1), (0, 1)))
    assert main(["calibrate", "--quiet"]) == UNDECIDED
    assert path.read_bytes() == before


@pytest.mark.usefixtures("dataplane")
def test_an_interrupted_calibration_keeps_nothing(place: Place) -> None:
    process = started(place, "calibrate", "--duration", "20s", processes=1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert not (place.path / "state").exists()


@pytest.mark.usefixtures("dataplane", "alone")
def test_a_calibration_is_kept_and_shown(tailscope: Callable[..., Any], place: Place) -> None:
    arguments = ("calibrate", "--duration", "1s", "--json", "-")
    done = tailscope(*arguments, env=place.environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] > 0
    assert found["stalls"]["injected"] > 10
    assert found["stalls"]["found"] == found["stalls"]["injected"]
    assert found["stalls"]["queues_seen"] == found["stalls"]["queues_expected"] > 0
    out = place.path / "out"
    run = tailscope("run", "--dut", "l2fwd", *quick(), "--out", out, env=place.environment)
    assert run.returncode == 0, run.stderr
    assert "believed" in run.stdout and "calibrate" not in run.stdout
    assert json.loads((out / "run.json").read_text())["floor"]["samples"] == found["samples"]
    assert "believed" in (out / "report.html").read_text()
