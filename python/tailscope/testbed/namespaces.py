"""Network namespaces of the kernel, and the links in them."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from tailscope.exceptions import TestbedError
from tailscope.testbed.programs import find_program
from tailscope.testbed.rights import Capability, may_write, owns_network, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NEEDED = (Capability.NET_ADMIN, Capability.NET_RAW, Capability.SYS_ADMIN)
_PROMISCUOUS = 0x100
"""``IFF_PROMISC``"""
_QUIET = {"disable_ipv6": "1"}
_GREETING = {
    "dad_transmits": "0",
    "router_solicitations": "8",
    "router_solicitation_delay": "0",
    "router_solicitation_interval": "1",
    "router_solicitation_max_interval": "1",
}


def check_namespaces(what: str, otherwise: str) -> None:
    """See whether this process may make namespaces, and links in them that carry packets."""
    from pyroute2 import netns

    names = Path(netns.NETNS_RUN_DIR)
    may_name = may_write(names if names.exists() else names.parent)
    needed = _NEEDED if may_name else (Capability.DAC_OVERRIDE, *_NEEDED)
    require(what, *needed, otherwise=otherwise)
    if not may_name:
        raise TestbedError(
            f"{what}: cannot write to {names}",
            hint=f"in a user namespace, mount a tmpfs on /run (docs/security.md), or {otherwise}",
        )
    if not owns_network():
        raise TestbedError(
            f"{what}: this user namespace has no network namespace of its own",
            hint=f"start it with `unshare --net`, too (docs/security.md), or {otherwise}",
        )
    find_program(what, "ip", "iproute2")


@contextmanager
def namespace(name: str, *, quiet: bool) -> Iterator[str]:
    """Make a namespace for a block.

    Quiet ones carry nothing of the kernel's own: no IPv6. In others the kernel greets on every link
    for some seconds, once a second.
    """
    from pyroute2 import netns

    netns.create(name)
    try:
        with inside(name):
            for setting, value in (_QUIET if quiet else _GREETING).items():
                for scope in ("all", "default"):
                    with suppress(OSError):
                        Path(f"/proc/sys/net/ipv6/conf/{scope}/{setting}").write_text(value)
        yield name
    finally:
        with suppress(OSError):
            netns.remove(name)


def command_in(name: str) -> tuple[str, ...]:
    """What to start processes in a namespace with."""
    return ("ip", "netns", "exec", name)


@contextmanager
def inside(name: str | None) -> Iterator[None]:
    """Take this thread into a namespace within a block; None is where it is.

    pyroute2's own way in is a process that shares our signal handlers.
    """
    from pyroute2 import netns

    if name is None:
        yield
        return
    netns.pushns(name)
    try:
        yield
    finally:
        netns.popns()


def make_links(home: str, pairs: Sequence[tuple[str, str]], away: str | None = None) -> None:
    """Make pairs of links, and set them up: the first of each in `home`, the other in `away`."""
    from pyroute2 import IPRoute

    with inside(home), IPRoute() as links:
        for here, there in pairs:
            links.link("add", ifname=here, kind="veth", peer={"ifname": there})
            if away is not None:
                move_link(there, away)
            links.link("set", index=links.link_lookup(ifname=here)[0], state="up")
    with inside(away or home), IPRoute() as links:
        for _, there in pairs:
            links.link("set", index=links.link_lookup(ifname=there)[0], state="up")


def move_link(name: str, to: str | int | BinaryIO) -> None:
    """Move a link of this namespace into another: its name, a process there, or it as a file."""
    from pyroute2 import IPRoute

    with IPRoute() as links:
        found = links.link_lookup(ifname=name)
        if not found:
            raise TestbedError(f"no link {name}", hint="`ip link` lists them")
        if isinstance(to, int):
            links.link("set", index=found[0], net_ns_pid=to)
        else:
            links.link("set", index=found[0], net_ns_fd=to if isinstance(to, str) else to.fileno())


class _Lent(NamedTuple):
    """What a device may change of a link that is lent to it, as it was before."""

    name: str
    address: str
    is_promiscuous: bool
    steering: Mapping[Path, str]
    """Which CPUs work on what arrives, by file."""

    @classmethod
    def of(cls, name: str) -> _Lent:
        from pyroute2 import IPRoute

        with IPRoute() as here:
            (found,) = here.get_links(ifname=name)
        queues = Path(f"/sys/class/net/{name}/queues").glob("rx-*/rps_cpus")
        steering = {path: path.read_text() for path in queues}
        promiscuous = bool(found["flags"] & _PROMISCUOUS)
        return cls(name, found.get_attr("IFLA_ADDRESS"), promiscuous, steering)

    def restore(self) -> None:
        """Set it up as it was, if it is there."""
        from pyroute2 import IPRoute

        with IPRoute() as here:
            for index in here.link_lookup(ifname=self.name):
                flags = _PROMISCUOUS if self.is_promiscuous else 0
                here.link("set", index=index, flags=flags, change=_PROMISCUOUS)
                here.link("set", index=index, address=self.address, state="up")
        for path, text in self.steering.items():
            with suppress(OSError):
                path.write_text(text)


@contextmanager
def moved_into(name: str, links: Sequence[str]) -> Iterator[None]:
    """Lend links of this namespace to another within a block, and set them up there."""
    from pyroute2 import IPRoute

    lent: list[_Lent] = []
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        try:
            for link in links:
                before = _Lent.of(link)
                move_link(link, name)
                lent.append(before)
            with inside(name), IPRoute() as there:
                for link in links:
                    there.link("set", index=there.link_lookup(ifname=link)[0], state="up")
            yield
        finally:
            with suppress(OSError), inside(name):
                for each in lent:
                    with suppress(TestbedError):
                        move_link(each.name, home)
            for each in lent:
                each.restore()
