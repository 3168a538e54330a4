"""Filter rules: their checksum, and a generated set of realistic size."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

GENERATED_RULES = 20_000
"""Number of generated rules; the free rule sets for Suricata have tens of thousands."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_FIRST_SID = 1_000_000


def checksum(files: Iterable[Path]) -> str | None:
    """Return the SHA-256 of concatenated files; None without any."""
    contents = [path.read_bytes() for path in files]
    return sha256(b"".join(contents)).hexdigest() if contents else None


def generated_rules(count: int = GENERATED_RULES) -> str:
    """Generate rules for Suricata that raise alerts and drop nothing; they are always the same.

    Patterns are random words. Seven in a hundred match on UDP packets, and three in a hundred on
    addresses; the others are for HTTP, DNS, TLS and TCP. The share of a real set that concerns the
    traffic of a measurement differs by set: these shares are an assumption.
    """
    chance = random.Random(1)  # noqa: S311 - the same rules each time
    kinds, shares = list(_KINDS), list(_KINDS.values())
    chosen = chance.choices(kinds, shares, k=count)
    return "".join(
        f'alert {kind(chance)} sid:{_FIRST_SID + at}; rev:1; msg:"generated {at}";)\n'
        for at, kind in enumerate(chosen)
    )


def _word(chance: random.Random) -> str:
    return "".join(chance.choices(_LETTERS, k=chance.randint(6, 20)))


def _http(chance: random.Random) -> str:
    return (
        "http $HOME_NET any -> $EXTERNAL_NET any (flow:established,to_server; http.uri;"
        f' content:"/{_word(chance)}.php"; nocase; http.user_agent; content:"{_word(chance)}";'
    )


def _tcp(chance: random.Random) -> str:
    port = chance.randint(1, 65535)
    return (
        f"tcp $EXTERNAL_NET any -> $HOME_NET {port} (flow:established; content:"
        f'"{_word(chance)}"; depth:{chance.randint(30, 200)};'
    )


def _dns(chance: random.Random) -> str:
    return (
        "dns $HOME_NET any -> any any (dns.query;"
        f' content:"{_word(chance)}.example"; nocase; endswith;'
    )


def _tls(chance: random.Random) -> str:
    return (
        "tls $HOME_NET any -> $EXTERNAL_NET any (flow:established,to_server; tls.sni;"
        f' content:"{_word(chance)}.example"; endswith;'
    )


def _udp(chance: random.Random) -> str:
    size = chance.choice(("", f"dsize:>{chance.randint(8, 400)}; "))
    return (
        f'udp $EXTERNAL_NET any -> $HOME_NET any ({size}content:"{_word(chance)}";'
        f' pcre:"/{_word(chance)}[0-9]{{{chance.randint(2, 6)}}}/";'
    )


def _addresses(chance: random.Random) -> str:
    # RFC 5737 reserves these addresses for documentation.
    listed = ",".join(f"198.51.100.{chance.randint(1, 254)}" for _ in range(chance.randint(5, 50)))
    return f"ip [{listed}] any -> $HOME_NET any ("


_KINDS: dict[Callable[[random.Random], str], int] = {
    _http: 45,
    _tcp: 20,
    _dns: 15,
    _tls: 10,
    _udp: 7,
    _addresses: 3,
}
"""Share of each kind of rule, in percent."""


def rules_to_generate(option: str, value: str, *, usual: int, most: int) -> int | None:
    """Read ``generated`` or ``generated:COUNT``; None for anything else."""
    kind, colon, count = value.partition(":")
    if kind != "generated":
        return None
    if colon and not (count.isdecimal() and 1 <= int(count) <= most):
        raise UsageError(
            f"--dut-option {option}: got {value!r}, expected generated:COUNT, with 1 to"
            f" {most:,} rules",
            code="rule-count",
        )
    return int(count) if colon else usual
