"""`scripts/step`, which set-up and builds run their long steps with."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path
from typing import IO

STEP = Path(__file__).resolve().parents[1] / "scripts" / "step"


def step(
    home: Path, what: str, command: str, stderr: IO[str] | int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(home), "TERM": "xterm"}
    return subprocess.run(
        [STEP, what, "bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        text=True,
        timeout=60,
    )


def test_a_long_step_says_how_long_it_took_last_time(tmp_path: Path) -> None:
    thirty_packages = "installing" + " a-package" * 30  # more than a file's name has room for
    first = step(tmp_path, thirty_packages, "echo noise; sleep 2.1").stderr.splitlines()
    (file,) = (tmp_path / "tailscope" / "steps").iterdir()
    kept = file.read_text().strip()
    assert first == [f"setup: {thirty_packages}", f"setup: {thirty_packages} took {kept} s"]
    assert int(kept) >= 2
    again = step(tmp_path, thirty_packages, "sleep 1.5").stderr.splitlines()
    assert again[0] == f"setup: {thirty_packages} (took {kept} s last time)"


def test_a_quick_step_says_nothing_and_a_failed_one_everything(tmp_path: Path) -> None:
    quick = step(tmp_path, "looking", "echo noise")
    assert (quick.returncode, quick.stdout, quick.stderr) == (0, "", "")
    failed = step(tmp_path, "looking", "echo out; echo err >&2; exit 7")
    assert failed.returncode == 1
    assert {"out", "err"} <= set(failed.stderr.splitlines())


def test_a_clock_moves_on_a_terminal(tmp_path: Path) -> None:
    ours, its = pty.openpty()
    try:
        step(tmp_path, "waiting", "sleep 3.2", its)
        shown = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(its)
    assert len(set(re.findall(r"waiting \d s", shown))) >= 2
    assert not list((tmp_path / "tailscope" / "steps").glob("* *"))
