"""What continuous integration prints and keeps, with a `make` that only says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / ".ci" / "run"
MAKE = """#!/bin/sh
case "$*" in
    *test)
        echo 'make test: test-rust took 7 s'
        echo '0.25s call     tests/test_a.py::test_quick'
        echo '12.50s setup    tests/test_a.py::test_slow[call 99.00s]'
        for at in $(seq 30); do echo "1.00s call     tests/test_b.py::test_$at"; done
        echo 'FAILED tests/test_c.py::test_busy - AssertionError'
        exit "$TESTS_END_WITH"
        ;;
esac
"""


@pytest.mark.parametrize("status", [0, 2])
def test_steps_and_the_slowest_tests_are_printed_and_kept(tmp_path: Path, status: int) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci")
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(MAKE)
    make.chmod(0o755)
    environment = {"PATH": f"{make.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env={**environment, "TESTS_END_WITH": str(status)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    kept = (tmp_path / "target" / "ci" / "seconds.txt").read_text()
    assert done.stdout.endswith(kept)
    steps, _, rest = kept.partition("\nthe slowest tests:\n")
    slowest, _, failed = rest.partition("\nwhat failed at least once:\n")
    assert failed == "FAILED tests/test_c.py::test_busy - AssertionError\n"
    assert [line.partition("  ")[2] for line in steps.splitlines()] == [
        "make -j2 setup-ci",
        "make -j2 --output-sync=target lint",
        "test-rust",
        "make test",
    ]
    lines = slowest.splitlines()
    assert len(lines) == 25
    assert lines[0].startswith("12.50s setup") and "test_quick" not in slowest
    for step in ("make -j2 setup-ci", "make test"):
        assert f"ci: {step}\n" in done.stdout
