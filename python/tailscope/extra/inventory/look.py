"""What a machine has, by ``/proc``, ``/sys`` and the call that ``ethtool`` uses."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import json

from tailscope.extra.inventory.records import Cache, Card, Inventory, NumaNode
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterator

_ETHERNET = "0x0200"
"""First digits of the PCI class of Ethernet controllers."""
_SIOCETHTOOL, _GET_DRIVER = 0x8946, 0x03
_DRIVER = struct.Struct("=I32s32s32s32s32s12x5I")
"""``struct ethtool_drvinfo``: command, driver, its version, firmware, bus, ROM, and numbers."""
_LSTOPO_S = 10.0


@cache
def inventory() -> dict[str, object]:
    """Return the inventory of this machine; it is looked at once."""
    found: dict[str, object] = json.decode(json.encode(look(Path("/"), lstopo=_lstopo())))
    return found


def look(root: Path, lstopo: str | None = None) -> Inventory:
    """Look at a machine whose files are below `root`."""
    return Inventory(
        memory_bytes=_memory_bytes(root / "proc/meminfo", "MemTotal"),
        numa_nodes=tuple(_nodes(root / "sys/devices/system/node")),
        caches=tuple(_caches(root / "sys/devices/system/cpu")),
        cards=tuple(_cards(root / "sys/bus/pci/devices")),
        lstopo=lstopo,
    )


def _memory_bytes(path: Path, name: str) -> int | None:
    found = re.search(rf"\b{name}:\s+(\d+) kB", _text(path) or "")
    return int(found[1]) * 1024 if found else None


def _nodes(folder: Path) -> Iterator[NumaNode]:
    for path in sorted(folder.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        yield NumaNode(
            number=int(path.name[4:]),
            cpus=_text(path / "cpulist") or "",
            memory_bytes=_memory_bytes(path / "meminfo", "MemTotal"),
        )


def _caches(folder: Path) -> Iterator[Cache]:
    """Return the caches, one for each group of CPUs that share it."""
    found: dict[tuple[str, str, str], Cache] = {}
    for path in folder.glob("cpu[0-9]*/cache/index[0-9]*"):
        level, kind, cpus = (
            _text(path / name) or "" for name in ("level", "type", "shared_cpu_list")
        )
        ways = _text(path / "ways_of_associativity") or ""
        if level.isdecimal() and cpus:
            found[level, kind, cpus] = Cache(
                level=int(level),
                kind=kind,
                size_bytes=_size_bytes(_text(path / "size") or ""),
                ways=int(ways) if ways.isdecimal() and ways != "0" else None,
                cpus=cpus,
            )

    def order(cache: Cache) -> tuple[int, str, int]:
        return cache.level, cache.kind, int(re.split(r"[-,]", cache.cpus)[0])

    return iter(sorted(found.values(), key=order))


def _size_bytes(text: str) -> int | None:
    found = re.fullmatch(r"(\d+)K", text)
    return int(found[1]) * 1024 if found else None


def _cards(folder: Path) -> Iterator[Card]:
    """Return the Ethernet cards of the PCI bus, those of DPDK and those of guests included."""
    for path in sorted(folder.glob("*")):
        kind = _text(path / "class") or ""
        links = sorted(each.name for each in path.glob("net/*")) or sorted(
            each.name for each in path.glob("virtio*/net/*")
        )
        if not kind.startswith(_ETHERNET) and not links:
            continue
        driver = (path / "driver").resolve().name if (path / "driver").exists() else None
        version, firmware = _of_driver(links[0]) if links else (None, None)
        node = _text(path / "numa_node")
        yield Card(
            address=path.name,
            vendor=_text(path / "vendor"),
            device=_text(path / "device"),
            driver=driver,
            driver_version=version,
            firmware=firmware,
            numa_node=int(node) if node and node.isdecimal() else None,
            links=tuple(links),
            virtual_functions=len(list(path.glob("virtfn[0-9]*"))),
            is_virtual_function=(path / "physfn").exists(),
        )


def _of_driver(link: str) -> tuple[str | None, str | None]:
    """Ask a link for the version of its driver and of its firmware."""
    given = _DRIVER.pack(_GET_DRIVER, *[b""] * 5, *[0] * 5)
    words = array.array("B", given)
    address, _ = words.buffer_info()
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sP16x", link.encode()[:15], address))
        _, _, version, firmware, *_ = _DRIVER.unpack(words.tobytes())
        return _of_bytes(version), _of_bytes(firmware)
    return None, None


def _of_bytes(text: bytes) -> str | None:
    return text.partition(b"\0")[0].decode(errors="replace").strip() or None


def _lstopo() -> str | None:
    """Return what hwloc draws as text; None without it."""
    program = which("lstopo-no-graphics")
    if program is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(  # noqa: S603 - a program of the system, and words
            [program, "--of", "console"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LSTOPO_S,
            check=True,
        ).stdout
    return None


def _text(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(errors="replace").strip()
    return None
