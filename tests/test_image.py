"""The image has all that a measurement takes, and needs no privileges."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runs import AS_ROOT, needed, sound

from tailscope.testbed.containers import cgroup_version
from tailscope.testbed.podman import container_runtime, limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Podman = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).parents[1]
NOBODY = 65534
BARE = ("--cap-drop=all", "--security-opt=no-new-privileges", "--network=none", f"--user={NOBODY}")

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("dataplane"), AS_ROOT]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """Podman with a store of its own."""
    needed("make", "cargo", "podman")
    folder = tmp_path_factory.mktemp("store")
    runtime = container_runtime() if cgroup_version() == 1 else None
    words = [
        *("podman", "--root", folder / "store", "--runroot", folder / "run"),
        *("--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--log-level=error"),
        *([f"--runtime={runtime}"] if runtime else []),
    ]

    def call(*more: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, (*words, *more))], capture_output=True, text=True, check=False
        )

    yield call
    call("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def image(podman: Podman) -> str:
    """The image's name, in that store."""
    for old in (ROOT / "dist").glob("tailscope-*"):
        old.unlink()
    subprocess.run(["make", "PROFILE=quick", "image"], cwd=ROOT, check=True)
    [archive] = (ROOT / "dist").glob("tailscope-*-oci.tar")
    loaded = podman("load", "--input", archive)
    assert loaded.returncode == 0, loaded.stderr
    return loaded.stdout.split()[-1]


def test_an_image_measures_without_privileges(podman: Podman, image: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(0o777)
    words = ("run", "--rm", *BARE, *limits(), f"--volume={work}:/work", image)
    quick = ("--dut", "l2fwd", "--duration", "500ms", "--warm-up", "100ms", "--rate", "5k")
    done = podman(*words, "run", *quick, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert sound(work / "run")["complete"]
    judged = podman(*words, "verify", "run", "--slo", "p50<10s")
    assert judged.returncode == 0, judged.stdout + judged.stderr
