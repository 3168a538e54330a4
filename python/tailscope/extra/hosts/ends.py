"""The programs of the data plane at both ends of a path."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeVar

from tailscope.exceptions import DataplaneError, UsageError
from tailscope.store.records.messages import ReflectResult, SenderResult
from tailscope.testbed.recording import RecordingProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tailscope.testbed.places import Place

_PORT = 862
_NOBODY = 65_534
"""The user and group that own nothing, by convention."""
POLLS = ("sleep", "busy")

Result = TypeVar("Result", ReflectResult, SenderResult)


class _End(RecordingProgram[Result]):
    """A program that may end by itself."""

    def follow(self, is_over: Callable[[], bool]) -> Result:
        """Return the result once the program has ended, which it is asked for when it is over."""
        over = DataplaneError(f"{self._role}: asked to end", code="program-ended")
        try:
            return self._wait_event(self._result, is_over, over)
        except DataplaneError as error:
            if error is not over:
                raise
        return self.finish()


class Reflector(_End[ReflectResult]):
    """Answers queries within a block."""

    def __init__(self, options: Sequence[str], *, place: Place) -> None:
        super().__init__("reflector", "reflect", options, ReflectResult, place=place)


class Sender(_End[SenderResult]):
    """Sends queries within a block."""

    def __init__(self, options: Sequence[str], *, place: Place) -> None:
        super().__init__("sender", "sender", options, SenderResult, place=place)


def become_nobody(own: Iterable[Path]) -> None:
    """Make a process of root, with all its threads, that of a user who owns but these files.

    Where that user does not exist, such as in a namespace of users, it stays.
    """
    if os.geteuid() != 0:
        return
    with suppress(OSError):
        for path in own:
            os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def check_poll(poll: str) -> None:
    """Refuse another way to wait."""
    if poll not in POLLS:
        raise UsageError(f"--poll: got {poll!r}, expected {' or '.join(POLLS)}", code="poll")


def address_of(to: str) -> str:
    """Return the address and port of a host as the sender takes them: ``192.0.2.1:862``."""
    host, port = _host_and_port(to)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError, OverflowError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"--to: {to}: {said}", code="no-host") from None
    family, *_, place = found[0]
    address = str(place[0])
    if family != socket.AF_INET6:
        return f"{address}:{port}"
    link = int(place[-1])
    if ip_address(address).is_link_local and not link:
        raise UsageError(
            f"--to: {to}: {address} is an address on one link, expected with its interface",
            code="no-scope",
            hint=f"such as [{address}%eth0]:{port}",
        )
    return f"[{address}%{link}]:{port}" if link else f"[{address}]:{port}"


def _host_and_port(to: str) -> tuple[str, int]:
    host, colon, port = to.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        # An address of IPv6 without a port, or a name without one.
        host, port = to, str(_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(
            f"--to: got {to!r}, expected HOST or HOST:PORT",
            code="host-and-port",
            hint="such as 192.0.2.1, server:8620 or [2001:db8::1]:862",
        )
    return host, int(port)
