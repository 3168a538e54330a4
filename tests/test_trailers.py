"""Times that switches and taps put behind frames; tshark says what is there."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import captures
import pytest
import trailers
from errors import raises
from foreign.frames import udp_frame

from tailscope.engine.analysis import analyze, read_keys
from tailscope.exceptions import CaptureError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

Trailed = Callable[[bytes, int], bytes]
Run = Callable[..., Any]

S = 1_000_000_000
BEGIN_NS = 1_795_659_900 * S + 123_456_789
PACKETS = 400
SEQUENCE = trailers.extension(0, b"\x00\x00\x2a", is_last=False)
FRACTION = trailers.extension(1, b"\x80\x00\x00", is_last=False)
HASH = trailers.extension(2, b"\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb", is_last=True)
TAG = trailers.long_extension(2, b"a tag of a port.", is_last=True)

KINDS: dict[str, tuple[str, Trailed]] = {
    "MetaWatch": ("metamako.time", trailers.metamako),
    "MetaWatch with extensions": (
        "metamako.time",
        # The first one that is read stands last.
        partial(trailers.metamako, extensions=HASH + FRACTION + SEQUENCE),
    ),
    "MetaWatch with a tag": ("metamako.time", partial(trailers.metamako, extensions=TAG)),
    "ExaLINK Fusion": ("exablaze.timestamp", trailers.exablaze),
    "Ixia": ("ixiatrailer.timestamp", trailers.ixia),
    "Ixia with a length": (
        "ixiatrailer.timestamp",
        partial(trailers.ixia, source=4, others=b"\x01\x02\x05\xdc"),
    ),
    "Gigamon": ("gmtrailer.timestamp", trailers.gigamon),
    "Gigamon with fields": ("gmhdr.timestamp", trailers.gigamon_fields),
    "Gigamon with the size and the check sequence": (
        "gmhdr.timestamp",
        partial(
            trailers.gigamon_fields, source=6, others=b"\x01\x02\x05\xdc\x07\x04\x01\x02\x03\x04"
        ),
    ),
    "Gigamon with a header": ("gmhdr.timestamp", trailers.gigamon_header),
    "Arista 7280": ("avsp.64sec", trailers.arista),
    "Arista 7280, UTC": ("avsp.64sec", partial(trailers.arista, version=0x110)),
    "Arista 7280, 48 bits": ("avsp.48sec", partial(trailers.arista, version=0x20)),
    "VSS": ("vssmonitoring.time", trailers.vss),
    "VSS with a port": (
        "vssmonitoring.time",
        partial(trailers.vss, port=b"\x07", source=0),
    ),
}


def frames(seed: int = 1, count: int = PACKETS) -> list[bytes]:
    chance = random.Random(seed)
    return [
        udp_frame(number, payload=chance.randbytes(chance.randrange(18, 400)))
        for number in range(count)
    ]


def written(path: Path, stamped: list[tuple[int, int, bytes]], trailed: Trailed) -> Path:
    """Write a capture of frames: when it saw each, when the tap did, and the frame."""
    packets = []
    for seen_ns, at_ns, frame in stamped:
        data = trailed(frame, at_ns)
        packets.append(captures.Packet(seen_ns, len(data), data))
    path.write_bytes(captures.pcap(packets))
    return path


def seen(times: list[int], *, ahead_ns: int = 0, drift_ppm: float = 0, seed: int = 2) -> list[int]:
    """When a capture has seen packets: some time later than the tap, on a clock of its own."""
    chance = random.Random(seed)
    return [
        at + ahead_ns + round((at - times[0]) * drift_ppm / 1e6) + chance.randrange(5_000, 25_000)
        for at in times
    ]


def tshark_times(path: Path, field: str, *, is_checked: bool) -> list[int]:
    """The times behind frames, as tshark reads them, in ns."""
    kind = field.partition(".")[0]
    if kind == "avsp":
        return _in_two_fields(path, field)
    # Some trailers look like those of others, and ports like those of DNS.
    makers = {found.partition(".")[0] for found, _ in KINDS.values()} - {"avsp"}
    disabled = [*(makers - {kind}), "dns"]
    others = [word for name in disabled for word in ("--disable-protocol", name)]
    words = ["tshark", "-r", path, "--enable-heuristic", f"{kind}_eth", *others]
    # Of one trailer, the check sequence behind it is a part to tshark.
    is_taken_off = is_checked and kind != "gmtrailer"
    words += ["-o", f"eth.fcs:{'Always' if is_taken_off else 'Never'}"]
    words += ["-T", "json", "-e", field]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    texts = [packet["_source"]["layers"][field][0] for packet in json.loads(said)]
    return [_unix_ns(text) for text in texts]


def _in_two_fields(path: Path, field: str) -> list[int]:
    """The times in headers: seconds, of which the lower half may be missing, and nanoseconds."""
    words = ["tshark", "-r", path, "-T", "fields", "-e", field, "-e", field.replace("sec", "ns")]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    pairs = [map(int, line.split()) for line in said.splitlines()]
    high = 0 if "64" in field else BEGIN_NS // S & ~0xFFFF
    return [(high + seconds) * S + ns for seconds, ns in pairs]


def _unix_ns(text: str) -> int:
    from datetime import UTC, datetime

    date, _, rest = text.partition(".")
    at = datetime.strptime(date, "%b %d, %Y %H:%M:%S").replace(tzinfo=UTC)
    return int(at.timestamp()) * S + int(rest.split()[0])


@pytest.mark.parametrize("is_checked", [False, True], ids=["without FCS", "with FCS"])
@pytest.mark.parametrize(("field", "trailed"), KINDS.values(), ids=KINDS)
def test_times_are_those_that_tshark_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, trailed: Trailed, is_checked: bool
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    chance = random.Random(3)
    times = [BEGIN_NS + number * 50_000 + chance.randrange(50_000) for number in range(PACKETS)]
    whole = [*zip(seen(times), times, frames(), strict=True)]
    ending = (lambda f, at: trailers.with_fcs(trailed(f, at))) if is_checked else trailed
    path = written(tmp_path / "a.pcap", whole, ending)
    read = [ts for keys in read_keys(f"{path}@trailer", "frame") for ts in keys.ts_ns.tolist()]
    assert read == times
    if field.startswith("gmtrailer") and not is_checked:
        return  # tshark knows it by the check sequence behind it.
    assert tshark_times(path, field, is_checked=is_checked) == times


@pytest.mark.parametrize("trailed", [kind[1] for kind in KINDS.values()], ids=KINDS)
def test_latencies_are_those_of_the_taps(tmp_path: Path, trailed: Trailed) -> None:
    chance = random.Random(4)
    sent = [BEGIN_NS + number * 25_000_000 for number in range(PACKETS)]
    took = [chance.randrange(2_000, 9_000) for _ in sent]
    came = [at + ns for at, ns in zip(sent, took, strict=True)]
    content = frames()
    pre = written(tmp_path / "pre.pcap", [*zip(seen(sent), sent, content, strict=True)], trailed)
    later = seen(came, ahead_ns=37 * S, drift_ppm=20, seed=5)
    post = written(tmp_path / "post.pcap", [*zip(later, came, content, strict=True)], trailed)
    found = analyze(f"{pre}@trailer", f"{post}@trailer", match_on="frame")
    assert found.series.latency_ns.tolist() == took
    summary = found.summary
    assert summary["pre_stamps"] == summary["post_stamps"]
    assert summary["pre_stamps_without"] == 0
    assert summary["pre_stamps_offset_ns"] == pytest.approx(10_000, abs=5_000)
    assert summary["pre_stamps_drift_ppm"] == pytest.approx(0, abs=0.5)
    assert summary["post_stamps_offset_ns"] == pytest.approx(37 * S + 110_000, abs=5_000)
    assert summary["post_stamps_drift_ppm"] == pytest.approx(20, abs=0.5)
    gaps = [b - a for a, b in zip(came, later, strict=True)]
    assert summary["post_stamps_largest_ns"] == max(gaps)
    assert not any("--stamps" in warning for warning in found.warnings)


def pair(folder: Path, trailed: Trailed = trailers.metamako) -> tuple[Path, Path]:
    sent = [BEGIN_NS + number * 1_000_000 for number in range(PACKETS)]
    content = frames()
    came = [at + 3_000 for at in sent]
    pre = written(folder / "pre.pcap", [*zip(seen(sent), sent, content, strict=True)], trailed)
    post = written(folder / "post.pcap", [*zip(seen(came), came, content, strict=True)], trailed)
    return pre, post


def test_the_command_takes_them_and_names_them_where_they_are_not_taken(
    tmp_path: Path, tailscope: Run
) -> None:
    pre, post = pair(tmp_path)
    plain = tailscope("analyze", pre, post, "--json", "-")
    hints = [warning for warning in json.loads(plain.stdout)["warnings"] if "--stamps" in warning]
    assert [hint.partition(":")[0] for hint in hints] == [str(pre), str(post)]
    out = tmp_path / "run"
    words = ("--stamps", "trailer", "--csv", tmp_path / "csv", "--out", out, "--json", "-")
    taken = tailscope("analyze", pre, post, *words)
    figures = json.loads(taken.stdout)
    assert figures["latency_ns_max"] == figures["latency_ns_min"] == 3_000
    assert figures["pre_stamps"].startswith("Metamako")
    info = json.loads((out / "run.json").read_text())
    assert info["plan"]["pre"] == f"{pre}@trailer"
    assert info["inputs"]["pre"]["file"] == str(pre)


def test_several_files_are_merged(tmp_path: Path) -> None:
    pre, post = pair(tmp_path)
    packets = captures.packets(pre.read_bytes())
    for number in range(2):
        part = packets[number * PACKETS // 2 : (number + 1) * PACKETS // 2]
        (tmp_path / f"part{number}.pcap").write_bytes(captures.pcap(part))
    several = analyze(f"{tmp_path / 'part*.pcap'}@trailer", f"{post}@trailer")
    assert (several.summary["count"], several.summary["latency_ns_max"]) == (PACKETS, 3_000)


def test_packets_without_a_time_are_left_out_and_counted(tmp_path: Path) -> None:
    pre, post = pair(tmp_path)
    packets = captures.packets(pre.read_bytes())
    others = [
        captures.Packet(packet.ts + 1, 60, captures.udp(number)) if number % 100 == 99 else packet
        for number, packet in enumerate(packets)
    ]
    pre.write_bytes(captures.pcap(others))
    found = analyze(f"{pre}@trailer", f"{post}@trailer")
    assert found.summary["pre_stamps_without"] == PACKETS // 100
    assert found.summary["pre_packets"] == PACKETS - PACKETS // 100
    assert any("left out" in warning for warning in found.warnings)


def test_what_has_no_times_is_refused(tmp_path: Path, tailscope: Run) -> None:
    sent = [BEGIN_NS + number * 1_000_000 for number in range(50)]
    plain = written(
        tmp_path / "plain.pcap", [*zip(sent, sent, frames(), strict=False)], lambda f, _: f
    )
    cut = tmp_path / "cut.pcap"
    pre, post = pair(tmp_path)
    packets = captures.packets(pre.read_bytes())
    cut.write_bytes(captures.pcap([each._replace(data=each.data[:60]) for each in packets]))
    for path in (plain, cut):
        with raises(CaptureError, "no-trailer"):
            analyze(f"{path}@trailer", f"{post}@trailer")
    with raises(UsageError, "stamps"):
        from tailscope.cli.analyze import command

        command([str(pre), str(post)], stamps="tailer")
    folder = tailscope("analyze", tmp_path, "--stamps", "trailer", "--scheduler", "local")
    assert "[stamps-scheduler]" in folder.stderr


def test_times_of_another_month_are_none(tmp_path: Path) -> None:
    sent = [BEGIN_NS + number * 1_000_000 for number in range(50)]
    month_ns = 31 * 24 * 3600 * S
    for ahead_ns, is_found in ((month_ns, False), (-month_ns, False), (25 * 24 * 3600 * S, True)):
        stamped = [(at + ahead_ns, at, frame) for at, frame in zip(sent, frames(), strict=False)]
        path = written(tmp_path / f"{ahead_ns}.pcap", stamped, trailers.metamako)
        found = any("--stamps" in each for each in analyze(path, path_of_other(path)).warnings)
        assert found == is_found


def path_of_other(path: Path) -> Path:
    """The same packets, seen 5 µs later."""
    other = path.with_suffix(".post.pcap")
    packets = captures.packets(path.read_bytes())
    other.write_bytes(captures.pcap([each._replace(ts=each.ts + 5_000) for each in packets]))
    return other
