"""Campaigns that are refused before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("campaign", "hint"), [(".", "tailscope report RUN"), ("none", None)], ids=["run", "none"]
)
def test_what_is_no_campaign_is_refused(
    tailscope: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    campaign: str,
    hint: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = tailscope("runs", "publish", campaign, "site")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {campaign}: "), done.stderr
    assert hint is None or hint in done.stderr.partition("\nhint: ")[2]
