"""The inventory of a machine: of a made one, and of this one as every run has it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailscope.extra.inventory.look import inventory, look
from tailscope.extra.inventory.records import Cache, Card, NumaNode
from tailscope.report.page import host_rows
from tailscope.store.reader import read_run

if TYPE_CHECKING:
    from conftest import Tailscope

FILES = {
    "proc/meminfo": "MemTotal:       196608 kB\nMemFree: 1 kB\n",
    "sys/devices/system/node/node0/cpulist": "0,2",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:  98304 kB\n",
    "sys/devices/system/node/node10/cpulist": "1,3",
    **{
        f"sys/devices/system/cpu/cpu{cpu}/cache/index3/{name}": text
        for cpu in range(4)
        for name, text in {
            "level": "3",
            "type": "Unified",
            "size": "6144K",
            "ways_of_associativity": "12",
            "shared_cpu_list": "0,2" if cpu % 2 == 0 else "1,3",
        }.items()
    },
    "sys/bus/pci/devices/0000:03:00.0/class": "0x020000",
    "sys/bus/pci/devices/0000:03:00.0/vendor": "0x8086",
    "sys/bus/pci/devices/0000:03:00.0/device": "0x15ac",
    "sys/bus/pci/devices/0000:03:00.0/numa_node": "1",
    "sys/bus/pci/devices/0000:03:00.0/virtfn0/x": "",
    "sys/bus/pci/devices/0000:04:00.0/class": "0x030000",
    "sys/bus/pci/drivers/vfio-pci/bind": "",
}
"""A machine with two nodes and sockets, a card of DPDK with a function, and a screen."""


def test_a_machine_is_looked_at(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    pci = tmp_path / "sys/bus/pci"
    (pci / "devices/0000:03:00.0/driver").symlink_to(pci / "drivers/vfio-pci")
    found = look(tmp_path)
    assert found.memory_bytes == 192 << 20 and found.lstopo is None
    assert found.numa_nodes == (
        NumaNode(number=0, cpus="0,2", memory_bytes=96 << 20),
        NumaNode(number=10, cpus="1,3", memory_bytes=None),
    )
    assert found.caches == tuple(
        Cache(level=3, kind="Unified", size_bytes=6 << 20, ways=12, cpus=cpus)
        for cpus in ("0,2", "1,3")
    )
    assert found.cards == (
        Card(
            address="0000:03:00.0",
            vendor="0x8086",
            device="0x15ac",
            driver="vfio-pci",
            driver_version=None,
            firmware=None,
            numa_node=1,
            links=(),
            virtual_functions=1,
            is_virtual_function=False,
        ),
    )


def test_a_machine_without_files_has_nothing_to_tell(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert found.memory_bytes is None
    assert not (found.numa_nodes or found.caches or found.cards)


def test_every_run_has_the_inventory_of_its_machine(tailscope: Tailscope, tmp_path: Path) -> None:
    assert tailscope("simulate", tmp_path / "pair", "--seed", 1, "--packets", 500).returncode == 0
    done = tailscope("analyze", tmp_path / "pair", "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    kept = json.loads((run / "run.json").read_text())["host"]["inventory"]
    assert kept == json.loads(json.dumps(inventory()))
    assert kept["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    rows = host_rows(read_run(run).info.host)
    assert rows["memory bytes"] == str(kept["memory_bytes"])
    assert "inventory" not in rows and ("caches" in rows) == bool(kept["caches"])


@pytest.mark.skipif(not any(card.links for card in look(Path("/")).cards), reason="no card")
def test_a_card_of_this_machine_has_its_driver() -> None:
    cards = [card for card in look(Path("/")).cards if card.links]
    for card in cards:
        assert card.driver == Path(f"/sys/bus/pci/devices/{card.address}/driver").resolve().name
