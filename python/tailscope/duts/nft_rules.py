"""Rule counters, read from ``nft --json list ruleset``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct
from msgspec.json import decode

from tailscope.exceptions import TestbedError
from tailscope.store.records.dataplane import NftablesCounts, RuleCounts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope.store.records.dataplane import LinkCounts

_DROPS = ("drop", "reject")


# Only the fields that are read here are declared: the others differ by version.
class NftChain(Struct, frozen=True, kw_only=True):
    """A chain; base chains have a policy."""

    policy: str | None = None


class NftRule(Struct, frozen=True, kw_only=True):
    """A rule, with its matches, counters and verdicts in this order."""

    family: str
    table: str
    chain: str
    handle: int
    comment: str | None = None
    expr: list[dict[str, object]] = []


class NftObject(Struct, frozen=True, kw_only=True):
    """An object of the list, in the field of its kind."""

    chain: NftChain | None = None
    rule: NftRule | None = None


class NftList(Struct, frozen=True, kw_only=True):
    """The whole list."""

    nftables: list[NftObject]


class NftCounter(Struct, frozen=True, kw_only=True):
    """The counter of a rule."""

    packets: int
    bytes: int


def counts_of(listed: str, links: dict[str, LinkCounts]) -> NftablesCounts:
    """Read the counters of a rule set."""
    try:
        objects = decode(listed, type=NftList).nftables
        rules = [_counts(item.rule) for item in objects if item.rule is not None]
    except DecodeError as error:
        raise TestbedError(f"nft --json list ruleset: {error}", code="nft-listing") from None
    counts_all_drops = not any(
        item.chain is not None and item.chain.policy == "drop" for item in objects
    ) and all(rule.counts is not None or not rule.drops for rule in rules)
    dropped = sum(rule.counts.packets for rule in rules if rule.counts and rule.drops)
    return NftablesCounts(
        links=links,
        rules_loaded=len(rules),
        rules=[rule.counts for rule in rules if rule.counts and rule.counts.packets],
        dropped=dropped if counts_all_drops else None,
    )


class _Counted(Struct, frozen=True):
    """A rule's counter, if it has one, and whether the rule may drop packets."""

    counts: RuleCounts | None
    drops: bool


def _counts(rule: NftRule) -> _Counted:
    from msgspec import convert

    verdicts = [name for part in rule.expr for name in part]
    drops = _has(rule.expr, _DROPS)
    for part in rule.expr:
        if isinstance(part.get("counter"), dict):
            counter = convert(part["counter"], NftCounter)
            counts = RuleCounts(
                chain=f"{rule.family} {rule.table} {rule.chain}",
                handle=rule.handle,
                comment=rule.comment,
                verdict=verdicts[-1] if verdicts[-1] != "counter" else None,
                packets=counter.packets,
                bytes=counter.bytes,
            )
            return _Counted(counts, drops)
    return _Counted(None, drops)


def _has(value: object, names: Iterable[str]) -> bool:
    """Return True if one of these names is a key anywhere within a value."""
    if isinstance(value, dict):
        return any(name in value for name in names) or _has(list(value.values()), names)
    return isinstance(value, list) and any(_has(part, names) for part in value)
