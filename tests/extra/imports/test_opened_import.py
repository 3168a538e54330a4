"""An import, opened in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import tailscope as package
from tailscope.exceptions import RunError

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]


def test_an_import_has_no_packets(tailscope: Run, tmp_path: Path) -> None:
    (tmp_path / "histogram.csv").write_text("10,1\n20,2\n30,40\n")
    done = tailscope("runs", "import", tmp_path / "histogram.csv", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = package.open(tmp_path / "run")
    assert isinstance(run, package.OpenedRun)
    assert run.worst is None and run.noise is None
    assert "43 packets" in run._repr_html_()
    with pytest.raises(RunError) as caught:
        run.latencies()
    assert str(run.path) in str(caught.value)
