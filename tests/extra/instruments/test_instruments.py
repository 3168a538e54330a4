"""Every instrument that is installed measures, started as its documentation says."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tailscope
    from measurements import Place


@pytest.mark.long
@pytest.mark.usefixtures("dataplane")
def test_all_instruments_measure_or_say_why_not(
    tailscope: Tailscope, place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "board.json"
    words = "calibrate --instruments all --truths constant --duration 1s --repeats 1 --json"
    done = tailscope(*words.split(), file, env=place.environment)
    assert done.returncode == 0, done.stderr
    board = json.loads(file.read_text())
    measured = {cell["instrument"] for cell in board["cells"]}
    failed = {each["instrument"]: each["reason"] for each in board["failures"]}
    assert measured | {*failed} == {*board["instruments"]}
    assert "tailscope-memif" in measured
    if os.geteuid() == 0:
        assert all("no program" in reason for reason in failed.values()), failed
