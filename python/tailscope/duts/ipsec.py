"""The device ``ipsec``: the kernel's router through a tunnel of ESP."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailscope.duts.tunnel import Gateway, RunningTunnel, Tunnel, reason
from tailscope.exceptions import TestbedError
from tailscope.host import remedies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.duts.dut import DutContext
    from tailscope.store.records.dataplane import EspCounts, IpsecCounts, LinkCounts

_CIPHER = "rfc4106(gcm(aes))"
_KEY_BYTES = 20
"""Length of an AES-128 key and 4 bytes of salt (RFC 4106), in bytes."""
_ICV_BITS, _REPLAY_WINDOW = 128, 32
# Commands name a key by the number of its direction, and never contain it. Without env, a guest's
# shell would take its built-in ip.
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
    """A tunnel of ESP with keys made for the run; nothing negotiates new ones."""

    name = "ipsec"
    about = "the kernel's IP forwarding through an IPsec tunnel (ESP, AES-GCM): both of its ends"
    in_softirqs = True

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the modules of ESP and of its ciphers."""
        ciphers = ("aesni_intel", "aes_generic", "gcm", "ctr", "ghash_generic", "seqiv")
        # Initialisation vectors start at a random number.
        random = ("hmac", "sha512_generic", "jitterentropy_rng", "drbg")
        return (*super().modules, "xfrm_user", "esp4", *ciphers, *random)

    @contextmanager
    def joined(self, context: DutContext, ends: Sequence[Gateway]) -> Iterator[RunningTunnel]:
        """Give both ends the keys and policies of both directions."""
        commands = ends[0].run(context, ["sh", "-ec", _KEYS])
        for end, other in zip(ends, reversed(ends), strict=True):
            for source, target in (ends, ends[::-1]):
                words = [source.outer_address, target.outer_address, _spi(source)]
                try:
                    commands += end.run(context, ["sh", "-ec", _STATE, "sh", *words])
                except TestbedError as error:
                    raise TestbedError(
                        f"dut ipsec: this kernel refuses ESP with {_CIPHER}: {reason(error)}",
                        code="no-esp",
                        remedy=remedies.KERNEL_OF_DEBIAN,
                    ) from None
            commands += end.run(context, *_policies(end, other))
        yield _Running(context, ends, commands, {}, {})


class _Running(RunningTunnel):
    def counts(self, links: dict[str, LinkCounts]) -> IpsecCounts:
        """Return the counters of the links, and of both directions at each end."""
        from tailscope.store.records.dataplane import IpsecCounts, IpsecEndCounts

        ends = []
        for end, other in zip(self._ends, reversed(self._ends), strict=True):
            listed = self._place.run([*end.way, "ip", "-s", "xfrm", "state", "list", "nokeys"])
            states = counts_of(listed)
            if not {_spi(end), _spi(other)} <= states.keys():
                text = "ip -s xfrm state list: expected a state of each direction"
                raise TestbedError(text, code="xfrm-state")
            ends.append(IpsecEndCounts(rx=states[_spi(other)], tx=states[_spi(end)]))
        near, far = ends
        return IpsecCounts(links=links, near=near, far=far)


def _spi(source: Gateway) -> str:
    """Return the number of the direction that starts at a gateway."""
    return str(source.number + 1)


def _policies(end: Gateway, other: Gateway) -> list[list[str]]:
    """Return the commands by which an end encrypts what it sends and decrypts what it receives."""
    near, far = end.outer_address, other.outer_address
    add = ["ip", "xfrm", "policy", "add", "src", "0.0.0.0/0", "dst"]
    by = ["proto", "esp", "mode", "tunnel", "reqid"]
    out = ["tmpl", "src", near, "dst", far, *by, _spi(end)]
    into = ["tmpl", "src", far, "dst", near, *by, _spi(other)]
    return [
        [*add, other.side.network, "dir", "out", *out],
        [*add, end.side.network, "dir", "fwd", *into],
        ["ip", "route", "add", other.side.network, "via", far, "dev", end.outer_link],
    ]


def counts_of(listed: str) -> dict[str, EspCounts]:
    """Read the output of ``ip -s xfrm state``: counters by the number of the direction."""
    from tailscope.store.records.dataplane import EspCounts

    counts = {}
    for match in _STATES.finditer(listed):
        spi, *numbers = match.groups()
        of_bytes, packets, late, replayed, failed = map(int, numbers)
        counts[spi] = EspCounts(
            packets=packets, bytes=of_bytes, replayed=late + replayed, failed=failed
        )
    return counts
