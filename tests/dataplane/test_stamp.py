"""The recorder of two taps, to which generators send in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from errors import raises
from processes import over_memif

from tailscope import analyze
from tailscope.exceptions import DataplaneError
from tailscope.testbed.messages import STAMP, missed_frames

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.store.records.messages import StampResult


pytestmark = pytest.mark.usefixtures("dataplane")


def recorded(out: Path, *options: str) -> tuple[StampResult, list[int]]:
    """Record traffic to one tap, then the other; return the result and the packets sent."""
    traffic = ["--warm-up=0s", "--duration=500ms", "--drain=500ms", "--rate=10k"]
    packets = []
    with over_memif() as pair, pair.dut(STAMP, [f"--captures={out}", *options]) as stamp:
        stamp.wait_ready()
        for turn in (0, 1):
            # The ports change places, so that the traffic reaches the other tap.
            *common, first, second = pair.ends.generator.eal
            ports = [
                text.replace(f"net_memif{number}", f"net_memif{number ^ turn}")
                for number, text in enumerate((first, second))
            ]
            with pair.generator(traffic, [*common, *sorted(ports)]) as generator:
                sent = generator.finish()
            assert sent is not None
            packets.append(sent.gen.sent)
        stamp.stop()
        result = stamp.finish()
    assert result is not None
    return result, packets


def test_both_taps_are_written_with_their_times(tmp_path: Path) -> None:
    result, sent = recorded(tmp_path, "--software")
    stamp = result.stamp
    assert result.complete and stamp.timestamps == "tsc"
    # The generators ran one after the other, so each packet seems to take as long as a run.
    pair = tmp_path / "pre.pcapng.zst", tmp_path / "post.pcapng.zst"
    summary = analyze(*pair, clocks="same").summary
    for side, tap, packets in zip(("pre", "post"), (stamp.pre, stamp.post), sent, strict=True):
        assert tap.received == tap.written == packets > 0
        assert summary[f"{side}_packets"] == packets
        assert missed_frames(tap) == 0
    # Both taps have the same 5000 packets, minus those that either generator sent too late.
    assert summary["count"] >= sum(sent) - 5000
    assert summary["pre_duration_s"] == pytest.approx(0.5, rel=0.1)


def test_ports_that_do_not_stamp_are_refused(tmp_path: Path) -> None:
    with raises(DataplaneError, "no-timestamps") as error:
        recorded(tmp_path)
    assert "--software" in str(error.value.hint)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "named"),
    [(["--pre=1"], ["--post", "got 1", "--pre"]), (["--post=9"], ["--post", "got 9"])],
)
def test_taps_are_two_ports(tmp_path: Path, options: list[str], named: list[str]) -> None:
    with raises(DataplaneError, "option-value") as error:
        recorded(tmp_path, "--software", *options)
    assert all(text in str(error.value) for text in named)


def test_a_folder_that_is_not_there_is_named() -> None:
    from pathlib import Path

    with raises(DataplaneError, "capture") as error:
        recorded(Path("/no/such/folder"), "--software")
    assert "/no/such/folder" in str(error.value)
