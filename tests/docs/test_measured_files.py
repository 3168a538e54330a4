"""What measurements write is described in the reference."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

from docs.reference import files
from documentation import undescribed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Tailscope
    from measurements import Place

METER = f"command:{shlex.quote(sys.executable)} -c print(45.2)"
EXPERIMENT = "name: one\nfixed: {dut: l2fwd, rate: 10k, duration: 200ms, warm_up: 0s}\n"


def test_files_of_a_measurement_are_described(measure: Callable[..., dict[str, Any]]) -> None:
    options = ("--captures", "--power", METER, "--power-phase", "200ms", "--noise", "auto")
    run = measure("--dut", "l2fwd", *options)
    assert not undescribed(run["out"], files.RUN)


def test_files_of_a_campaign_are_described(
    tailscope: Tailscope, place: Place, dataplane: Path
) -> None:
    (place.path / "one.yaml").write_text(EXPERIMENT)
    out = place.path / "campaign"
    done = tailscope("run", place.path / "one.yaml", "--out", out, env=place.environment)
    assert done.returncode == 0, done.stderr
    found = [path for path in out.iterdir() if path.is_file() and not path.name.startswith(".")]
    assert [path.name for path in found] == ["campaign.json"]
    only = place.path / "only"
    only.mkdir()
    (only / "campaign.json").write_bytes(found[0].read_bytes())
    assert not undescribed(only, files.CAMPAIGN)


def test_files_of_a_recording_are_described(
    tailscope: Tailscope, place: Place, dataplane: Path
) -> None:
    out = place.path / "noise"
    done = tailscope("noise", "--duration", "300ms", "--out", out, env=place.environment)
    assert done.returncode == 0, done.stderr
    assert not undescribed(out, files.NOISE_FOLDER)
