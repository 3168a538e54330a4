"""A wheel is packed anew, with man pages and completions."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from wheel.wheelfile import WheelFile

PACK = Path(__file__).parents[1] / "scripts" / "pack"
NAME = "tailscope-0.1.0-cp311-abi3-manylinux_2_34_x86_64.whl"
INFO = "tailscope-0.1.0.dist-info"


def test_a_wheel_gets_data_files_in_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    """As `make wheel` does at its end, in a fresh checkout."""
    built, manual, dist = (tmp_path / name for name in ("a built", "manual", "new/dist"))
    built.mkdir()
    with WheelFile(built / NAME, "w") as wheel:
        wheel.writestr("tailscope/__init__.py", "")
        wheel.writestr(
            f"{INFO}/METADATA", "Metadata-Version: 2.4\nName: tailscope\nVersion: 0.1.0\n"
        )
        wheel.writestr(
            f"{INFO}/WHEEL", "Wheel-Version: 1.0\nTag: cp311-abi3-manylinux_2_34_x86_64\n"
        )
    page = manual / "share/man/man1/tailscope.1"
    page.parent.mkdir(parents=True)
    page.write_text("a page")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = [PACK, built / NAME, manual, dist]
    subprocess.run(words, env={**os.environ, "PATH": path}, check=True)
    with zipfile.ZipFile(dist / NAME) as packed:
        assert packed.read("tailscope-0.1.0.data/data/share/man/man1/tailscope.1") == b"a page"
        assert b"share/man/man1/tailscope.1,sha256=" in packed.read(f"{INFO}/RECORD")
