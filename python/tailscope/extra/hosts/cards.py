"""Cards that take the times of packets, of those that leave and of those that come."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError
from tailscope.host.cards import ALL_FRAMES, offered_stamps

if TYPE_CHECKING:
    from collections.abc import Iterator

_SET, _GET = 0x89B0, 0x89B1
"""Requests SIOCSHWTSTAMP and SIOCGHWTSTAMP: of which packets a card takes times."""
_LEAVING = 1
"""HWTSTAMP_TX_ON: it does of those that leave, where a socket asks for it."""
_HINT = "`ethtool -T {link}` shows what it offers; without --card the kernel takes the times"


@contextmanager
def stamping(link: str | None) -> Iterator[None]:
    """Have the card of a link take the times of all packets within a block; of None do nothing."""
    if link is None:
        yield
        return
    offer = offered_stamps(link)
    if not offer.stamps_all or offer.clock is None:
        raise TestbedError(
            f"{link}: its card takes no times of all packets that come",
            code="hosts-card",
            hint=_HINT.format(link=link),
        )
    before = _asked(link, _GET, (0, 0, 0))
    wanted = (before[0], _LEAVING, ALL_FRAMES)
    try:
        if before != wanted and _asked(link, _SET, wanted)[1:] != wanted[1:]:
            raise _refused(link, "it chose other packets")
        yield
    finally:
        if before != wanted:
            with suppress(TestbedError):
                _asked(link, _SET, before)


def _asked(link: str, request: int, settings: tuple[int, int, int]) -> tuple[int, int, int]:
    """Ask a driver for its flags, and of which packets it takes times as they leave and come."""
    words = array.array("i", settings)
    asked = struct.pack("16sP16x", link.encode(), words.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            fcntl.ioctl(handle, request, asked)
    except OSError as error:
        raise _refused(link, str(error.strerror)) from None
    flags, leaving, coming = words
    return flags, leaving, coming


def _refused(link: str, reason: str) -> TestbedError:
    return TestbedError(
        f"{link}: its driver does not take times of all packets: {reason}",
        code="hosts-card-driver",
        hint=f"root may change that; {_HINT.format(link=link)}",
    )
