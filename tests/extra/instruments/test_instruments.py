"""Instruments are compared where they work, and say why not elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements import Place


@pytest.mark.long
@pytest.mark.usefixtures("dataplane")
def test_instruments_that_cannot_be_used_say_why(
    tailscope: Callable[..., Any], place: Place
) -> None:
    out = place.path / "out"
    arguments = ("calibrate", "instruments", "--duration", "300ms", "--out", out)
    done = tailscope(*arguments, env=place.environment)
    assert done.returncode == 0, done.stderr
    lines = {line[:18].strip(): line for line in done.stdout.splitlines()}
    assert "not available" not in lines["memif, TSC"]
    if os.geteuid() != 0:
        assert "expected root" in lines["AF_PACKET, TSC"]
    else:
        for name in ("AF_PACKET, TSC", "AF_XDP, TSC", "tcpdump, kernel", "sockperf, sockets"):
            assert "not available" not in lines[name] or "no program" in lines[name]
    assert (out / "instruments.svg").stat().st_size > 1000
    first = (out / "instruments.csv").read_text().splitlines()[1]
    assert first.startswith('"memif, TSC",')
