"""`tailscope.analyze` and what it returns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import captures
import numpy as np
import pytest
from documentation import undocumented
from errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st

import tailscope
from tailscope._engine import ArgumentError
from tailscope.exceptions import AnalysisError, CaptureError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

LATENCIES = [1_000 + at * 37 % 911 for at in range(4_000)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return captures.pair(tmp_path_factory.mktemp("pair"), LATENCIES)


@pytest.fixture(scope="module")
def result(pair: tuple[Path, Path]) -> tailscope.Analysis:
    return tailscope.analyze(*pair)


def test_series_are_every_packet(result: tailscope.Analysis) -> None:
    series = result.series
    assert series is not None
    for column in (series.seq, series.pre_ns, series.latency_ns):
        assert column.dtype == np.uint64
    assert series.intended_ns is None and series.tainted is None
    assert series.latency_ns.tolist() == LATENCIES
    assert series.seq.tolist() == list(range(4_000))
    assert np.all(np.diff(series.pre_ns) == 100_000)


def test_every_figure_is_documented(result: tailscope.Analysis) -> None:
    assert not undocumented(result.summary, "analyze.md")


def test_series_are_not_copied(result: tailscope.Analysis) -> None:
    first, again, table = result.series, result.series, result.table()
    assert first is not None
    assert again is not None
    assert table is not None
    assert np.shares_memory(first.latency_ns, again.latency_ns)
    (chunk,) = table["latency_ns"].chunks
    assert chunk.buffers()[1].address == first.latency_ns.ctypes.data


def test_series_outlive_the_analysis(pair: tuple[Path, Path]) -> None:
    series = tailscope.analyze(*pair).series
    assert series is not None
    assert series.latency_ns.tolist() == LATENCIES


def test_what_whole_captures_lack_is_lost(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """A device that dies, and one that comes late: captures of unknown extent do not prove it."""
    pre, post = pair
    seen = captures.packets(post.read_bytes())
    middle = tmp_path / "x-post-1.pcap"
    middle.write_bytes(captures.pcap(seen[1_000:1_500]))
    found = tailscope.analyze(pre, middle).summary
    assert (found["lost"], found["outside"]) == (0, 3_500)
    found = tailscope.analyze(pre, middle, whole=True).summary
    assert (found["lost"], found["outside"], found["count"]) == (3_500, 0, 500)


def test_where_nothing_came_all_is_lost_if_captures_are_whole(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    nothing = tmp_path / "nothing.pcap"
    nothing.write_bytes(captures.pcap([]))
    for match_on in ("frame", "auto"):
        found = tailscope.analyze(pair[0], nothing, whole=True, match_on=match_on).summary
        assert (found["lost"], found["sent"], found["count"]) == (4_000, 4_000, 0)
    for captures_of, options in (((pair[0], nothing), {}), ((nothing, pair[1]), {"whole": True})):
        with raises(AnalysisError, "no-packets") as refused:
            tailscope.analyze(*captures_of, **options)
        assert str(refused.value).startswith(f"{nothing}: ")


def test_no_series_unless_asked_for(pair: tuple[Path, Path]) -> None:
    found = tailscope.analyze(*pair, series=False)
    assert found.series is None
    assert found.table() is None
    assert found.summary["count"] == 4_000


def test_a_sink_gets_every_packet_once(pair: tuple[Path, Path]) -> None:
    chunks: list[tuple[list[int], ...]] = []
    tailscope.analyze(
        *pair, series=False, sink=lambda *c: chunks.append(tuple(x.tolist() for x in c))
    )
    seq, _, latency = (
        [value for chunk in column for value in chunk] for column in zip(*chunks, strict=True)
    )
    assert seq == list(range(4_000))
    assert latency == LATENCIES


class EnoughError(Exception):
    pass


@pytest.mark.parametrize("callback", ["sink", "progress"])
def test_what_a_callback_raises_comes_back(tmp_path: Path, callback: str) -> None:
    pair = captures.pair(tmp_path, [1_000] * 30_000)

    def refuse(*_: object) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        tailscope.analyze(*pair, **{callback: refuse})


@given(st.floats(0, 1))
@settings(deadline=None)
def test_quantiles_are_those_of_the_sorted_samples(result: tailscope.Analysis, q: float) -> None:
    found = result.quantile(q)
    assert found is not None
    samples = np.sort(np.array(LATENCIES))
    assert (samples <= found.value_ns).mean() >= q
    assert (samples < found.value_ns).mean() < q or found.value_ns == samples[0]
    if found.ci_low_ns is not None:
        assert found.ci_low_ns <= samples[-1]
    if found.ci_high_ns is not None:
        assert found.ci_low_ns is not None
        assert found.ci_low_ns <= found.ci_high_ns


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan"), float("inf")])
def test_what_is_no_quantile_is_refused(result: tailscope.Analysis, q: float) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(q))):
        result.quantile(q)


@given(st.integers(1, 10_000))
@settings(deadline=None)
def test_buckets_hold_every_sample(result: tailscope.Analysis, width: int) -> None:
    bucket, counts = result.histogram(width)
    expected = np.unique(np.array(LATENCIES) // width * width, return_counts=True)
    assert bucket.tolist() == expected[0].tolist()
    assert counts.tolist() == expected[1].tolist()


def test_a_bucket_is_at_least_a_nanosecond(result: tailscope.Analysis) -> None:
    with pytest.raises(ArgumentError) as refused:
        result.histogram(0)
    assert refused.value.code == "bucket-size"
    with pytest.raises(ArgumentError) as refused:
        result.gaps("pre", 0)
    assert refused.value.code == "bucket-size"


def test_a_side_is_pre_or_post(result: tailscope.Analysis) -> None:
    with pytest.raises(ArgumentError) as refused:
        result.rate("middle")  # type: ignore[arg-type]
    assert refused.value.code == "side"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"trim": "5"}, "duration"),
        ({"trim": -1}, "duration"),
        ({"window": "0s"}, "window"),
        ({"window": 1 << 63}, "window"),
        ({"trim": 1 << 70}, "argument"),
        ({"worst": -1}, "worst"),
        ({"match_on": "x"}, "match-on"),
    ],
)
def test_arguments_that_cannot_be_are_tailscopes_errors(
    pair: tuple[Path, Path], options: dict[str, object], code: str
) -> None:
    with raises(UsageError, code):
        tailscope.analyze(*pair, **options)


def test_errors_carry_advice(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no capture")
    with raises(CaptureError, "not-a-capture") as caught:
        tailscope.analyze(pair[0], tmp_path / "text")
    assert caught.value.hint is None or isinstance(caught.value.hint, str)


def test_analyses_may_run_side_by_side(pair: tuple[Path, Path]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: dict(tailscope.analyze(*pair).summary), range(8)))
    assert all(one == found[0] for one in found)
