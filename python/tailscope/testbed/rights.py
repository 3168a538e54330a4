"""What the kernel lets this process do: its capabilities, as in capabilities(7)."""

from __future__ import annotations

import os
from enum import IntEnum
from fcntl import ioctl
from pathlib import Path

from tailscope.exceptions import TestbedError

_FIRST_USERS = 0xEFFFFFFD
"""The kernel's number of the user namespace that the machine starts with."""
_GET_USERS = 0xB701
"""NS_GET_USERNS: asks which user namespace a namespace belongs to."""
_PAGE = "docs/security.md"


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
        """As people write it, such as ``cap_net_admin``."""
        return f"cap_{self.name.lower()}"


def require(what: str, *needed: Capability, otherwise: str, of_machine: bool = False) -> None:
    """See that this process has capabilities."""
    is_confined = of_machine and has_own_users()
    held = frozenset() if is_confined else _effective()
    if missing := [str(capability) for capability in needed if capability not in held]:
        where = " of the machine, got those of a user namespace" if is_confined else ""
        raise TestbedError(
            f"{what}: missing {', '.join(missing)}{where}",
            hint=f"run as root, or with these capabilities ({_PAGE}), or {otherwise}",
        )


def may_write(folder: Path) -> bool:
    """Whether this process may make and remove files in a folder, by whatever right."""
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def has_own_users() -> bool:
    """Whether this process is in another user namespace than the one the machine starts with."""
    try:
        return Path("/proc/self/ns/user").stat().st_ino != _FIRST_USERS
    except FileNotFoundError:
        return False  # A kernel without such namespaces.


def owns_network() -> bool:
    """Whether the capabilities of this process count in its network namespace.

    They do not in that of the machine, if they are those of a user namespace.
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
