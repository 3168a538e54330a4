"""A capture that is sent again through a real forwarder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from processes import over_memif

from tailscope import _engine, analyze
from tailscope.engine.analysis import load_ticks
from tailscope.exceptions import DataplaneError
from tailscope.testbed.messages import FORWARDERS

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.store.records.messages import GeneratorResult

PACKETS = 3000

pytestmark = pytest.mark.usefixtures("dataplane")


def replayed(capture: Path, *options: str, record: Path | None = None) -> GeneratorResult:
    """Send a capture through a forwarder that changes MAC addresses."""
    own = [f"--replay={capture}", "--drain=300ms", *options]
    if record is not None:
        own.append(f"--record={record}")
    with over_memif() as pair, pair.dut(FORWARDERS["l2fwd"], []) as dut:
        dut.wait_ready()
        with pair.generator(own) as generator:
            generator.wait_ready()
            found = generator.finish()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the simulator: 3000 packets, 10 000 a second."""
    folder = tmp_path_factory.mktemp("capture")
    settings: dict[str, Any] = {"packets": PACKETS, "rate_pps": 10_000, "pattern": "poisson"}
    _engine.simulate(str(folder), seed=5, **settings)
    (found,) = folder.glob("*-pre-*")
    return found


@pytest.mark.parametrize(("options", "speed"), [((), 1.0), (("--replay-speed=4",), 4.0)])
def test_frames_leave_as_they_were_captured(
    capture: Path, tmp_path: Path, options: tuple[str, ...], speed: float
) -> None:
    found = replayed(capture, *options, f"--captures={tmp_path}", record=tmp_path)
    assert found.gen.replayed == found.gen.sent == PACKETS
    assert found.gen.matched > 0.95 * PACKETS
    assert found.gen.ambiguous_sent == found.gen.unsent == 0
    intended = load_ticks(tmp_path, "intended_tsc").astype(np.int64)
    since_ns = (intended - intended[0]) / found.clock.tsc_hz * 1e9
    series = analyze(capture, capture.with_name(capture.name.replace("-pre-", "-post-"))).series
    assert series is not None
    captured = series.pre_ns.astype(np.int64)
    expected_ns = (captured - captured[0]) / speed
    assert np.abs(since_ns[series.seq] - expected_ns).max() < 2
    again = analyze(tmp_path / "pre.pcapng.zst", tmp_path / "post.pcapng.zst", match_on="frame")
    assert again.summary["count"] == found.gen.matched


def test_a_rate_takes_the_place_of_the_captured_times(capture: Path, tmp_path: Path) -> None:
    found = replayed(capture, "--rate=20k", record=tmp_path)
    gaps = np.diff(load_ticks(tmp_path, "intended_tsc").astype(np.int64))
    assert found.gen.sent == PACKETS
    assert np.abs(gaps / found.clock.tsc_hz * 20_000 - 1).max() < 1e-3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--replay-speed=0"], "--replay-speed: got 0, expected more than 0"),
        (["--rate=1k", "--replay-speed=2"], "cannot be used with"),
        (["--burst=2"], "cannot be used with"),
    ],
)
def test_options_that_contradict_are_refused(capture: Path, options: list[str], said: str) -> None:
    with pytest.raises(DataplaneError) as error:
        replayed(capture, *options)
    assert said in str(error.value)


def test_a_capture_that_is_not_there_is_named() -> None:
    from pathlib import Path

    with pytest.raises(DataplaneError, match="/no/such/capture"):
        replayed(Path("/no/such/capture"))
