"""Options that are refused before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_is_refused_is_named(tailscope: Callable[..., Any]) -> None:
    done = tailscope(*["host", "tune", "none.yaml", "--rounds", "0"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: --rounds: got 0"), done.stderr
