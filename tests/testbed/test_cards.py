"""`--wire pci` with links of the kernel, which are lent to namespaces and given back."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of
from runs import AS_ROOT, left_behind, needed, sound

from tailscope.testbed.folder import RunFolder
from tailscope.testbed.namespaces import command_in, moved_into, namespace
from tailscope.testbed.places import Here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = AS_ROOT

STEERING = "%s/queues/rx-*/rps_cpus"
# Other processes may test with cards at the same time.
CARDS = {
    role: tuple(f"ts{role[0]}{port}-{os.getpid()}" for port in (0, 1))
    for role in ("generator", "dut")
}


def links() -> list[str]:
    listed = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return [line.split()[1].split("@")[0].rstrip(":") for line in listed.splitlines()]


def settings() -> dict[str, tuple[str, bool, list[str]]]:
    """Return each card's address, promiscuous mode, and CPUs for arriving packets."""
    listed = subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout
    cards = [name for names in CARDS.values() for name in names]
    return {
        link["ifname"]: (
            link["address"],
            "PROMISC" in link["flags"],
            [path.read_text() for path in Path("/sys/class/net").glob(STEERING % link["ifname"])],
        )
        for link in json.loads(listed)
        if link["ifname"] in cards
    }


@pytest.fixture
def cabled() -> Iterator[tuple[str, ...]]:
    """Make two cables between links that stand for cards."""
    pairs = list(zip(*CARDS.values(), strict=True))
    for near, far in pairs:
        subprocess.run(["ip", "link", "add", near, "type", "veth", "peer", far], check=True)
    yield tuple(
        word
        for role, names in CARDS.items()
        for word in ("--wire-option", f"{role}={'+'.join(names)}")
    )
    for near, _ in pairs:
        subprocess.run(["ip", "link", "del", near], check=True)


@pytest.mark.parametrize(
    ("dut", "platform"),
    [("mirred", "bare"), ("l2fwd", "bare"), ("router", "bare"), ("mirred", "lxc")],
)
def test_links_are_lent_and_come_back(
    measure: Callable[..., dict[str, Any]], cabled: tuple[str, ...], dut: str, platform: str
) -> None:
    if platform == "lxc":
        needed("lxc-execute")
    options = ("--platform", platform, "--wire", "pci", *cabled)
    before = settings()
    figures = measure("--dut", dut, *options, "--rate", "2k", "--noise", "auto")
    assert settings() == before
    sound(figures["out"])
    assert figures["count"] > 0.9 * figures["sent"]
    assert {name for names in CARDS.values() for name in names} <= set(links())
    assert not left_behind()


def test_two_cards_on_a_cable_need_no_device(measure: Callable[..., dict[str, Any]]) -> None:
    near, far = CARDS["generator"]
    subprocess.run(["ip", "link", "add", near, "type", "veth", "peer", far], check=True)
    try:
        given = ("--wire-option", f"generator={near}+{far}")
        figures = measure("--dut", "loop", "--wire", "pci", *given, "--rate", "2k")
        assert "dut" not in sound(figures["out"])["plan"]["wire_options"]
        assert {near, far} <= set(links())
    finally:
        subprocess.run(["ip", "link", "del", near], check=True)
    assert figures["count"] > 0.9 * figures["sent"]


@pytest.mark.usefixtures("cabled")
def test_threads_that_poll_a_lent_link_do_so_no_longer_when_it_is_back() -> None:
    """As devices of the kernel have them on isolated CPUs."""
    needed("ethtool")
    own, other = CARDS["dut"][0], CARDS["generator"][0]
    threaded = Path("/sys/class/net", own, "threaded")
    subprocess.run(["ip", "link", "set", other, "up"], check=True)
    with (
        RunFolder() as folder,
        namespace(f"{folder.name}-dut", quiet=True) as home,
        moved_into(home, [own]),
    ):
        there = Here(folder.path, command_in(home))
        there.run(["ethtool", "-K", own, "gro", "on"])
        there.run(["sh", "-c", 'echo 1 > "$1"; grep -qx 1 "$1"', "sh", str(threaded)])
    assert threaded.read_text() == "0\n"


def test_a_card_that_is_not_there_is_named(tailscope: Any, place: Any, cabled: Any) -> None:
    options = ("--wire-option", f"generator={CARDS['generator'][0]}+nothing7", *cabled[2:])
    arguments = ("run", "--dut", "l2fwd", "--wire", "pci", *options, "--out", place.path / "out")
    done = tailscope(*arguments, env=place.environment)
    assert done.returncode == 1 and code_of(done) == "no-link" and "nothing7" in done.stderr
