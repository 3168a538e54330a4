"""The wheel for AArch64, run by QEMU, has the figures of this processor: `make test-arm`."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Tailscope

    Command = Callable[..., str]

ROOT = Path(__file__).parents[1]
ARM = ROOT / "scripts" / "arm"
SYSTEM = Path(sys.prefix) / "share" / "tailscope" / "aarch64"
EM_AARCH64 = 183
PAIR = (
    "captures/latencies-pre-rate10000-seed7.pcap",
    "captures/latencies-post-rate10000-seed7.pcap",
)
SIMULATED = ("--packets", "20000", "--seed", "7")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and what it needs, in a folder of packages of AArch64."""
    wheels = list((ROOT / "dist").glob("*_aarch64.whl"))
    if not wheels or not SYSTEM.exists():
        pytest.skip("no wheel for AArch64: make test-arm builds one")
    folder = tmp_path_factory.mktemp("aarch64")
    [version] = (SYSTEM / "usr/lib").glob("python3.*")
    words = ["uv", "pip", "install", "--quiet", "--target", folder, "--only-binary", ":all:"]
    words += ["--python-platform", "aarch64-manylinux_2_40"]
    words += ["--python-version", version.name.removeprefix("python")]
    subprocess.run([*words, "--constraint", ROOT / "constraints.txt", *wheels], check=True)
    return folder


@pytest.fixture
def emulated(installed: Path, tmp_path: Path) -> Command:
    """Runs the command of the wheel in a folder."""

    def run(*words: object) -> str:
        done = subprocess.run(
            [ARM, "python", "-m", "tailscope", *map(str, words)],
            cwd=tmp_path,
            env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_what_is_compiled_is_of_aarch64(installed: Path) -> None:
    binaries = [*(installed / "tailscope").glob("_engine*.so")]
    binaries.append(installed / "tailscope/bin/tailscope-dp")
    for binary in binaries:
        head = binary.read_bytes()[:20]
        assert head[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", head, 18) == (EM_AARCH64,), binary
    assert len(binaries) == 2


def test_simulated_captures_and_their_figures_are_the_same_to_the_last_bit(
    emulated: Command, tailscope: Tailscope, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()

    def native(*words: object) -> str:
        done = tailscope(*words, cwd=here)
        assert done.returncode == 0, done.stderr
        return done.stdout

    emulated("simulate", "captures", *SIMULATED)
    native("simulate", "captures", *SIMULATED)
    for name in (*PAIR, "captures/truth.json"):
        assert (tmp_path / name).read_bytes() == (here / name).read_bytes(), name
    for options in ((), ("--match-on", "probe"), ("--by", "flow", "--worst", "50")):
        words = ("analyze", *PAIR, *options, "--json", "-")
        theirs, ours = json.loads(emulated(*words)), json.loads(native(*words))
        assert theirs == ours
        assert theirs["count"] > 10_000


def test_the_data_plane_starts(installed: Path) -> None:
    binary = installed / "tailscope/bin/tailscope-dp"
    version = subprocess.run(
        [SYSTEM / "qemu-aarch64", "-L", SYSTEM, binary, "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout.startswith("tailscope-dp ")
