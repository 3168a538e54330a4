"""The wheel has all that a measurement takes: no compiler, no DPDK, no root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runs import needed

if TYPE_CHECKING:
    from measurements import Place

ROOT = Path(__file__).parents[1]
OF_ANY_SYSTEM = ("linux-vdso", "libc.so", "libm.so", "libgcc_s.so", "ld-linux")

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("dataplane")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as a folder of packages of its own."""
    needed("make", "cargo")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    subprocess.run(["make", "PROFILE=quick", "wheel"], cwd=ROOT, check=True)
    [wheel] = (ROOT / "dist").glob("*.whl")
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(folder)
    (folder / "tailscope/bin/tailscope-dp").chmod(0o755)
    folder.chmod(0o755)
    return folder


def test_the_data_plane_needs_what_every_system_has(installed: Path) -> None:
    binary = installed / "tailscope/bin/tailscope-dp"
    said = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
    others = [line for line in said.splitlines() if not any(name in line for name in OF_ANY_SYSTEM)]
    assert not others


def test_man_pages_and_completions_are_installed(installed: Path) -> None:
    [data] = installed.glob("tailscope-*.data/data/share")
    page = (data / "man/man1/tailscope-run.1").read_text()
    assert "tailscope run" in page
    assert "maturin" not in page
    names = {"bash-completion/completions/tailscope", "zsh/site-functions/_tailscope"}
    for name in {*names, "fish/vendor_completions.d/tailscope.fish"}:
        assert "_TAILSCOPE_COMPLETE" in (data / name).read_text()


def test_a_measurement_works(installed: Path, place: Place) -> None:
    out = place.path / "run"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tailscope", "run", "--dut", "l2fwd", "--duration", "500ms"),
            *("--rate", "5k", "--out", out),
        ],
        env={**place.environment, "PYTHONPATH": str(installed), "PATH": os.defpath},
        cwd=place.path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loaded = subprocess.run(
        [sys.executable, "-c", "import tailscope; print(tailscope.__file__)"],
        env={**place.environment, "PYTHONPATH": str(installed)},
        cwd=place.path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(loaded.stdout.strip()).is_relative_to(installed)
    assert (out / "report.html").exists()
