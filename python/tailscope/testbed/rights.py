"""Rights of this process: its capabilities, as in capabilities(7)."""

from __future__ import annotations

import os
from enum import IntEnum
from fcntl import ioctl
from pathlib import Path

from tailscope.exceptions import TestbedError
from tailscope.host import remedies

_FIRST_USERS = 0xEFFFFFFD
"""Inode of the user namespace in which the machine starts."""
_GET_USERS = 0xB701
"""Request NS_GET_USERNS, which opens the user namespace that owns a namespace."""


class Capability(IntEnum):
    """A capability, by its number in the kernel."""

    DAC_OVERRIDE = 1
    NET_ADMIN = 12
    NET_RAW = 13
    IPC_LOCK = 14
    SYS_ADMIN = 21
    PERFMON = 38
    BPF = 39

    def __str__(self) -> str:
        """Return the usual name, such as ``cap_net_admin``."""
        return f"cap_{self.name.lower()}"


def require(what: str, *needed: Capability, otherwise: str, of_machine: bool = False) -> None:
    """Check that this process has capabilities, if required outside of a user namespace."""
    is_confined = of_machine and has_own_users()
    held = frozenset() if is_confined else _effective()
    if missing := [str(capability) for capability in needed if capability not in held]:
        where = " of the machine, got those of a user namespace" if is_confined else ""
        raise TestbedError(
            f"{what}: missing {', '.join(missing)}{where}",
            code="missing-capability",
            remedy=remedies.capabilities(),
            hint=otherwise,
        )


def may_write(folder: Path) -> bool:
    """Return True if this process may make and remove files in a folder."""
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def has_own_users() -> bool:
    """Return True if this process is in another user namespace than that of the machine."""
    try:
        return Path("/proc/self/ns/user").stat().st_ino != _FIRST_USERS
    except FileNotFoundError:
        return False  # A kernel without such namespaces.


def owns_network() -> bool:
    """Return True if the capabilities of this process apply to its network namespace.

    Capabilities of a user namespace do not apply to the network namespace of the machine.
    """
    with Path("/proc/thread-self/ns/net").open("rb") as network:
        try:
            os.close(ioctl(network, _GET_USERS))
        except PermissionError:
            return False
        except OSError:
            return True  # A kernel without such namespaces.
    return True


def _effective() -> frozenset[Capability]:
    status = Path("/proc/thread-self/status").read_text()
    [mask] = (
        int(value, 16)
        for name, _, value in (line.partition(":") for line in status.splitlines())
        if name == "CapEff"
    )
    return frozenset(capability for capability in Capability if mask >> capability & 1)
