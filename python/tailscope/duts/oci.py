"""The device ``oci``: any container image, run by podman."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tailscope.duts.command import Command, filled, words_of
from tailscope.duts.dut import Dut, DutContext, Running, as_it_is
from tailscope.duts.program import RunningProgram
from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.cpus import cpu_list
from tailscope.testbed.containers import cgroup_version
from tailscope.testbed.folder import owner_of
from tailscope.testbed.places import Here
from tailscope.testbed.podman import container_runtime, is_rootless, limits, marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailscope.store.records.dataplane import DutCounts
    from tailscope.testbed.places import Place, Process

_STOP_S = 5
_CAPABILITIES = ("NET_ADMIN", "NET_RAW", "SYS_NICE")
_WHERE = (
    *("HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"),
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"),
)
"""Environment variables that tell podman where a user's images are."""


class Oci(Command):
    """An image in the format of the Open Container Initiative, named ``oci:IMAGE``.

    The image must be on this machine: nothing is downloaded. Its own command runs, or ``run``
    instead, under podman's filters of system calls; links and sockets are those of the wire.
    """

    name = "oci"
    about = "any container image: oci:IMAGE, run by podman"
    options = {**Command.options, "image": as_it_is}  # noqa: RUF012
    wires = ("memif", "veth")
    platforms = ("bare",)
    programs = {"podman": "podman"}  # noqa: RUF012

    def check_given(self) -> None:
        """Check that there is an image, and a probe."""
        if not self._image or self._image.startswith("-"):
            raise UsageError(
                f"--dut oci: got image {self._image!r}, expected --dut oci:IMAGE", code="image-name"
            )
        self.check_probe()

    @property
    def _image(self) -> str:
        return self.given.get("image", "")

    @property
    def uses_dpdk(self) -> bool:
        """Return True if the command asks for DPDK's options, or the wire has no links."""
        return self.wire == "memif" or "{eal}" in words_of("run", self.given.get("run", "-"))

    @property
    def starts_in_s(self) -> float:
        """Return the time for a container and its program, in seconds."""
        return 2.0

    def guest_programs(self) -> tuple[Path, ...]:
        """Return nothing: the device does not run in guests."""
        return ()

    def check(self) -> None:
        """Check that podman exists and has the image."""
        import subprocess

        Dut.check(self)
        command = [*_podman(), "image", "exists", self._image]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:  # noqa: S603
            raise TestbedError(
                f"dut oci: podman has no image {self._image} for this user",
                code="no-image",
                hint=f"`podman pull {self._image}` downloads it, `podman load` reads one from a"
                " file; `podman images` lists those that are there",
            )

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Run the image, and wait for its probe."""
        name = _name(context.place.folder)
        # Podman itself puts the container into the namespace of the links.
        place = Here(context.place.folder, mark=name, ended_by=signal.SIGTERM)
        words = filled(words_of("run", self.given["run"]), context) if "run" in self.given else []
        podman = _podman()
        command = [*podman, *self._run(name, context), self._image, *words]
        inspect = [*podman, "image", "inspect", "--format={{.Id}}", self._image]
        version = f"image {place.run(inspect).strip()}"
        if "version" in self.given:
            version = f"{place.run(words_of('version', self.given['version'])).strip()}, {version}"
        with place.start(
            "dut", command, cpus=self.cpus_of(context), merged=True, urgent=True
        ) as process:
            try:
                self.wait_ready(self._image, process, context)
                stop = [*podman, "stop", f"--time={_STOP_S}", name]
                yield _Running(self._image, process, place, stop, version, command)
            finally:
                with suppress(TestbedError):
                    place.run([*podman, "rm", "--force", "--ignore", "--time=0", name])

    def _run(self, name: str, context: DutContext) -> Sequence[str]:
        folder = context.place.folder
        own = [] if is_rootless() else [f"--cpuset-cpus={cpu_list(self.cpus_of(context))}"]
        return [
            "run",
            "--rm",
            "--pull=never",
            f"--name={name}",
            f"--network={_network(context.side.namespace)}",
            *own,
            *(f"--cap-add={capability}" for capability in _CAPABILITIES),
            *limits(),
            *marks(folder, name),
            # The wire's sockets are beside the device's folder.
            f"--volume={folder.parent}:{folder.parent}",
        ]


class _Running(RunningProgram):
    def __init__(
        self,
        name: str,
        process: Process,
        place: Place,
        stop: Sequence[str],
        version: str,
        configuration: list[str],
    ) -> None:
        super().__init__(name, process, version=version, configuration=configuration)
        self._place, self._stop = place, stop

    def stop(self) -> DutCounts | None:
        """Stop the container by podman: its first process may ignore signals."""
        # The container may have ended by itself.
        with suppress(TestbedError):
            self._place.run(self._stop)
        return super().stop()


def _podman() -> list[str]:
    """Return the words that call this user's podman."""
    variables = [f"{name}={os.environ[name]}" for name in _WHERE if name in os.environ]
    words = ["env", *variables, "podman"]
    runtime = container_runtime() if cgroup_version() == 1 else None
    return [*words, "--log-level=error", *([f"--runtime={runtime}"] if runtime else [])]


def _network(namespace: str | None) -> str:
    """Return podman's name of the links' namespace; ``none`` over shared memory."""
    from pyroute2 import netns

    return "none" if namespace is None else f"ns:{netns.NETNS_RUN_DIR}/{namespace}"


def _name(folder: Path) -> str:
    """Return the name of a container: that of the measurement and its part."""
    at = next(at for at, part in enumerate(folder.parts) if owner_of(part) == part)
    return "-".join(folder.parts[at:])
