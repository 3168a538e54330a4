"""Settings of network cards, read and written by the system calls of ``ethtool`` and others."""

from __future__ import annotations

import array
import errno
import fcntl
import json
import os
import socket
import struct
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tailscope.exceptions import TestbedError, TuningError
from tailscope.host.owned import make_folder, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

_SIOCETHTOOL, _SIOCSHWTSTAMP, _SIOCGHWTSTAMP = 0x8946, 0x89B0, 0x89B1
_NAME_BYTES = 16
_GET_TS_INFO, _TS_INFO_WORDS = 0x41, 11
_STAMPS = 1 << 2 | 1 << 6
"""Flags SOF_TIMESTAMPING_RX_HARDWARE and SOF_TIMESTAMPING_RAW_HARDWARE."""
SENT_FRAMES = 1
"""Setting HWTSTAMP_TX_ON, with which a card timestamps sent frames of sockets that ask for it."""
ALL_FRAMES = 1
"""Receive filter HWTSTAMP_FILTER_ALL, with which a card timestamps all frames."""
_USERS = Path("/run/tailscope")
"""Folder of a file for each card, which its users lock: it holds the setting from before them."""

StampSetting: TypeAlias = tuple[int, int, int]
"""Flags of a card, its setting for sent frames, and its filter for received ones."""


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


def read_stamps(card: str) -> StampSetting:
    """Read which frames a card timestamps."""
    return _stamps(card, _SIOCGHWTSTAMP, (0, 0, 0))


def write_stamps(card: str, setting: StampSetting) -> StampSetting:
    """Set which frames a card timestamps, and return what its driver made of it."""
    return _stamps(card, _SIOCSHWTSTAMP, setting)


@contextmanager
def stamping(card: str, *, sent: int = 0) -> Iterator[None]:
    """Have a card timestamp all received frames within a block, and sent ones if that is asked for.

    Of several users of a card the last one puts the setting back.
    """
    with _open_users(card) as users:
        try:
            with _alone(users):
                _join(card, sent, users)
            yield
        finally:
            with suppress(OSError), _alone(users):
                _leave(card, users)


def _open_users(card: str) -> IO[str]:
    # Another network namespace may have a card of the same name.
    namespace = Path("/proc/self/ns/net").stat().st_ino
    try:
        make_folder(_USERS)
        handle = open_file(_USERS / f"card-{namespace}-{card}", os.O_RDWR | os.O_CREAT)
    except (OSError, TuningError):
        # Who may change no setting has none to put back, and files of others say nothing.
        return TemporaryFile("w+")
    return os.fdopen(handle, "r+")


@contextmanager
def _alone(users: IO[str]) -> Iterator[None]:
    """Keep others from joining and leaving within a block."""
    fcntl.lockf(users, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(users, fcntl.LOCK_UN)


def _is_only(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _join(card: str, sent: int, users: IO[str]) -> None:
    try:
        before = read_stamps(card)
        # A user that was killed has put nothing back, but left the setting from before it.
        if _is_only(users) and not (_kept(users) and before[2] == ALL_FRAMES):
            _keep(users, json.dumps(before))
        fcntl.flock(users, fcntl.LOCK_SH)
        wanted = (before[0], max(before[1], sent), ALL_FRAMES)
        if before != wanted and write_stamps(card, wanted)[1:] != wanted[1:]:
            raise OSError(errno.EOPNOTSUPP, "it chose other frames")
    except OSError as error:
        raise TestbedError(
            f"{card}: its driver does not timestamp all frames: {error.strerror}",
            code="card-stamps",
            hint=f"root may change that; `ethtool -T {card}` shows what the card offers",
        ) from None


def _leave(card: str, users: IO[str]) -> None:
    if _is_only(users) and (text := _kept(users)):
        flags, sent, received = json.loads(text)
        if read_stamps(card) != (flags, sent, received):
            write_stamps(card, (flags, sent, received))
        _keep(users, "")


def _kept(users: IO[str]) -> str:
    users.seek(0)
    return users.read()


def _keep(users: IO[str], text: str) -> None:
    users.seek(0)
    users.truncate()
    users.write(text)
    users.flush()


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
    _request(card, _SIOCETHTOOL, words)
    return words


def _stamps(card: str, request: int, setting: StampSetting) -> StampSetting:
    words = array.array("i", setting)
    _request(card, request, words)
    flags, sent, received = words
    return flags, sent, received


def _request(card: str, request: int, words: array.array[int]) -> None:
    if len(card.encode()) >= _NAME_BYTES:
        raise OSError(errno.ENODEV, f"{card!r} is not the name of a card")
    address, _ = words.buffer_info()
    named = struct.pack(f"{_NAME_BYTES}sP16x", card.encode(), address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, request, named)
