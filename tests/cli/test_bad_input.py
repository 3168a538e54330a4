"""Input that cannot be right: one line that says where, what was found, what was expected."""

from __future__ import annotations

import gzip
import re
import struct
from typing import TYPE_CHECKING, Any

import captures
import pyarrow
import pytest
from errors import code_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD = captures.stream([1_600_000_000 * captures.SECOND + 10_000 * at for at in range(2_000)])
RECORD = 16 + 60


def patched(content: bytes, offset: int, new: bytes) -> bytes:
    return content[:offset] + new + content[offset + len(new) :]


def zstd(content: bytes) -> bytes:
    return pyarrow.compress(content, codec="zstd", asbytes=True)


PCAP = captures.pcap(GOOD)
PCAPNG = captures.pcapng(GOOD)
FIRST_BLOCK = 28 + 20 + 12  # section header, interface without and with its option
LATE = GOOD[:100] + GOOD[101:] * 8 + GOOD[100:101]

#: The content of the file, the code of the error, and a pattern of the values in its message.
BAD: dict[str, tuple[bytes, str, str]] = {
    "text": (b"this is not a capture\n", "not-a-capture", r'"this"'),
    "short": (b"\xd4\xc3", "not-a-capture", r"d4, c3"),
    "link type": (captures.pcap(GOOD, link=127), "link-type", r"\b127\b.*\b1\b"),
    "length": (
        patched(PCAP, 24 + 7 * RECORD + 8, struct.pack("<I", 1 << 30)),
        "capture-corrupt",
        rf"\b{24 + 7 * RECORD}\b.*1073741824",
    ),
    "fraction": (
        patched(PCAP, 24 + 7 * RECORD + 4, struct.pack("<I", 2_000_000_000)),
        "capture-corrupt",
        rf"\b{24 + 7 * RECORD}\b.*2000000000",
    ),
    "block length": (
        patched(PCAPNG, FIRST_BLOCK + 4, struct.pack("<I", 97)),
        "capture-corrupt",
        rf"\b{FIRST_BLOCK}\b.*\b97\b",
    ),
    "trailer": (
        patched(PCAPNG, FIRST_BLOCK + 88, struct.pack("<I", 96)),
        "capture-corrupt",
        rf"\b{FIRST_BLOCK}\b.*\b96\b",
    ),
    "gzip checksum": (gzip.compress(PCAP)[:-8] + b"\0" * 8, "capture-compression", "gzip"),
    "zstd": (patched(zstd(PCAP), 40, b"\xff" * 40), "capture-compression", "zstd"),
    "times": (captures.pcap(LATE), "time-goes-back", r"byte \d+.*got [\d.]+ .?s\b"),
    "too short for the key": (
        captures.pcap([captures.Packet(ts, 100, data[:50]) for ts, _, data in GOOD]),
        "packet-too-short",
        r"\b50\b.*\b60\b",
    ),
}


def check(done: Any, file: str, code: str, values: str) -> None:
    assert (done.returncode, code_of(done)) == (1, code), done
    assert done.stdout == ""
    error, *rest = done.stderr.splitlines()
    assert error.startswith("error: "), done.stderr
    assert file in error
    assert re.search(values, error), error
    assert "got" in error
    assert "expected" in error
    assert len(rest) <= 1, done.stderr
    assert all(line.startswith("hint: ") for line in rest), done.stderr


@pytest.mark.parametrize("side", ["pre", "post"])
@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named(
    tailscope: Callable[..., Any], tmp_path: Path, name: str, side: str
) -> None:
    content, code, values = BAD[name]
    good, bad = tmp_path / "good.pcap", tmp_path / "bad.pcap"
    good.write_bytes(PCAP)
    bad.write_bytes(content)
    pair = (bad, good) if side == "pre" else (good, bad)
    out, csv, json = tmp_path / "run", tmp_path / "csv", tmp_path / "figures.json"
    done = tailscope(
        "analyze", *pair, "--match-on", "frame", "--out", out, "--csv", csv, "--json", json
    )
    check(done, "bad.pcap", code, values)
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == [bad, good], "a failed analysis leaves nothing"
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "capture-empty"), (captures.pcap([]), "no-packets")],
    ids=["empty file", "no packets"],
)
def test_nothing_before_the_device_is_refused(
    tailscope: Callable[..., Any], tmp_path: Path, content: bytes, code: str
) -> None:
    (tmp_path / "empty.pcap").write_bytes(content)
    (tmp_path / "good.pcap").write_bytes(PCAP)
    done = tailscope("analyze", tmp_path / "empty.pcap", tmp_path / "good.pcap")
    check(done, "empty.pcap", code, r"got 0\b")


@pytest.mark.parametrize("side", ["pre", "post"])
def test_a_capture_without_packets_proves_nothing(
    tailscope: Callable[..., Any], tmp_path: Path, side: str
) -> None:
    for name in ("pre", "post"):
        content = captures.pcap([]) if name == side else PCAP
        (tmp_path / f"{name}.pcap").write_bytes(content)
    done = tailscope("analyze", tmp_path / "pre.pcap", tmp_path / "post.pcap")
    check(done, f"{side}.pcap", "no-packets", "before" if side == "pre" else "behind")


@pytest.mark.parametrize("file", ["missing.pcap", "a folder"])
def test_what_is_no_file_is_named(tailscope: Callable[..., Any], tmp_path: Path, file: str) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "good.pcap").write_bytes(PCAP)
    done = tailscope("analyze", tmp_path / "good.pcap", tmp_path / file)
    assert (done.returncode, code_of(done)) == (1, "capture-io")
    assert done.stdout == ""
    assert file in done.stderr.splitlines()[0]


TAILS = {
    "pcap": lambda content: content[:-30],
    "pcap header": lambda content: content[: 24 + 1_500 * RECORD + 7],
    "pcapng": lambda _: PCAPNG[:-50],
    "gzip": lambda content: gzip.compress(content)[:-3_000],
    "zstd": lambda content: zstd(content)[:-1_000],
}


@pytest.mark.parametrize("side", ["pre", "post"])
@pytest.mark.parametrize("kind", TAILS)
def test_a_capture_that_was_cut_off_counts_up_to_there(
    figures: Callable[..., dict[str, Any]], tmp_path: Path, kind: str, side: str
) -> None:
    good, cut = tmp_path / "good", tmp_path / "cut"
    good.write_bytes(PCAP)
    cut.write_bytes(TAILS[kind](PCAP))
    # Seen 5 ns later, so that whatever is left of both sides matches.
    good.write_bytes(
        captures.pcap([p._replace(ts=p.ts + (5 if side == "pre" else -5)) for p in GOOD])
    )
    found = figures(*((cut, good) if side == "pre" else (good, cut)))
    packets = found[f"{side}_packets"]
    assert 0 < packets < 2_000
    assert found["count"] == packets
    offset = found[f"{side}_cut_offset_bytes"]
    step, head = (92, FIRST_BLOCK) if kind == "pcapng" else (RECORD, 24)
    assert offset == head + packets * step, "where the first packet that is not whole begins"
    (warning,) = (text for text in found["warnings"] if "cut" in text)
    assert "cut" in warning
    assert re.search(rf"\b{offset}\b", warning), warning
    assert re.search(rf"\b{packets}\b", warning), warning


@pytest.mark.parametrize(
    ("options", "code", "values"),
    [
        (["--trim", "5"], "duration", r"--trim.*\b5\b"),
        (["--trim", "-1s"], "duration", r"--trim.*-1s"),
        (["--window", "0s"], "duration", r"window"),
        (["--window", "soon"], "duration", r"--window.*soon"),
        (["--bucket-size", "0ns"], "duration", r"--bucket-size"),
        (["--worst", "-1"], "bad-parameter", r"--worst"),
        (["--worst", "many"], "bad-parameter", r"--worst.*many"),
        (["--match-on", "colour"], "match-on", r"colour"),
        (["--match-on", "bytes:"], "byte-range", r'""'),
        (["--match-on", "bytes:0+0"], "byte-range", r"0\+0"),
        (["--match-on", "bytes:4"], "byte-range", r'"4"'),
        (["--nonsense"], "no-such-option", r"--nonsense"),
    ],
)
def test_wrong_usage_is_no_result(
    tailscope: Callable[..., Any], tmp_path: Path, options: list[str], code: str, values: str
) -> None:
    """Exit code 1: 2 and 3 say that a measurement ran."""
    (tmp_path / "x.pcap").write_bytes(PCAP)
    done = tailscope("analyze", tmp_path / "x.pcap", tmp_path / "x.pcap", *options)
    assert (done.returncode, code_of(done)) == (1, code), done
    assert done.stdout == ""
    assert re.search(values, done.stderr), done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "captures"),
        (["x.pcap"], "capture-io"),
        (["a.pcap", "b.pcap", "c.pcap"], "captures"),
        (["-", "-"], "standard-input-twice"),
    ],
)
def test_captures_come_in_pairs(
    tailscope: Callable[..., Any], arguments: list[str], code: str
) -> None:
    done = tailscope("analyze", *arguments)
    assert (done.returncode, code_of(done)) == (1, code)
