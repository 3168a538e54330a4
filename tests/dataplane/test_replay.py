"""Replay of a capture through a real forwarder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from errors import raises
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
            result = generator.finish()
    assert result is not None
    return result


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulate a capture of 3000 packets at 10,000 a second."""
    folder = tmp_path_factory.mktemp("capture")
    settings: dict[str, Any] = {"packets": PACKETS, "rate_pps": 10_000, "pattern": "poisson"}
    _engine.simulate(str(folder), seed=5, **settings)
    (path,) = folder.glob("*-pre-*")
    return path


@pytest.mark.parametrize(("options", "speed"), [((), 1.0), (("--replay-speed=4",), 4.0)])
def test_frames_leave_as_they_were_captured(
    capture: Path, tmp_path: Path, options: tuple[str, ...], speed: float
) -> None:
    result = replayed(capture, *options, f"--captures={tmp_path}", record=tmp_path)
    assert result.gen.replayed == result.gen.sent == PACKETS
    assert result.gen.matched > 0.95 * PACKETS
    assert result.gen.ambiguous_sent == result.gen.unsent == 0
    intended = load_ticks(tmp_path, "intended_tsc").astype(np.int64)
    since_ns = (intended - intended[0]) / result.clock.tsc_hz * 1e9
    series = analyze(capture, capture.with_name(capture.name.replace("-pre-", "-post-"))).series
    assert series is not None
    captured = series.pre_ns.astype(np.int64)
    expected_ns = (captured - captured[0]) / speed
    assert np.abs(since_ns[series.seq] - expected_ns).max() < 2
    again = analyze(tmp_path / "pre.pcapng.zst", tmp_path / "post.pcapng.zst", match_on="frame")
    assert again.summary["count"] == result.gen.matched


def test_a_rate_takes_the_place_of_the_captured_times(capture: Path, tmp_path: Path) -> None:
    result = replayed(capture, "--rate=20k", record=tmp_path)
    gaps = np.diff(load_ticks(tmp_path, "intended_tsc").astype(np.int64))
    assert result.gen.sent == PACKETS
    assert np.abs(gaps / result.clock.tsc_hz * 20_000 - 1).max() < 1e-3


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (["--replay-speed=0"], "option-value", ["--replay-speed", "got 0"]),
        (["--rate=1k", "--replay-speed=2"], "usage", ["--rate", "--replay-speed"]),
        (["--burst=2"], "usage", ["--burst", "--replay"]),
    ],
)
def test_options_that_contradict_are_refused(
    capture: Path, options: list[str], code: str, named: list[str]
) -> None:
    with raises(DataplaneError, code) as error:
        replayed(capture, *options)
    assert all(text in str(error.value) for text in named)


def test_a_capture_that_is_not_there_is_named() -> None:
    from pathlib import Path

    with raises(DataplaneError, "capture") as error:
        replayed(Path("/no/such/capture"))
    assert "/no/such/capture" in str(error.value)
