"""The device ``nftables``: the kernel's router with filter rules and address translation."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.duts.dut import DutContext, Running, one_of
from tailscope.duts.kernel import Router, RunningKernel, do
from tailscope.duts.ruleset import checksum, rules_to_generate
from tailscope.exceptions import TestbedError

if TYPE_CHECKING:
    from tailscope.store.records.dataplane import LinkCounts, NftablesCounts

GENERATED_RULES = 100
"""Number of rules if none is given, which suits a firewall for a few hosts."""
_MOST_RULES = 100_000
_TABLE = ("inet", "tailscope")
_FORWARD = "{ type filter hook forward priority filter ; policy accept ; }"
_POSTROUTING = "{ type nat hook postrouting priority srcnat ; }"
_NATS = {"masquerade": ["masquerade"], "snat": ["snat", "ip", "to", "10.0.1.254"]}


def _rules(name: str, value: str) -> int | Path | None:
    """Read the option ``rules``: None, the number of rules to generate, or a file."""
    count = rules_to_generate(name, value, usual=GENERATED_RULES, most=_MOST_RULES)
    if count is not None:
        return count
    return None if value == "none" else Path(value).resolve()


class Nftables(Router):
    """IP forwarding of the kernel with rules of nftables.

    Rules apply to forwarded packets. With ``nat``, packets that leave by the second link have the
    address of that link.
    """

    name = "nftables"
    about = "the kernel's IP forwarding with nftables: filters by rules, translates addresses"
    options = {  # noqa: RUF012
        "rules": _rules,
        "nat": one_of("none", *_NATS),
    }
    programs = {**Router.programs, "nft": "nftables"}  # noqa: RUF012

    @property
    def _rules(self) -> int | Path | None:
        return _rules("rules", self.given.get("rules", "none"))

    def check(self) -> None:
        """Check that the program and the rule file exist."""
        super().check()
        rules = self._rules
        if isinstance(rules, Path) and not rules.is_file():
            raise TestbedError(
                f"dut nftables: no rule file {rules}",
                code="no-rules",
                hint="name a file as `nft --file` reads it, or let rules be made: rules=generated",
            )

    def set_up(self, context: DutContext) -> list[list[str]]:
        """Set up the router, its filter, and its address translation."""
        commands = super().set_up(context)
        commands += do(context, ["nft", "add", "table", *_TABLE])
        rules = self._rules
        if isinstance(rules, int):
            chain = ["nft", "add", "chain", *_TABLE, "forward", _FORWARD]
            rules = context.place.write("rules.nft", _generated(rules))
            commands += do(context, chain)
        if rules is not None:
            commands += do(context, ["nft", "--file", str(rules)])
        if (nat := self.given.get("nat", "none")) != "none":
            rule = ["oifname", context.side.links[1], "counter", *_NATS[nat]]
            commands += do(
                context,
                ["nft", "add", "chain", *_TABLE, "postrouting", _POSTROUTING],
                ["nft", "add", "rule", *_TABLE, "postrouting", *rule],
            )
        return commands

    def running(self, context: DutContext, commands: list[list[str]]) -> Running:
        """Make the running device, which also counts by rule."""
        return _Running(context, commands, self._checksum())

    def _checksum(self) -> str | None:
        rules = self._rules
        if isinstance(rules, int):
            return sha256(_generated(rules).encode()).hexdigest()
        return checksum([] if rules is None else [rules])


class _Running(RunningKernel):
    def __init__(
        self, context: DutContext, commands: list[list[str]], rules_sha256: str | None
    ) -> None:
        super().__init__(context, commands)
        self._place, self.rules_sha256 = context.place, rules_sha256
        self.version += f", {context.place.run(['nft', '--version']).strip()}"

    def counts(self, links: dict[str, LinkCounts]) -> NftablesCounts:
        """Return the counters of the links and of the rules."""
        from tailscope.duts.nft_rules import counts_of

        listed = self._place.run(["nft", "--json", "list", "ruleset"])
        return counts_of(listed, links)


def _generated(count: int) -> str:
    """Generate rules that match no packet of a measurement; they are always the same."""
    # RFC 5737 reserves these addresses for documentation.
    rules = (
        f"add rule {' '.join(_TABLE)} forward ip saddr 198.51.100.{at % 254 + 1}"
        f" udp dport {1024 + at % 60_000} counter drop"
        for at in range(count)
    )
    return "".join(f"{rule}\n" for rule in rules)
