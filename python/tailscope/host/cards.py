"""Settings of network cards, read and written by the system call that ``ethtool`` uses."""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct
from typing import NamedTuple

_SIOCETHTOOL = 0x8946
_NAME_BYTES = 16
_GET_TS_INFO, _TS_INFO_WORDS = 0x41, 11
_STAMPS = 1 << 2 | 1 << 6
"""Flags SOF_TIMESTAMPING_RX_HARDWARE and SOF_TIMESTAMPING_RAW_HARDWARE."""
ALL_FRAMES = 1
"""Receive filter HWTSTAMP_FILTER_ALL, with which a card timestamps all frames."""


class _Group(NamedTuple):
    """A structure of ``linux/ethtool.h``: a command, then one word for each setting."""

    command: int
    words: int
    fields: dict[str, int]


# The command that sets is the one after the command that reads.
_GROUPS = {
    "coalescing": _Group(
        0x0E, 23, {"rx-usecs": 1, "tx-usecs": 5, "adaptive-rx": 10, "adaptive-tx": 11}
    ),
    "ring": _Group(0x10, 9, {"rx-max": 1, "rx": 5}),
    "pause": _Group(0x12, 4, {"autoneg": 1, "rx": 2, "tx": 3}),
}


class Offer(NamedTuple):
    """The timestamps that a card offers."""

    stamps: bool
    """True if the card timestamps frames at all."""
    stamps_all: bool
    """True if the card can timestamp all received frames."""
    clock: int | None
    """Number of the card's clock."""


def offered_stamps(card: str) -> Offer:
    """Ask a card for what ``ethtool -T`` shows; one that does not answer offers nothing."""
    try:
        words = _ask(card, array.array("I", [_GET_TS_INFO, *[0] * (_TS_INFO_WORDS - 1)]))
    except OSError:
        return Offer(stamps=False, stamps_all=False, clock=None)
    stamps = words[1] & _STAMPS == _STAMPS
    (clock,) = struct.unpack("@i", struct.pack("@I", words[2]))
    return Offer(
        stamps=stamps,
        stamps_all=stamps and bool(words[7] >> ALL_FRAMES & 1),
        clock=clock if clock >= 0 else None,
    )


def read_setting(setting: str) -> str:
    """Read a setting."""
    card, group, at = _parse(setting)
    return str(_ask(card, array.array("I", [group.command, *[0] * (group.words - 1)]))[at])


def write_setting(setting: str, text: str) -> None:
    """Change one setting and leave the others of its group."""
    card, group, at = _parse(setting)
    words = _ask(card, array.array("I", [group.command, *[0] * (group.words - 1)]))
    words[0], words[at] = group.command + 1, int(text)
    _ask(card, words)


def _parse(setting: str) -> tuple[str, _Group, int]:
    card, group, field = setting.split("/")
    return card, _GROUPS[group], _GROUPS[group].fields[field]


def _ask(card: str, words: array.array[int]) -> array.array[int]:
    if len(card.encode()) >= _NAME_BYTES:
        raise OSError(errno.ENODEV, f"{card!r} is not the name of a card")
    address, _ = words.buffer_info()
    request = struct.pack(f"{_NAME_BYTES}sP16x", card.encode(), address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _SIOCETHTOOL, request)
    return words
