"""Direct peers: programs that match two captures packet by packet, built from sources of theirs.

The sources lie in a folder that ``PEERS`` names, one archive a peer; a peer whose archive is not
there, or does not build, is left out with a word.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.clock import Contender, medians, say, seconds
from bench.pair import tailscope as command
from bench.table import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

VARIABLE = "PEERS"
PACKETS = 3_000_000
PORT = 5201
ROUNDS = 3
FASTER = 10
FILES_COST = 2
_GAP_NS, _BEGIN_NS, _SECOND_NS = 10_000, 1_700_000_000_000_000_000, 1_000_000_000
_HEADER_BYTES, _FRAME_BYTES = 42, 76


@dataclass(frozen=True)
class Peer:
    """A program that matches packets one by one."""

    name: str
    archive: str
    build: Callable[[Path], Path]
    """Builds it in the folder of its sources, and returns the program."""
    words: Callable[[Path, Path, Path], list[str]]
    """The arguments that match a pair and write into a folder."""
    matched: Callable[[Path], int]
    """Counts the packets that it has matched, by the files that it wrote."""


def peer_rows(folder: Path) -> list[Row]:
    """Three million packets a side: figures alone, all files, and what peers take."""
    pre, post = iperf3_pair(folder / "captures", PACKETS)
    out, table = folder / "run", folder / "table"

    def all_files() -> None:
        shutil.rmtree(out, ignore_errors=True)
        command("analyze", pre, post, "--out", out)

    took = medians(
        ROUNDS,
        {
            "figures": Contender(partial(command, "analyze", pre, post, "--json", "-")),
            "all files": Contender(all_files),
        },
    )
    ours = took["all files"]
    rows = [Row("analyze --out", "--json -", "cost", ours, took["figures"], "s", FILES_COST)]
    found = {}
    for peer, program in _built(folder):
        table.mkdir(exist_ok=True)
        run = [str(program), *peer.words(pre, post, table)]
        say(f"{peer.name}, once")
        found[peer.name] = seconds(partial(_quiet, run))
        matched = peer.matched(table)
        assert matched == PACKETS, f"{peer.name}: got {matched:,} matches, expected {PACKETS:,}"
        shutil.rmtree(table)
    fastest = min(found, key=lambda name: found[name], default=None)
    for name, theirs in found.items():
        target = FASTER if name == fastest else None
        rows.append(Row("analyze --out", name, "speed-up", ours, theirs, "s", target))
        rows.append(Row("analyze --json -", name, "speed-up", took["figures"], theirs, "s", None))
    return rows


def iperf3_pair(folder: Path, packets: int) -> tuple[Path, Path]:
    """Write two captures of UDP as iperf3 sends it, alike on both sides; peers know its counter."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    sent = _BEGIN_NS + np.arange(packets) * _GAP_NS
    came = np.maximum.accumulate(sent + rng.integers(3_000, 40_000, packets))
    frames = _frames(packets)
    pre, post = folder / "iperf3-pre-1.pcap", folder / "iperf3-post-1.pcap"
    for path, times in ((pre, sent), (post, came)):
        _write(path, times, frames)
    return pre, post


def _frames(packets: int) -> NDArray[np.uint8]:
    frames = np.zeros((packets, _FRAME_BYTES), np.uint8)
    udp_bytes = _FRAME_BYTES - 34
    header = [
        bytes.fromhex("020000000010 020000000001 0800"),
        bytes.fromhex("4500") + (udp_bytes + 20).to_bytes(2, "big") + bytes.fromhex("00004000"),
        bytes.fromhex("4011 0000 0a000001 0a000101"),
        b"".join(part.to_bytes(2, "big") for part in (40_000, PORT, udp_bytes, 0)),
    ]
    frames[:, :_HEADER_BYTES] = np.frombuffer(b"".join(header), np.uint8)
    # iperf3 sends random bytes behind its counter.
    payload = frames[:, _HEADER_BYTES:]
    payload[:] = np.random.default_rng(2).integers(0, 256, payload.shape, np.uint8)
    number = np.arange(1, packets + 1, dtype=">u4")
    frames[:, _HEADER_BYTES + 8 : _HEADER_BYTES + 12] = number.view(np.uint8).reshape(-1, 4)
    return frames


def _write(path: Path, times_ns: NDArray[np.int64], frames: NDArray[np.uint8]) -> None:
    head = np.array([0xA1B23C4D, 0x00040002, 0, 0, 65_535, 1], "<u4")
    records = np.zeros(len(frames), [("head", "<u4", 4), ("frame", "u1", _FRAME_BYTES)])
    lengths = np.full(len(frames), _FRAME_BYTES)
    parts = (*np.divmod(times_ns, _SECOND_NS), lengths, lengths)
    records["head"] = np.column_stack(parts)
    records["frame"] = frames
    with path.open("wb") as file:
        head.tofile(file)
        records.tofile(file)


def _built(folder: Path) -> Iterator[tuple[Peer, Path]]:
    sources = os.environ.get(VARIABLE)
    if not sources:
        say(f"direct peers are left out: {VARIABLE} names no folder with their sources")
        return
    for peer in PEERS:
        archive = Path(sources) / peer.archive
        place = folder / peer.name
        place.mkdir()
        try:
            _quiet(["tar", "--zstd", "-xf", str(archive.resolve(strict=True)), "-C", str(place)])
            yield peer, peer.build(place)
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"{peer.name} is left out: {error}")


def _quiet(words: list[str], folder: Path | None = None) -> None:
    subprocess.run(words, cwd=folder, check=True, capture_output=True)


def _pcap_match(place: Path) -> Path:
    _quiet(["cargo", "build", "--release", "--quiet"], place)
    return place / "target" / "release" / "pcap-match"


def _exact_pcap_match(place: Path) -> Path:
    # An archive may hold the link as a file with its target.
    link = place / "libs" / "chaste"
    if link.is_file():
        target = link.read_text().strip()
        link.unlink()
        link.symlink_to(target)
    (place / "bin").mkdir(exist_ok=True)
    _quiet(["make", "tools"], place)
    return place / "bin" / "exact-pcap-match"


def _rows_of(pattern: str) -> Callable[[Path], int]:
    """Count the rows of a table that have what a matched packet has."""

    def count(folder: Path) -> int:
        [path] = folder.glob("*.csv")
        with path.open("rb") as file:
            return sum(pattern.encode() in line for line in file)

    return count


def _match_words(pre: Path, post: Path, table: Path) -> list[str]:
    # It writes beside the first capture.
    beside = table / pre.name
    beside.hardlink_to(pre)
    return ["--iperf3-udp-dst", str(PORT), str(beside), str(post)]


def _exact_words(pre: Path, post: Path, table: Path) -> list[str]:
    files = ["-r", str(pre), "-i", str(post), "-c", str(table / "found.csv")]
    return [*files, "-f", "pcap", "-n", "0"]


PEERS = (
    Peer("pcap-match", "pcap-match.tar.zst", _pcap_match, _match_words, _rows_of(",false")),
    Peer(
        "exact-pcap-match",
        "exact-capture.tar.zst",
        _exact_pcap_match,
        _exact_words,
        _rows_of(",-->,"),
    ),
)
