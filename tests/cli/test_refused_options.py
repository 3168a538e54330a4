"""Options that are refused before anything starts, with what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("arguments", "code", "names", "hint"),
    [
        ("run", None, "--dut", "or give an experiment FILE"),
        ("run none.yaml", None, "none.yaml", "`tailscope run --dut NAME`"),
        ("run --dut l2fwd --cpus a,b --dry-run", None, "--cpus: got 'a,b'", None),
        (
            "run --dut l2fwd --co-runner cpu=1 --co-runner-cpus zz --dry-run",
            None,
            "--co-runner-cpus: got 'zz'",
            None,
        ),
        (
            "run --dut l2fwd --co-runner-cpus 0 --dry-run",
            "requires-co-runner",
            "--co-runner-cpus",
            None,
        ),
        ("calibrate --wire vhost", "wire", "--wire: got 'vhost'", None),
        ("compare r1", "one-run", "got r1 only", "tailscope runs show RUN"),
    ],
)
def test_what_is_refused_says_what_to_do(
    tailscope: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    code: str | None,
    names: str,
    hint: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = tailscope(*arguments.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert code_of(done) == code or code is None
    assert done.stderr.startswith(f"error: {names}"), done.stderr
    assert hint is None or hint in done.stderr.partition("\nhint: ")[2]
