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
    if len(card) >= _NAME_BYTES:
        raise OSError(errno.ENODEV, f"{card!r} is not the name of a card")
    return card, _GROUPS[group], _GROUPS[group].fields[field]


def _ask(card: str, words: array.array[int]) -> array.array[int]:
    address, _ = words.buffer_info()
    request = struct.pack(f"{_NAME_BYTES}sP16x", card.encode(), address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _SIOCETHTOOL, request)
    return words
