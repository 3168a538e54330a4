"""Network namespaces of the kernel, and their links."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from tailscope.exceptions import TestbedError
from tailscope.host import remedies
from tailscope.testbed.programs import find_program
from tailscope.testbed.rights import Capability, may_write, owns_network, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NEEDED = (Capability.NET_ADMIN, Capability.NET_RAW, Capability.SYS_ADMIN)
_PROMISCUOUS = 0x100
"""The flag ``IFF_PROMISC`` of the kernel."""
_QUIET = {"disable_ipv6": "1"}
_GREETING = {
    "dad_transmits": "0",
    "router_solicitations": "8",
    "router_solicitation_delay": "0",
    "router_solicitation_interval": "1",
    "router_solicitation_max_interval": "1",
}


def check_namespaces(what: str, otherwise: str) -> None:
    """Check that this process may make namespaces with links that carry packets."""
    from pyroute2 import netns

    names = Path(netns.NETNS_RUN_DIR)
    may_name = may_write(names if names.exists() else names.parent)
    needed = _NEEDED if may_name else (Capability.DAC_OVERRIDE, *_NEEDED)
    require(what, *needed, otherwise=otherwise)
    if not may_name:
        raise TestbedError(
            f"{what}: cannot write to {names}",
            code="read-only",
            remedy=remedies.NAMES,
            hint=otherwise,
        )
    if not owns_network():
        raise TestbedError(
            f"{what}: this user namespace has no network namespace of its own",
            code="no-network-namespace",
            remedy=remedies.NETWORK,
            hint=otherwise,
        )
    find_program(what, "ip", "iproute2")


@contextmanager
def namespace(name: str, *, quiet: bool) -> Iterator[str]:
    """Make a namespace for a block.

    In quiet ones the kernel sends no packets of its own: there is no IPv6. In others it solicits
    routers on every link once a second, for some seconds.
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
    """Return the words that start processes in a namespace."""
    return ("ip", "netns", "exec", name)


@contextmanager
def inside(name: str | None) -> Iterator[None]:
    """Move this thread into a namespace within a block; None is the present one.

    pyroute2 itself would use a process that shares our signal handlers.
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
    """Make pairs of links and set them up, the first of each in `home`, the other in `away`."""
    from pyroute2 import IPRoute

    with inside(home), IPRoute() as links:
        for near, far in pairs:
            links.link("add", ifname=near, kind="veth", peer={"ifname": far})
            if away is not None:
                move_link(far, away)
            links.link("set", index=links.link_lookup(ifname=near)[0], state="up")
    with inside(away or home), IPRoute() as links:
        for _, far in pairs:
            links.link("set", index=links.link_lookup(ifname=far)[0], state="up")


def move_link(name: str, to: str | int | BinaryIO) -> None:
    """Move a link into a namespace, given by name, by a process in it, or as a file."""
    from pyroute2 import IPRoute

    with IPRoute() as links:
        indices = links.link_lookup(ifname=name)
        if not indices:
            raise TestbedError(f"no link {name}", code="no-link", hint="`ip link` lists them")
        if isinstance(to, int):
            links.link("set", index=indices[0], net_ns_pid=to)
        else:
            target = to if isinstance(to, str) else to.fileno()
            links.link("set", index=indices[0], net_ns_fd=target)


class _Lent(NamedTuple):
    """The settings that a device may change of a link that is lent to it."""

    name: str
    address: str
    is_promiscuous: bool
    steering: Mapping[Path, str]
    """Contents of the files that say where arriving packets are handled."""

    @classmethod
    def of(cls, name: str) -> _Lent:
        from pyroute2 import IPRoute

        with IPRoute() as links:
            (link,) = links.get_links(ifname=name)
        folder = Path("/sys/class/net", name)
        files = [*folder.glob("queues/rx-*/rps_cpus"), *folder.glob("threaded")]
        steering = {path: path.read_text() for path in files}
        promiscuous = bool(link["flags"] & _PROMISCUOUS)
        return cls(name, link.get_attr("IFLA_ADDRESS"), promiscuous, steering)

    def restore(self) -> None:
        """Restore the settings of the link, if it exists."""
        from pyroute2 import IPRoute

        with IPRoute() as links:
            for index in links.link_lookup(ifname=self.name):
                flags = _PROMISCUOUS if self.is_promiscuous else 0
                links.link("set", index=index, flags=flags, change=_PROMISCUOUS)
                links.link("set", index=index, address=self.address, state="up")
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
            with inside(name), IPRoute() as route:
                for link in links:
                    route.link("set", index=route.link_lookup(ifname=link)[0], state="up")
            yield
        finally:
            with suppress(OSError), inside(name):
                for lent_link in lent:
                    with suppress(TestbedError):
                        move_link(lent_link.name, home)
            for lent_link in lent:
                lent_link.restore()
