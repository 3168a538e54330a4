"""The hosts of a mesh, as a file names them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import msgspec

from tailscope.exceptions import UsageError
from tailscope.plan.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class MeshHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host of a mesh."""

    reflect: str
    """Where `tailscope reflect` answers: ``HOST`` or ``HOST:PORT``."""
    metrics: str | None = None
    """Where its watch tells metrics: ``HOST:PORT``."""


class _MeshFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hosts: dict[str, MeshHost]


def read_mesh(path: Path) -> Mapping[str, MeshHost]:
    """Read the hosts of a mesh, by name."""
    try:
        hosts = msgspec.convert(read_yaml(path).content, _MeshFile).hosts
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}: {error}",
            code="mesh-file",
            hint="hosts: {a: {reflect: 192.0.2.1}, b: {reflect: 192.0.2.2}}",
        ) from None
    if len(hosts) < 2:
        raise UsageError(f"{path}: hosts: got {len(hosts)}, expected two or more", code="mesh-file")
    return hosts


def own_name(hosts: Mapping[str, MeshHost], given: str | None) -> str:
    """Return the name of this host in a mesh: the one given, or that of the machine."""
    name = socket.gethostname() if given is None else given
    if name not in hosts:
        raise UsageError(
            f"--as: got {name!r}, expected a host of the mesh: {', '.join(hosts)}",
            code="no-mesh-host",
            hint="name this host by --as, as the file does",
        )
    return name
