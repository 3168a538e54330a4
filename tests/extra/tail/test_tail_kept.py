"""What ``tailscope model tail --keep`` keeps in a run, and what is drawn of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import msgspec
import numpy as np
import pytest
from documentation import undocumented
from errors import code_of

from tailscope.extra.tail import TAIL
from tailscope.extra.tail.records import ForetoldQuantile, TailRecord
from tailscope.extra.tail.words import next_run
from tailscope.store.kept import keep
from tailscope.store.reader import read_run
from tailscope.store.records.base import as_content

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

PACKETS, GAP_NS = 20_000, 100_000
LATENCIES = 3_000 + np.random.default_rng(4).exponential(20_000, PACKETS)
MOST_POINTS = 500


@pytest.fixture
def run(tailscope: Run, tmp_path: Path) -> Path:
    pair = captures.pair(tmp_path / "pair", np.rint(LATENCIES).astype(int).tolist(), gap=GAP_NS)
    done = tailscope("analyze", *pair, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    return tmp_path / "run"


def test_it_is_kept_as_json_has_it(tailscope: Run, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.iterdir()}
    command = ("model", "tail", str(run), "--split", "0.5", "--horizon", "1h")
    done = tailscope(*command, "--keep", "--json", "-")
    assert done.returncode == 0, done.stderr
    content = json.loads((run / TAIL).read_text())
    origin = content.pop("kept")
    assert content.pop("format") == 2
    # Of captures, nothing says how far they can be trusted.
    assert {**content, "trust": None} == json.loads(done.stdout)
    assert origin["command"] == ["tailscope", *command, "--keep", "--json", "-"]
    assert before.items() <= {path: path.read_bytes() for path in run.iterdir()}.items()
    found = read_run(run)
    kept_as = {file: as_content(each) for file, each in found.kept.items()}
    assert kept_as == {TAIL: {"format": 2, **content, "kept": origin}}


def test_the_tail_can_be_drawn_without_computing(tailscope: Run, run: Path) -> None:
    done = tailscope("model", "tail", run, "--split", "1", "--keep")
    assert done.returncode == 0, done.stderr
    found = read_run(run).kept.of(TailRecord)
    assert found is not None
    pairs, ahead = found.quantile_pairs, found.levels_ahead
    for rows in (pairs, ahead, found.stability):
        assert 1 < len(rows) <= MOST_POINTS
        assert not undocumented(rows[0].__struct_fields__, "extra/tail/tail.md")
    assert found.latency_ns_max == pairs[-1].measured_ns == int(np.rint(LATENCIES.max()))
    assert list(pairs) == sorted(pairs, key=lambda pair: pair.law_ns)
    assert ahead[-1].packets == pytest.approx(100 * found.fit_packets)
    for row in ahead:
        ends = (row.return_level_ns_ci_low, row.return_level_ns, row.return_level_ns_ci_high)
        known = [end for end in ends if end is not None]
        assert known == sorted(known) and tuple(known) == ends[: len(known)]


def test_verify_and_plan_say_what_a_further_run_is_expected_to_take(
    tailscope: Run, run: Path
) -> None:
    assert tailscope("model", "tail", run, "--split", "1", "--keep").returncode == 0
    found = read_run(run)
    record = found.kept.of(TailRecord)
    assert record is not None
    foretold = ForetoldQuantile(
        quantile=0.9999, latency_ns_ci_low=200_000, latency_ns_ci_high=300_000
    )
    changed = msgspec.structs.replace(record, next_quantiles=(foretold,))
    keep(run, found.info, TAIL, changed, command=["test"])
    words = {limit_ns: next_run(run, 0.9999, limit_ns) for limit_ns in (1e5, 2.5e5, 4e5)}
    assert [str(each).split()[-3] for each in words.values()] == ["beyond", "about", "within"]
    assert next_run(run, 0.99999) is None
    judged = tailscope("verify", run, "--slo", "p99.99<100us,p50<1s", "-v").stdout
    assert "p99.99 of a further run" in judged and "µs, beyond the limit" in judged
    assert "further run" not in tailscope("verify", run, "--slo", "p99.99<100us").stdout
    planned = tailscope("plan", "--quantile", "p99.99", "--rate", "10k", "--from", run).stdout
    assert "p99.99 of a further run" in planned


def test_worst_packets_are_no_run_to_keep_figures_in(tailscope: Run, tmp_path: Path) -> None:
    done = tailscope("model", "tail", "--worst", tmp_path / "x", "--count", "9", "--keep")
    assert done.returncode == 1
    assert code_of(done) is not None and "--keep" in done.stderr
