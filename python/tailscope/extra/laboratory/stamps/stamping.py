"""Choice of the timestamps of received frames: by their cards, or by the kernel."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tailscope.extra.laboratory.stamps.phc import KernelClock, compare
from tailscope.host.cards import (
    ALL_FRAMES,
    Offer,
    StampSetting,
    offered_stamps,
    read_stamps,
    write_stamps,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.extra.laboratory.stamps.phc import CardClock

_LOOKS = 3
_ADVICE = (
    "software timestamps have a tail of their own; `ethtool -T LINK` lists what a card offers,"
    " and `all` among its receive filters is needed on both links"
)


class Links(Protocol):
    """The timestamp settings of a machine's links."""

    def offer(self, link: str) -> Offer:
        """Return the timestamps that a link offers."""

    def configuration(self, link: str) -> StampSetting:
        """Return the settings of a link: flags, filter for sending, and filter for receiving."""

    def configure(self, link: str, configuration: StampSetting) -> StampSetting:
        """Set a link, and return the settings that its driver chose."""

    def clock(self, number: int) -> CardClock:
        """Return a clock by its number."""


class KernelLinks:
    """Links in the network namespace of this process."""

    def offer(self, link: str) -> Offer:
        """Return the offer that ``ethtool -T`` shows; a link without an answer offers nothing."""
        return offered_stamps(link)

    def configuration(self, link: str) -> StampSetting:
        """Return the settings of a link."""
        return read_stamps(link)

    def configure(self, link: str, configuration: StampSetting) -> StampSetting:
        """Set a link, and return the settings that its driver chose."""
        return write_stamps(link, configuration)

    def clock(self, number: int) -> CardClock:
        """Return a clock by its number."""
        return KernelClock(number)


@dataclass
class Stamping:
    """The choice of timestamps for two links."""

    by_cards: bool = False
    """True if the cards take them, False if the kernel does."""
    clocks: tuple[CardClock, CardClock] | None = None
    """Clocks of both links, if they have two."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for the reader of the times."""


def best_clock(names: Sequence[str], links: Links) -> Stamping:
    """Choose the best timestamps that both of two links offer."""
    offers = {name: links.offer(name) for name in names}
    lacks = [text for name, offer in offers.items() if (text := _lack(name, offer))]
    if lacks:
        return by_kernel(lacks)
    numbers = [offer.clock for offer in offers.values() if offer.clock is not None]
    clocks = [links.clock(number) for number in dict.fromkeys(numbers)]
    if broken := [text for clock in clocks if (text := _fault(clock))]:
        return by_kernel(broken)
    return Stamping(by_cards=True, clocks=(clocks[0], clocks[1]) if len(clocks) > 1 else None)


def by_kernel(reasons: Sequence[str]) -> Stamping:
    """Choose timestamps of the kernel, for these reasons."""
    warning = f"times are the kernel's, not the card's: {', and '.join(reasons)}; {_ADVICE}"
    return Stamping(warnings=[warning])


def by_ports(addresses: Sequence[str]) -> Stamping:
    """Choose timestamps of DPDK's ports; ports of one card have one clock."""
    if len({address.rpartition(".")[0] for address in addresses}) == 1:
        return Stamping(by_cards=True)
    warning = (
        f"{' and '.join(addresses)} are two cards, and nothing compares their clocks: latencies may"
        " be off by any amount; choose two ports of one card, or name links of the kernel"
    )
    return Stamping(by_cards=True, warnings=[warning])


def _lack(name: str, offer: Offer) -> str | None:
    if not offer.stamps:
        return f"{name} does not timestamp frames"
    if not offer.stamps_all:
        return f"{name} timestamps only some of the frames that it receives"
    if offer.clock is None:
        return f"{name} does not say which clock it timestamps by"
    return None


def _fault(clock: CardClock) -> str | None:
    try:
        # The machine's clock may be set during one comparison, but hardly during all of them.
        if all(compare(clock, clock) is None for _ in range(_LOOKS)):
            return f"the clock {clock.name} does not keep time"
    except OSError as error:
        return f"the clock {clock.name} cannot be read ({error.strerror})"
    return None


@contextmanager
def stamping(names: Sequence[str], links: Links) -> Iterator[Stamping]:
    """Let both cards timestamp all frames within a block if they can, and restore them."""
    with ExitStack() as stack:
        chosen = best_clock(names, links)
        if chosen.by_cards:
            refused = [text for name in names if (text := _switch_on(name, links, stack, chosen))]
            if refused:
                stack.close()
                chosen = by_kernel(refused)
        yield chosen


def _switch_on(name: str, links: Links, stack: ExitStack, chosen: Stamping) -> str | None:
    """Let a card timestamp all frames, and return the reason if it does not."""
    before = (0, 0, 0)
    # Older drivers do not report their settings; then they are assumed to be off, as after boot.
    with suppress(OSError):
        before = links.configuration(name)
    if before[2] == ALL_FRAMES:
        return None
    wanted = (before[0], before[1], ALL_FRAMES)
    try:
        after = links.configure(name, wanted)
    except OSError as error:
        return f"{name} refuses to timestamp all frames ({error.strerror})"
    stack.callback(_put_back, name, links, before, chosen)
    if after[2] != ALL_FRAMES:
        return f"{name} was asked to timestamp all frames, and does not"
    return None


def _put_back(name: str, links: Links, before: StampSetting, chosen: Stamping) -> None:
    try:
        links.configure(name, before)
    except OSError as error:
        chosen.warnings.append(
            f"{name} still timestamps all frames: its setting was not put back ({error.strerror})"
        )
