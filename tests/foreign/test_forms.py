"""Packets in another form: what Python, pipes and the table say of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tailscope as package
from tailscope.exceptions import KeyChangesError

from .catalogue import CASES

if TYPE_CHECKING:
    from conftest import Tailscope

CHANGES = "NAT that begins in the middle"
SECRET = "some packets encrypted"


def test_matches_are_handed_out_once(tmp_path: Path) -> None:
    pre, post = CASES[CHANGES].make(tmp_path).arguments
    found = package.analyze(pre, post)
    assert found.series is not None
    assert len(found.series.seq) == found.summary["count"]
    assert found.summary["match_on"] == "payload"


def test_a_sink_that_has_received_matches_is_told(tmp_path: Path) -> None:
    pre, post = CASES[CHANGES].make(tmp_path).arguments
    with pytest.raises(KeyChangesError) as raised:
        package.analyze(pre, post, sink=lambda *_: None)
    assert raised.value.key == "payload"


def test_a_run_is_written_once(tmp_path: Path, tailscope: Tailscope) -> None:
    made = CASES[CHANGES].make(tmp_path)
    done = tailscope("analyze", *made.arguments, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "11,980" in done.stdout


def test_of_a_pipe_the_bounds_are_told(tmp_path: Path, tailscope: Tailscope) -> None:
    pre, post = CASES[CHANGES].make(tmp_path).arguments
    done = tailscope("analyze", pre, "-", input=Path(post).read_bytes())
    assert done.returncode == 0, done.stderr
    assert "another form" in done.stdout
    assert " to 5,0" in done.stdout


def test_the_table_says_from_where_to_where(tmp_path: Path, tailscope: Tailscope) -> None:
    made = CASES[SECRET].make(tmp_path)
    assert made.truth.lost_proven is not None
    done = tailscope("analyze", *made.arguments)
    low, high = int(made.truth.lost_proven[0]), int(made.truth.lost[0])
    assert f"{low} to {high}" in done.stdout
