"""The conditions for the kernel's osnoise tracer, whose work is tested in guests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailscope.testbed.tracefs import osnoise

if TYPE_CHECKING:
    from pathlib import Path

BOOTED = {
    "osnoise/options": "DEFAULTS OSNOISE_WORKLOAD NO_PANIC_ON_STOP \n",
    "osnoise/cpus": "0-3\n",
    "current_tracer": "nop\n",
    "instances/other/current_tracer": "nop\n",
}
OPTED_OUT = "NO_DEFAULTS NO_OSNOISE_WORKLOAD NO_PANIC_ON_STOP \n"


def tree(root: Path, **changes: str | None) -> dict[Path, str]:
    """Make files as the kernel has them, except `changes`, by their last names."""
    (root / "instances").mkdir()
    files = {}
    for name, text in BOOTED.items():
        new = changes.get(name.rpartition("/")[2], text)
        if new is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new)
            files[path] = new
    return files


@pytest.mark.parametrize(
    "changes",
    [
        {"options": None, "cpus": None},
        {"options": None},
        {"options": OPTED_OUT},
        {"cpus": "0-1\n"},
        {"cpus": "\n"},
        {"current_tracer": "osnoise\n"},
        {"current_tracer": "timerlat\n"},
    ],
)
def test_what_others_use_or_have_set_up_is_left_alone(
    tmp_path: Path, changes: dict[str, str | None]
) -> None:
    files = tree(tmp_path, **changes)
    with osnoise(tmp_path, "tailscope-0-0123abcd", [1, 2]) as is_running:
        assert not is_running
        assert [path.name for path in (tmp_path / "instances").iterdir()] == ["other"]
    assert {path: path.read_text() for path in files} == files


def test_the_instance_is_there_before_the_change(tmp_path: Path) -> None:
    tree(tmp_path)
    options = tmp_path / "osnoise/options"
    with osnoise(tmp_path, "tailscope-0-0123abcd", [1, 2]) as is_running:
        assert is_running
        instance = tmp_path / "instances/tailscope-0-0123abcd-osnoise"
        assert (instance / "current_tracer").read_text() == "osnoise"
        assert options.read_text() == "NO_OSNOISE_WORKLOAD"
    assert (instance / "current_tracer").read_text() == "nop"
    assert options.read_text() == "OSNOISE_WORKLOAD"
