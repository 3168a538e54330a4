"""Options that are refused before anything starts, with what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        ("run", "--dut: got none, expected one of loop", "or give an experiment FILE"),
        ("run none.yaml", "none.yaml: there is no such file", "`tailscope run --dut NAME`"),
        (
            "run --dut l2fwd --cpus a,b --dry-run",
            "--cpus: got 'a,b', expected a list of CPUs such as 1,3-5",
            None,
        ),
        (
            "run --dut l2fwd --co-runner cpu=1 --co-runner-cpus zz --dry-run",
            "--co-runner-cpus: got 'zz', expected a list of CPUs",
            None,
        ),
        (
            "run --dut l2fwd --co-runner-cpus 0 --dry-run",
            "--co-runner-cpus: expected --co-runner, too",
            None,
        ),
        (
            "search --dut l2fwd --co-runner-cpus 0 --dry-run",
            "--co-runner-cpus: expected --co-runner, too",
            None,
        ),
        ("calibrate --wire vhost", "--wire: got 'vhost', expected memif or veth or pci\n", None),
        ("tune none.yaml --rounds 0", "--rounds: got 0, expected at least 3", None),
        ("publish . site", ".: expected a campaign, got a folder without", "tailscope report RUN"),
        ("publish none site", "none: expected a campaign, got no such folder", None),
        ("compare r1", "got r1 only, expected two runs or more", "tailscope show RUN"),
    ],
)
def test_what_is_refused_says_what_to_do(
    tailscope: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    error: str,
    hint: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = tailscope(*arguments.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {error}"), done.stderr
    assert hint is None or hint in done.stderr.partition("\nhint: ")[2]
