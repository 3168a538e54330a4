"""Real container images as devices, made of this machine's programs."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import raises
from runs import AS_ROOT, left_behind, needed, sound

from tailscope.duts.catalogue import dut_named
from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measurements import Place

    Measure = Callable[..., dict[str, Any]]

IMAGE = "localhost/tailscope-test:forwarder"
RUN = ("--dut-option", "run=l2fwd -l {cpus} --no-telemetry {eal} --")
READY = ("--dut-option", 'ready="event":"ready"')
DRIVERS = ("net_memif", "net_af_packet", "mempool_ring", "bus_vdev", "bus_pci")


@pytest.fixture(scope="module")
def image(dataplane: Path) -> Iterator[str]:
    """Import an image of the forwarder with DPDK's drivers for memif and links."""
    needed("podman")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(dataplane, "bin/forwarder")
        for path in sorted(libraries(dataplane)):
            archive.add(path, str(path).lstrip("/"), recursive=False)
        for name in ("lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(link)
    entry = 'ENTRYPOINT ["/bin/forwarder"]'
    made = ["podman", "import", "--quiet", "--change", entry, "-", IMAGE]
    subprocess.run(made, input=content.getvalue(), capture_output=True, check=True)
    yield IMAGE
    subprocess.run(["podman", "rmi", "--force", IMAGE], capture_output=True, check=True)


def libraries(program: Path) -> set[Path]:
    """Return all libraries of a program and of the drivers, with the links that lead to them."""
    [folder] = Path("/usr/lib").glob("*/dpdk/pmds-*")
    drivers = [path for name in DRIVERS for path in folder.glob(f"librte_{name}.so.*")]
    command = ["ldd", program, *drivers]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    paths = set()
    for library in (*map(Path, re.findall(r"(/\S+\.so\S*) \(", listed)), *drivers):
        path = library.parent.resolve() / library.name
        while path.is_symlink():
            paths.add(path)
            path = (path.parent / path.readlink()).parent.resolve() / path.readlink().name
        paths.add(path)
    return paths


@AS_ROOT
@pytest.mark.parametrize("wire", ["memif", pytest.param("veth", marks=pytest.mark.long)])
def test_an_image_is_a_device(measure: Measure, image: str, wire: str) -> None:
    figures = measure("--dut", f"oci:{image}", "--wire", wire, *RUN, *READY, "--rate", "2k")
    info = sound(figures["out"])
    assert figures["count"] == figures["sent"]
    assert (info["plan"]["dut"], info["plan"]["dut_options"]["image"]) == ("oci", image)
    assert re.fullmatch(r"image [0-9a-f]{64}", info["dut"]["version"])
    assert not left_behind()
    listed = subprocess.run(["podman", "ps", "--all", "--quiet"], capture_output=True, text=True)
    assert listed.stdout == ""


def test_an_image_that_is_not_there_is_named(tailscope: Any, place: Place) -> None:
    needed("podman")
    words = ("run", "--dut", "oci:localhost/none", *READY, "--dry-run")
    done = tailscope(*words, env=place.environment)
    assert "podman pull localhost/none" in done.stdout, done.stderr


def test_what_is_no_image_or_in_no_place_is_refused(tailscope: Any, place: Place) -> None:
    with raises(UsageError, "image-name"):
        dut_named("oci", {"ready": "up"})
    with raises(UsageError, "no-probe"):
        dut_named("oci", {"image": "a"})
    words = ("run", "--dut", "oci:a", *READY, "--platform", "lxc", "--dry-run")
    done = tailscope(*words, env=place.environment)
    assert done.returncode == 1
    assert all(value in done.stderr for value in ("--platform: ", "'lxc'", "bare", "--dut oci"))
