"""`scripts/step`, which set-up and builds run their long steps with."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from runs import AS_ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

BUSY = "setup: this machine is busy"
STEP = Path(__file__).resolve().parents[1] / "scripts" / "step"


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(home), "TERM": "xterm"}


def step(
    home: Path,
    what: str,
    command: str,
    stderr: IO[str] | int = subprocess.PIPE,
    *,
    before: Sequence[str] = (),
    script: Path = STEP,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, script, what, "bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment(home),
        text=True,
        timeout=60,
    )


def test_a_long_step_says_how_long_it_took_in_this_checkout_last_time(tmp_path: Path) -> None:
    thirty_packages = "installing" + " a-package" * 30  # more than a file's name has room for
    first = step(tmp_path, thirty_packages, "echo noise; sleep 2.1").stderr.splitlines()
    (file,) = (tmp_path / "tailscope" / "steps").iterdir()
    kept = file.read_text().strip()
    first = [line for line in first if not line.startswith(BUSY)]
    assert first == [f"setup: {thirty_packages}", f"setup: {thirty_packages} took {kept} s"]
    assert int(kept) >= 2
    in_a_clone = Path(shutil.copy(STEP, tmp_path))
    for script, last in ((STEP, f" (took {kept} s last time)"), (in_a_clone, "")):
        with (tmp_path / "said").open("w+") as said:
            until_it_speaks = f"until [[ -s {said.name} ]]; do sleep 0.1; done"
            step(tmp_path, thirty_packages, until_it_speaks, said, script=script)
            said.seek(0)
            assert said.readline() == f"setup: {thirty_packages}{last}\n"


def test_a_quick_step_says_nothing_and_a_failed_one_everything(tmp_path: Path) -> None:
    quick = step(tmp_path, "looking", "echo noise")
    assert (quick.returncode, quick.stdout, quick.stderr) == (0, "", "")
    failed = step(tmp_path, "looking", "echo out; echo err >&2; exit 7")
    assert failed.returncode == 1
    assert {"out", "err"} <= set(failed.stderr.splitlines())


@AS_ROOT
@pytest.mark.parametrize("load", [0, 100_000])
def test_a_step_on_a_busy_machine_says_so(tmp_path: Path, load: int) -> None:
    loads = tmp_path / "loads"
    loads.write_text(f"{load}.07 1.00 1.00 1/100 1000\n")
    replaced = f'mount --bind {loads} /proc/loadavg && exec "$0" "$@"'
    before = ("unshare", "--mount", "sh", "-c", replaced)
    said = step(tmp_path, "waiting", "sleep 1.5", before=before).stderr
    assert (BUSY in said) == (load > 0)


def test_a_clock_moves_on_a_terminal(tmp_path: Path) -> None:
    """The step lasts until the clock has moved, however late a busy machine draws it."""
    ours, its = pty.openpty()
    moved = tmp_path / "moved"
    command = [STEP, "waiting", "bash", "-c", f"until [[ -e {moved} ]]; do sleep 0.1; done"]
    try:
        with subprocess.Popen(command, stderr=its, env=environment(tmp_path)) as process:
            shown = ""
            while len(set(re.findall(r"waiting (\d+) s", shown))) < 2:
                assert select.select([ours], [], [], 60)[0], shown
                shown += os.read(ours, 1 << 16).decode()
            moved.touch()
            assert process.wait(60) == 0
    finally:
        moved.touch()
        os.close(ours)
        os.close(its)
    assert not list((tmp_path / "tailscope" / "steps").glob("* *"))
