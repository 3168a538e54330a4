"""What ``nft --json list ruleset`` says that rules counted."""

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


# Only what is read here is named: what else there is differs by version.
class NftChain(Struct, frozen=True, kw_only=True):
    """A chain; those that packets pass by themselves have a policy."""

    policy: str | None = None


class NftRule(Struct, frozen=True, kw_only=True):
    """A rule: what it compares, counts and decides, in this order."""

    family: str
    table: str
    chain: str
    handle: int
    comment: str | None = None
    expr: list[dict[str, object]] = []


class NftObject(Struct, frozen=True, kw_only=True):
    """One of the objects of a list, by its kind."""

    chain: NftChain | None = None
    rule: NftRule | None = None


class NftList(Struct, frozen=True, kw_only=True):
    """All that is listed."""

    nftables: list[NftObject]


class NftCounter(Struct, frozen=True, kw_only=True):
    """A counter of a rule's own."""

    packets: int
    bytes: int


def counts_of(listed: str, links: dict[str, LinkCounts]) -> NftablesCounts:
    """Read what rules counted."""
    try:
        found = decode(listed, type=NftList).nftables
        counted = [_counts(each.rule) for each in found if each.rule is not None]
    except DecodeError as error:
        raise TestbedError(f"nft --json list ruleset: {error}") from None
    is_known = not any(
        each.chain is not None and each.chain.policy == "drop" for each in found
    ) and all(rule.counts is not None or not rule.drops for rule in counted)
    dropped = sum(rule.counts.packets for rule in counted if rule.counts and rule.drops)
    return NftablesCounts(
        links=links,
        rules_loaded=len(counted),
        rules=[rule.counts for rule in counted if rule.counts and rule.counts.packets],
        dropped=dropped if is_known else None,
    )


class _Counted(Struct, frozen=True):
    """A rule with its own counter, if it has one; whether it may drop."""

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
    """Whether one of these names stands anywhere within a value."""
    if isinstance(value, dict):
        return any(name in value for name in names) or _has(list(value.values()), names)
    return isinstance(value, list) and any(_has(part, names) for part in value)
