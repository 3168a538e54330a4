"""A board controller behind QEMU's `ipmi-bmc-extern`, which answers as IPMI and DCMI have it.

OpenIPMI's simulator (2.0.33) could stand here, too, but it has no DCMI, by which power is read: to
`ipmitool dcmi power reading` it answers "Invalid command (c1)".
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MESSAGE_END, _COMMAND_END, _ESCAPE = 0xA0, 0xA1, 0xAA
_ESCAPED = 0x10
_APP, _DCMI = 0x06, 0x2C
_DEVICE_ID, _POWER_READING = 0x01, 0x02
_DCMI_GROUP = 0xDC
_OK, _INVALID_COMMAND = b"\x00", b"\xc1"
_ACTIVE = 0x40


@contextmanager
def board_controller(path: Path, watts: int) -> Iterator[None]:
    """Answer QEMU, which is going to listen at the path, with a power of so many watts.

    A controller that is there before QEMU's devices are crashes QEMU 7.2.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_serve, args=[path, watts, ended])
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _serve(path: Path, watts: int, ended: threading.Event) -> None:
    while not path.exists():
        if ended.wait(0.1):
            return
    message = bytearray()
    is_escaped = False
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.connect(str(path))
        while received := connection.recv(4096):
            for byte in received:
                if byte == _MESSAGE_END:
                    connection.sendall(_answered(bytes(message), watts))
                if byte in (_MESSAGE_END, _COMMAND_END):
                    message.clear()
                elif byte == _ESCAPE:
                    is_escaped = True
                else:
                    message.append(byte & ~_ESCAPED if is_escaped else byte)
                    is_escaped = False


def _answered(message: bytes, watts: int) -> bytes:
    """Answer a message: a number, the function and its unit, the command, data, a checksum."""
    assert sum(message) % 256 == 0, message.hex()
    number, function, command = message[:3]
    # The answer's function is the next, odd one.
    answer = bytes([number, function | 0x04, command])
    answer += _content(function >> 2, command, message[3:-1], watts)
    answer += bytes([-sum(answer) % 256])
    escaped = b"".join(
        bytes([_ESCAPE, byte | _ESCAPED])
        if byte in (_MESSAGE_END, _COMMAND_END, _ESCAPE)
        else bytes([byte])
        for byte in answer
    )
    return escaped + bytes([_MESSAGE_END])


def _content(function: int, command: int, data: bytes, watts: int) -> bytes:
    if (function, command) == (_APP, _DEVICE_ID):
        return _OK + bytes([0x20, 0x01, 0x02, 0x00, 0x02, 0x00, 0, 0, 0, 0, 0])
    if (function, command, data[:1]) == (_DCMI, _POWER_READING, bytes([_DCMI_GROUP])):
        seen = (watts, watts - 20, watts + 30, watts - 5)
        return _OK + struct.pack("<B4HIIB", _DCMI_GROUP, *seen, 1_700_000_000, 1000, _ACTIVE)
    return _INVALID_COMMAND
