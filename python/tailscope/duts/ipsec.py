"""IPsec: the kernel's router through a tunnel of ESP."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailscope.duts.tunnel import Gateway, RunningTunnel, Tunnel, reason
from tailscope.exceptions import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.duts.dut import DutContext
    from tailscope.store.records.dataplane import EspCounts, IpsecCounts, LinkCounts

_CIPHER = "rfc4106(gcm(aes))"
_KEY_BYTES = 20
"""AES-128, and 4 of salt (RFC 4106)."""
_ICV_BITS, _REPLAY_WINDOW = 128, 32
# Commands name a key by its direction's number, and never have it. Without env, a guest's shell
# takes an ip of its own.
_KEYS = (
    f"umask 077; for spi in 1 2; do od -An -v -tx1 -N{_KEY_BYTES} /dev/urandom"
    ' | tr -d " \\n" >"/run/$spi.key"; done'
)
_STATE = (
    'printf "xfrm state add src %s dst %s proto esp spi %s reqid %s mode tunnel'
    f" replay-window {_REPLAY_WINDOW} aead {_CIPHER} 0x%s {_ICV_BITS}\\n"
    '" "$1" "$2" "$3" "$3" "$(cat "/run/$3.key")" | /usr/bin/env ip -batch -'
)
_STATES = re.compile(
    r"proto esp spi 0x[0-9a-f]+\((?P<spi>\d+)\).*?"
    r"lifetime current:\s+(?P<bytes>\d+)\(bytes\), (?P<packets>\d+)\(packets\).*?"
    r"stats:\s+replay-window (?P<late>\d+) replay (?P<replayed>\d+) failed (?P<failed>\d+)",
    re.DOTALL,
)


class Ipsec(Tunnel):
    """A tunnel of ESP, with keys that are made for the run; nothing negotiates new ones."""

    name = "ipsec"
    about = "the kernel's IP forwarding through an IPsec tunnel (ESP, AES-GCM): both of its ends"
    in_softirqs = True

    @property
    def modules(self) -> tuple[str, ...]:
        """ESP's, and what encrypts for it."""
        ciphers = ("aesni_intel", "aes_generic", "gcm", "ctr", "ghash_generic", "seqiv")
        # Initialisation vectors begin at random.
        random = ("hmac", "sha512_generic", "jitterentropy_rng", "drbg")
        return (*super().modules, "xfrm_user", "esp4", *ciphers, *random)

    @contextmanager
    def joined(self, context: DutContext, ends: Sequence[Gateway]) -> Iterator[RunningTunnel]:
        """Tell both ends how packets of either direction are encrypted, and which are."""
        commands = ends[0].run(context, ["sh", "-ec", _KEYS])
        for end, other in zip(ends, reversed(ends), strict=True):
            for source, target in (ends, ends[::-1]):
                words = [source.outer_address, target.outer_address, _spi(source)]
                try:
                    commands += end.run(context, ["sh", "-ec", _STATE, "sh", *words])
                except TestbedError as error:
                    raise TestbedError(
                        f"dut ipsec: this kernel refuses ESP with {_CIPHER}: {reason(error)}",
                        hint="--platform vm has a kernel of Debian's, which has both",
                    ) from None
            commands += end.run(context, *_policies(end, other))
        yield _Running(context, ends, commands, {}, {})


class _Running(RunningTunnel):
    def counts(self, links: dict[str, LinkCounts]) -> IpsecCounts:
        """What links counted, and each end for both directions."""
        from tailscope.store.records.dataplane import IpsecCounts, IpsecEndCounts

        found = []
        for end, other in zip(self._ends, reversed(self._ends), strict=True):
            listed = self._place.run([*end.way, "ip", "-s", "xfrm", "state", "list", "nokeys"])
            states = counts_of(listed)
            if not {_spi(end), _spi(other)} <= states.keys():
                raise TestbedError("ip -s xfrm state list: expected a state of each direction")
            found.append(IpsecEndCounts(rx=states[_spi(other)], tx=states[_spi(end)]))
        near, far = found
        return IpsecCounts(links=links, near=near, far=far)


def _spi(source: Gateway) -> str:
    """The number of the direction that comes from a gateway."""
    return str(source.number + 1)


def _policies(end: Gateway, other: Gateway) -> list[list[str]]:
    """Commands by which one end encrypts what goes to the other side, and takes what comes."""
    here, there = end.outer_address, other.outer_address
    add = ["ip", "xfrm", "policy", "add", "src", "0.0.0.0/0", "dst"]
    by = ["proto", "esp", "mode", "tunnel", "reqid"]
    out = ["tmpl", "src", here, "dst", there, *by, _spi(end)]
    into = ["tmpl", "src", there, "dst", here, *by, _spi(other)]
    return [
        [*add, other.side.network, "dir", "out", *out],
        [*add, end.side.network, "dir", "fwd", *into],
        ["ip", "route", "add", other.side.network, "via", there, "dev", end.outer_link],
    ]


def counts_of(listed: str) -> dict[str, EspCounts]:
    """Read what ``ip -s xfrm state`` says, by the number of the direction."""
    from tailscope.store.records.dataplane import EspCounts

    found = {}
    for match in _STATES.finditer(listed):
        spi, *numbers = match.groups()
        of_bytes, packets, late, replayed, failed = map(int, numbers)
        found[spi] = EspCounts(
            packets=packets, bytes=of_bytes, replayed=late + replayed, failed=failed
        )
    return found
