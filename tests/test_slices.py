"""A pair in slices: parts that were sent about, joined in any order, are `tailscope.analyze`."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import threading
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from errors import raises

import tailscope
from tailscope.engine import slices
from tailscope.exceptions import AnalysisError, CaptureError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

LATENCIES = [1_000 + at * 37 % 911 for at in range(4_000)]
SETTINGS: dict[str, Any] = {"trim": "1s", "window": "100ms", "worst": 500}

Columns = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return captures.pair(tmp_path_factory.mktemp("pair"), LATENCIES)


def parts_of(pre: Path, post: Path, split: slices.Split) -> tuple[list[slices.Part], Columns]:
    """The parts as they come back from elsewhere, and all matches in order."""
    parts, chunks = [], []
    for piece in pickle.loads(pickle.dumps(split.slices)):
        part = slices.analyze_slice(pre, post, piece, sink=lambda *chunk: chunks.append(chunk))
        parts.append(pickle.loads(pickle.dumps(part)))
    return parts, chunks


def assert_same(got: tailscope.Analysis, expected: tailscope.Analysis, pre: Path) -> None:
    assert got.summary == expected.summary
    assert list(got.summary) == list(expected.summary)
    assert got.warnings == expected.warnings
    qs = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0]
    assert got.quantiles(qs) == expected.quantiles(qs)
    pairs: list[tuple[Any, Any]] = [
        (got.histogram(1), expected.histogram(1)),
        (got.worst, expected.worst),
        (got.gaps("pre", 1), expected.gaps("pre", 1)),
        (got.gaps("post", 1), expected.gaps("post", 1)),
        (got.rate("pre"), expected.rate("pre")),
        (got.rate("post"), expected.rate("post")),
    ]
    for one, other in pairs:
        assert all(np.array_equal(*columns) for columns in zip(one, other, strict=True))
    assert got.hlog() == expected.hlog()
    assert got.worst_keys(pre) == expected.worst_keys(pre)
    assert got.series is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("motivation", "pcap.zst"),
        pytest.param("motivation", "pcap", marks=pytest.mark.long),
        ("dpdk-l2fwd/hw", "pcap.gz"),
        pytest.param("dpdk-l2fwd/hw", "pcapng", marks=pytest.mark.long),
    ],
)
def test_slices_of_real_pairs_are_the_pair(data: Path, scratch: Path, name: str, kind: str) -> None:
    folder = data / "noms2020" / name
    (pre,), (post,) = folder.glob("*-pre-*"), folder.glob("*-post-*")
    if kind != "pcap.zst":
        pre, post = (captures.rewritten(path, scratch, kind) for path in (pre, post))
    whole = tailscope.analyze(pre, post, **SETTINGS)
    assert whole.series is not None
    for at_most in (2, 7) if kind == "pcap" else (5,):
        split = slices.split(pre, post, at_most=at_most, **SETTINGS)
        assert len(split.slices) == at_most
        assert split.note is None
        parts, chunks = parts_of(pre, post, split)
        for column, expected in zip(zip(*chunks, strict=True), whole.series[:3], strict=True):
            assert np.array_equal(np.concatenate(column), expected)
        random.Random(at_most).shuffle(parts)
        assert_same(slices.merge(parts), whole, pre)
        left, right = parts[0] + parts[1], parts[2:]
        assert_same(slices.merge([*right, left]), whole, pre)


def test_slices_are_about_as_large_and_touch(pair: tuple[Path, Path]) -> None:
    found = slices.split(*pair, at_most=4, window="1ms").slices
    assert len(found) == 4
    assert [piece.to_ns for piece in found[:-1]] == [piece.from_ns for piece in found[1:]]
    lengths = [piece.to_ns - piece.from_ns for piece in found]
    assert max(lengths) < 1.01 * min(lengths)
    assert sum(lengths) == 3_999 * 100_000 + LATENCIES[-1] + 1


def test_a_slice_is_several_times_longer_than_its_halo(pair: tuple[Path, Path]) -> None:
    found = slices.split(*pair, at_most=100, window="5ms")
    assert len(found.slices) == 4
    assert slices.split(*pair, at_most=1).note is None
    short = slices.split(*pair, at_most=2, window="5s")
    assert len(short.slices) == 1
    assert short.note is not None
    assert "5s" in short.note
    part = slices.analyze_slice(*pair, short.slices[0])
    assert_same(slices.merge([part]), tailscope.analyze(*pair), pair[0])


def test_parts_must_be_those_of_a_pair(pair: tuple[Path, Path], tmp_path: Path) -> None:
    split = slices.split(*pair, at_most=3, window="1ms")
    first, second, third = (slices.analyze_slice(*pair, piece) for piece in split.slices)
    with raises(AnalysisError, "parts-missing"):
        slices.merge([first, third])
    with raises(AnalysisError, "parts-overlap"):
        slices.merge([first, second, first])
    with raises(UsageError, "parts-none"):
        slices.merge([])
    (again,) = slices.split(*pair, at_most=1, window="2ms").slices
    with raises(AnalysisError, "parts-settings"):
        first + slices.analyze_slice(*pair, again)
    other = captures.pair(tmp_path, LATENCIES[:50])
    (piece,) = slices.split(*other, at_most=1, window="1ms").slices
    with raises(AnalysisError, "parts-captures"):
        first + slices.analyze_slice(*other, piece)
    with raises(CaptureError, "capture-changed"):
        slices.analyze_slice(*pair, piece)


def test_what_is_no_part_is_refused(pair: tuple[Path, Path]) -> None:
    (piece,) = slices.split(*pair, at_most=1).slices
    good = slices.analyze_slice(*pair, piece).to_bytes()
    damaged = bytearray(good)
    damaged[len(good) // 2] ^= 1
    bad = [b"", b"tailscope part 9\n" + good[17:], good[:-1], bytes(damaged), piece.to_bytes()]
    for content in bad:
        with raises(AnalysisError, "not-a-part") as refused:
            slices.Part.from_bytes(content)
        assert "byte 0: " in str(refused.value)
    with raises(AnalysisError, "not-a-slice") as refused:
        slices.Slice.from_bytes(good)
    assert "byte 0: " in str(refused.value)


def test_a_cut_end_and_disorder_are_told_once(tmp_path: Path) -> None:
    pre, post = captures.pair(tmp_path, LATENCIES)
    packets = captures.packets(pre.read_bytes())
    packets[1_000], packets[1_003] = packets[1_003], packets[1_000]
    pre.write_bytes(captures.pcap(packets)[:-7])
    whole = tailscope.analyze(pre, post, window="1ms")
    assert len(whole.warnings) >= 2
    split = slices.split(pre, post, at_most=5, window="1ms")
    assert len(split.slices) == 5
    assert_same(slices.merge(parts_of(pre, post, split)[0]), whole, pre)


def test_parts_keep_the_doubt_of_the_order(tmp_path: Path) -> None:
    """Packets seen behind the device alone speak against it, and so in every part, sent or not."""
    tailed = [1_000 + (at * 37 % 911) ** 3 // 100_000 for at in range(4_000)]
    pre, post = captures.pair(tmp_path, tailed)
    sent = captures.packets(pre.read_bytes())
    pre.write_bytes(captures.pcap([packet for at, packet in enumerate(sent) if at % 50]))
    whole = tailscope.analyze(pre, post, window="1ms")
    assert whole.summary["order_doubtful"]
    split = slices.split(pre, post, at_most=5, window="1ms")
    parts, _ = parts_of(pre, post, split)
    here = slices.analyze_slice(pre, post, split.slices[0])
    assert_same(slices.merge([here, *parts[1:]]), whole, pre)


def test_a_pipe_cannot_be_divided(pair: tuple[Path, Path], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.pcap"
    os.mkfifo(pipe)
    # More than a pipe holds, so that the writer still writes when the reader has gone.
    writer = threading.Thread(target=lambda: _write(pipe, pair[0].read_bytes()))
    writer.start()
    with raises(AnalysisError, "pipe") as refused:
        slices.split(pipe, pair[1], at_most=2)
    assert str(refused.value).startswith(f"{pipe}: ")
    writer.join(timeout=10)
    assert not writer.is_alive()


def _write(path: Path, content: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        path.write_bytes(content)


def test_progress_reaches_what_it_promised(pair: tuple[Path, Path]) -> None:
    seen: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None) -> None:
        seen.append((done, total))

    split = slices.split(*pair, at_most=3, window="1ms", progress=progress)
    for piece in split.slices:
        slices.analyze_slice(*pair, piece, progress=progress)
    assert seen
    assert all(total is not None and 0 <= done <= total for done, total in seen)
    with pytest.raises(ZeroDivisionError):
        slices.analyze_slice(*pair, split.slices[0], sink=lambda *_: 1 // 0)
