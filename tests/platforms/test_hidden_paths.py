"""The mounts of a guest or a container must not hide the files that it needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from runs import AS_ROOT, needed

from tailscope.platforms.initramfs import _Root
from tailscope.testbed.containers import hidden_paths


@AS_ROOT
@pytest.mark.parametrize("way", ["", "relative", "absolute", "chained", "up"])
def test_a_program_is_found_in_a_guest_by_the_path_that_it_has_here(
    tmp_path: Path, way: str
) -> None:
    """This holds for a program behind links, too."""
    needed("busybox")
    program = tmp_path / "real" / "deep" / "a program"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/busybox sh\necho found\n")
    program.chmod(0o755)
    (tmp_path / "relative").symlink_to("real")
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "chained").symlink_to("relative")
    (tmp_path / "real" / "up").symlink_to("../real")
    path = tmp_path / {"": "real", "up": "real/up"}.get(way, way) / "deep" / program.name
    root = _Root(tmp_path / "root")
    root.add_busybox()
    root.add_program(path)
    for name in (str(path), program.name):
        output = subprocess.check_output(
            ["chroot", root.path, "/bin/busybox", "env", name], text=True
        )
        assert output == "found\n"


def test_what_a_container_has_of_its_own_hides_paths_below_it(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/shm")
    needed_paths = (Path("/usr/bin/env"), Path("/run/media/a"), link / "b", Path("/runner/c"))
    hidden = hidden_paths(needed_paths, ["dev", "run"])
    assert hidden == [Path("/dev/shm/b").resolve(), Path("/run/media/a")]
    assert hidden_paths([Path("b")], [""])[0].is_absolute()
