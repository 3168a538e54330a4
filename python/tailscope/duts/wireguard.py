"""The device ``wireguard``: a router through a tunnel of the kernel or of wireguard-go."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.duts.dut import DutContext, one_of
from tailscope.duts.kernel import setting
from tailscope.duts.program import wait_for
from tailscope.duts.tunnel import MTU, Gateway, RunningTunnel, Tunnel, reason
from tailscope.exceptions import TestbedError
from tailscope.host import remedies
from tailscope.testbed.programs import find_program, which

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.store.records.dataplane import (
        LinkCounts,
        WireguardCounts,
        WireguardEndCounts,
    )
    from tailscope.testbed.places import Place, Process

_PROGRAM = "wireguard-go"
_TUN = Path("/dev/net/tun")
_PORT = "51820"
_READY_S, _POLL_S = 20.0, 0.05
_NO_MODULE = "Unknown device type"
"""Message of ip for a kind of link that the kernel does not have."""
# The arguments are names of links: commands name keys by these, and never contain them.
_KEYS = 'umask 077; wg genkey >"/run/$1.private"; wg pubkey <"/run/$1.private" >"/run/$1.public"'
_PEER = (
    f'wg set "$1" listen-port {_PORT} private-key "/run/$1.private"'
    f' peer "$(cat "/run/$2.public")" endpoint "$3:{_PORT}" allowed-ips 0.0.0.0/0'
    " persistent-keepalive 1"
)
_QUIET = 'wg set "$1" peer "$(cat "/run/$2.public")" persistent-keepalive 0'


class Wireguard(Tunnel):
    """A tunnel of WireGuard with keys made for the run."""

    name = "wireguard"
    about = "the kernel's IP forwarding through a WireGuard tunnel: both of its ends"
    options = {"implementation": one_of("kernel", _PROGRAM)}  # noqa: RUF012
    programs = {**Tunnel.programs, "wg": "wireguard-tools"}  # noqa: RUF012

    @property
    def _is_program(self) -> bool:
        return self.given.get("implementation") == _PROGRAM

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the module of WireGuard, or that for links of programs."""
        return (*super().modules, "tun" if self._is_program else "wireguard")

    @property
    def device_files(self) -> tuple[Path, ...]:
        """Return the device file for links of programs."""
        return (_TUN,) if self._is_program else ()

    def guest_programs(self) -> tuple[Path, ...]:
        """Return the programs, with that of the tunnel if there is one."""
        own = [which(_PROGRAM)] if self._is_program else []
        return (*super().guest_programs(), *filter(None, own))

    def check(self) -> None:
        """Check that the programs exist."""
        super().check()
        if self._is_program:
            find_program(f"dut {self.name}", _PROGRAM, _PROGRAM)

    @contextmanager
    def joined(self, context: DutContext, ends: Sequence[Gateway]) -> Iterator[RunningTunnel]:
        """Make the tunnel's links and keys, and wait for the handshake of both ends."""
        with ExitStack() as stack:
            programs: dict[str, Process] = {}
            commands: list[list[str]] = []
            for end in ends:
                if self._is_program:
                    command = [*end.way, _PROGRAM, "--foreground", _link(end)]
                    commands.append(command)
                    name = f"{_PROGRAM} {_link(end)}"
                    programs[name] = stack.enter_context(_started(context, end, command))
                else:
                    commands += _added(context, end)
                commands += end.run(context, ["sh", "-ec", _KEYS, "sh", _link(end)])
            for end, other in zip(ends, reversed(ends), strict=True):
                commands += end.run(context, *_joining(end, other))
            for end, other in zip(ends, reversed(ends), strict=True):
                _wait_joined(context, end, programs)
                # From here on, WireGuard sends no packets of its own.
                words = ["sh", "-ec", _QUIET, "sh", _link(end), _link(other)]
                commands += end.run(context, words)
            links = {_link(end): end.number for end in ends}
            yield _Running(context, ends, commands, links, programs)


class _Running(RunningTunnel):
    def __init__(
        self,
        context: DutContext,
        ends: Sequence[Gateway],
        commands: list[list[str]],
        links: dict[str, int],
        programs: dict[str, Process],
    ) -> None:
        super().__init__(context, ends, commands, links, programs)
        place = context.place
        if programs:
            self.version += f", {place.run([_PROGRAM, '--version']).splitlines()[0]}"
        else:
            version = place.run(["cat", "/sys/module/wireguard/version"]).strip()
            self.version += f", WireGuard {version}"
        self.version += f", {place.run(['wg', '--version']).partition(' - ')[0]}"

    def counts(self, links: dict[str, LinkCounts]) -> WireguardCounts:
        """Return the counters of the links and of both ends."""
        from tailscope.store.records.dataplane import WireguardCounts

        near, far = (self._end(end) for end in self._ends)
        return WireguardCounts(links=links, near=near, far=far)

    def _end(self, end: Gateway) -> WireguardEndCounts:
        from tailscope.store.records.dataplane import WireguardEndCounts

        received, sent = _asked(self._place, end, "transfer")
        (at_s,) = _asked(self._place, end, "latest-handshakes")
        counted = _snmp(self._place.run([*end.way, "cat", "/proc/net/snmp"]), "Udp")
        return WireguardEndCounts(
            rx_bytes=received,
            tx_bytes=sent,
            rx_overflows=counted["RcvbufErrors"],
            last_handshake_unix_s=at_s,
        )


def _link(end: Gateway) -> str:
    return f"wg{end.number}"


@contextmanager
def _started(context: DutContext, end: Gateway, command: list[str]) -> Iterator[Process]:
    """Run the program of one end within a block; it answers when the block begins."""
    place = context.place
    name = f"{_PROGRAM}-{end.number}"
    show = [*end.way, "wg", "show", _link(end)]
    with place.start(name, command, cpus=context.working, merged=True, urgent=True) as process:
        ready = partial(_succeeds, place, show)
        wait_for(name, process, ready, timeout_s=_READY_S, waits_for="its answer to `wg show`")
        yield process


def _succeeds(place: Place, command: list[str]) -> bool:
    try:
        place.run(command)
    except TestbedError:
        return False
    return True


def _added(context: DutContext, end: Gateway) -> list[list[str]]:
    """Add a WireGuard link of the kernel, if the kernel has this kind."""
    try:
        return end.run(context, ["ip", "link", "add", "name", _link(end), "type", "wireguard"])
    except TestbedError as error:
        if _NO_MODULE not in str(error):
            raise
        raise TestbedError(
            f"dut wireguard: this kernel has no WireGuard: {reason(error)}",
            code="no-wireguard",
            remedy=remedies.KERNEL_OF_DEBIAN,
            hint=f"let a program have the tunnel: --dut-option implementation={_PROGRAM} (Debian,"
            f" Ubuntu: apt install {_PROGRAM})",
        ) from None


def _joining(end: Gateway, other: Gateway) -> list[list[str]]:
    """Return the commands that give one end its keys, its peer, and the route to it."""
    link = _link(end)
    return [
        ["sh", "-ec", _PEER, "sh", link, _link(other), other.outer_address],
        ["ip", "link", "set", "dev", link, "mtu", str(MTU), "up"],
        setting(f"net.ipv4.conf.{link}.rp_filter", "0"),
        ["ip", "route", "add", other.side.network, "dev", link],
    ]


def _wait_joined(context: DutContext, end: Gateway, programs: dict[str, Process]) -> None:
    """Wait until an end has completed a handshake."""
    deadline_s = time.monotonic() + _READY_S
    while _asked(context.place, end, "latest-handshakes") == [0]:
        if time.monotonic() > deadline_s:
            words = " | ".join(process.last_words() for process in programs.values())
            raise TestbedError(
                f"wireguard: no handshake of {_link(end)} within {_READY_S:g} s"
                + (f"; it said: {words}" if words else ""),
                code="no-handshake",
            )
        time.sleep(_POLL_S)


def _asked(place: Place, end: Gateway, what: str) -> list[int]:
    """Ask one end for numbers of its peer, which follow the peer's key."""
    shown = place.run([*end.way, "wg", "show", _link(end), what])
    return [int(word) for word in shown.split()[1:]]


def _snmp(text: str, protocol: str) -> dict[str, int]:
    """Read the kernel's counters of a protocol: a line of names, and one of numbers."""
    names, counts = (
        line.split()[1:] for line in text.splitlines() if line.startswith(f"{protocol}:")
    )
    return dict(zip(names, map(int, counts), strict=True))
