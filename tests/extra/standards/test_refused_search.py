"""Options that are refused before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from errors import code_of

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_is_refused_is_named(tailscope: Callable[..., Any]) -> None:
    done = tailscope(*["search", "--dut", "l2fwd", "--co-runner-cpus", "0", "--dry-run"])
    assert (done.returncode, done.stdout) == (1, "")
    assert code_of(done) == "requires-co-runner"
    assert done.stderr.startswith("error: --co-runner-cpus"), done.stderr
