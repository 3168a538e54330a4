"""A sample of what ``make chaos`` tries at every operation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from runs import needed


def test_no_fault_loses_harms_or_blocks_anything(tmp_path: Path) -> None:
    """A run, files in a folder of a user's, and notes in a run that is there."""
    needed("cc")
    results = tmp_path / "results"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos.faults", "--json", str(results)),
            *("--commands", "analyze,init,runs note", "--every", "120"),
            *("--together", "1"),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert len({row["fault"] for row in rows}) >= 4
    assert all(row["fired"] for row in rows)
    assert all(all(row["answers"].values()) for row in rows)
