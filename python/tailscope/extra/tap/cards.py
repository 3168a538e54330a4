"""Times that cards take of the frames that come in by both interfaces."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.cards import ALL_FRAMES, offered_stamps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SET, _GET = 0x89B0, 0x89B1
"""Requests SIOCSHWTSTAMP and SIOCGHWTSTAMP: what a card takes times of."""
_KERNEL = "without --stamps card, the kernel takes them"


def clock_of_cards(stamps: str, links: Sequence[str], *, taps: bool) -> str | None:
    """Return the clock that both cards take times by; None if the kernel is to take them."""
    if stamps not in ("kernel", "card"):
        raise UsageError(
            f"--stamps: got {stamps!r}, expected kernel or card", code="tap-stamps-unknown"
        )
    if stamps == "kernel":
        return None
    if not taps:
        raise UsageError(
            "--stamps card requires --taps: a card tells nobody but the sender of a frame when it"
            " left",
            code="tap-stamps-leaving",
            hint=f"feed both interfaces by taps or mirror ports; {_KERNEL}",
        )
    clocks = []
    for link in links:
        offer = offered_stamps(link)
        if not offer.stamps_all or offer.clock is None:
            raise TestbedError(
                f"{link}: its card takes no times of all frames that come in",
                code="tap-stamps-card",
                hint=f"`ethtool -T {link}` shows what it offers; {_KERNEL}",
            )
        clocks.append(offer.clock)
    if clocks[0] != clocks[1]:
        raise TestbedError(
            f"{' and '.join(links)} have two clocks, ptp{clocks[0]} and ptp{clocks[1]}, which"
            " nothing compares",
            code="tap-stamps-clocks",
            hint=f"tap two ports of one card; {_KERNEL}",
        )
    return f"/dev/ptp{clocks[0]}"


@contextmanager
def stamping(links: Sequence[str]) -> Iterator[None]:
    """Have cards take the times of all frames that come in, within a block."""
    with ExitStack() as stack:
        for link in links:
            before = _read(link)
            if before[2] != ALL_FRAMES:
                stack.callback(_restore, link, before)
                _write(link, (*before[:2], ALL_FRAMES))
                if _read(link)[2] != ALL_FRAMES:
                    raise _refused(link, "it chose other frames")
        yield


def _read(link: str) -> tuple[int, int, int]:
    return _asked(link, _GET, (0, 0, 0))


def _write(link: str, settings: tuple[int, int, int]) -> None:
    _asked(link, _SET, settings)


def _restore(link: str, settings: tuple[int, int, int]) -> None:
    with suppress(TestbedError):
        _write(link, settings)


def _asked(link: str, request: int, settings: tuple[int, int, int]) -> tuple[int, int, int]:
    """Ask a driver for its flags, and which frames it takes times of as they leave and come."""
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
        f"{link}: its driver does not take times of all frames: {reason}",
        code="tap-stamps-driver",
        hint=f"root may change that; {_KERNEL}",
    )
