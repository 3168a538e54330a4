"""The recorder of two taps: one generator sends to each of its ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from processes import over_memif

from tailscope import analyze
from tailscope.exceptions import DataplaneError
from tailscope.testbed.messages import STAMP, missed_frames

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.store.records.messages import StampResult


pytestmark = pytest.mark.usefixtures("dataplane")


def recorded(out: Path, *options: str) -> tuple[StampResult, list[int]]:
    """Record what a generator sends to one tap, then the other; the result, and packets sent."""
    traffic = ["--warm-up=0s", "--duration=500ms", "--drain=500ms", "--rate=10k"]
    packets = []
    with over_memif() as pair, pair.dut(STAMP, [f"--captures={out}", *options]) as stamp:
        stamp.wait_ready()
        for turn in (0, 1):
            # Its ports change places: what it sends comes to the other tap.
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
        found = stamp.finish()
    assert found is not None
    return found, packets


def test_both_taps_are_written_with_their_times(tmp_path: Path) -> None:
    found, sent = recorded(tmp_path, "--software")
    stamp = found.stamp
    assert found.complete and stamp.timestamps == "tsc"
    # One generator ran after the other, so that every packet seems to take as long as a run.
    pair = tmp_path / "pre.pcapng.zst", tmp_path / "post.pcapng.zst"
    summary = analyze(*pair, clocks="same").summary
    for side, tap, packets in zip(("pre", "post"), (stamp.pre, stamp.post), sent, strict=True):
        assert tap.received == tap.written == packets > 0
        assert summary[f"{side}_packets"] == packets
        assert missed_frames(tap) == 0
    # The same 5000 packets, one run of the generator later, less what either sent too late.
    assert summary["count"] >= sum(sent) - 5000
    assert summary["pre_duration_s"] == pytest.approx(0.5, rel=0.1)


def test_ports_that_do_not_stamp_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataplaneError, match="does not stamp all frames") as error:
        recorded(tmp_path)
    assert "--software" in str(error.value.hint)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pre=1"], "--post: got 1, expected another port than --pre"),
        (["--post=9"], "--post: got 9, expected one of"),
    ],
)
def test_taps_are_two_ports(tmp_path: Path, options: list[str], said: str) -> None:
    with pytest.raises(DataplaneError) as error:
        recorded(tmp_path, "--software", *options)
    assert said in str(error.value)


def test_a_folder_that_is_not_there_is_named() -> None:
    from pathlib import Path

    with pytest.raises(DataplaneError, match="/no/such/folder"):
        recorded(Path("/no/such/folder"), "--software")
