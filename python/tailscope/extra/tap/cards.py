"""Times that cards take of the frames that come in by both interfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.cards import offered_stamps

if TYPE_CHECKING:
    from collections.abc import Sequence

_KERNEL = "without --stamps card, the kernel takes them"


def clock_of_cards(stamps: str, links: Sequence[str], *, taps: bool) -> str | None:
    """Return the clock that both cards take times by; None if the kernel is to take them."""
    if stamps not in ("kernel", "card"):
        raise UsageError(
            f"--stamps: got {stamps!r}, expected kernel or card", code="tap-stamps-unknown"
        )
    if stamps == "kernel":
        return None
    if not taps:
        raise UsageError(
            "--stamps card requires --taps: a card tells nobody but the sender of a frame when it"
            " left",
            code="tap-stamps-leaving",
            hint=f"feed both interfaces by taps or mirror ports; {_KERNEL}",
        )
    clocks = []
    for link in links:
        offer = offered_stamps(link)
        if not offer.stamps_all or offer.clock is None:
            raise TestbedError(
                f"{link}: its card takes no times of all frames that come in",
                code="tap-stamps-card",
                hint=f"`ethtool -T {link}` shows what it offers; {_KERNEL}",
            )
        clocks.append(offer.clock)
    if clocks[0] != clocks[1]:
        raise TestbedError(
            f"{' and '.join(links)} have two clocks, ptp{clocks[0]} and ptp{clocks[1]}, which"
            " nothing compares",
            code="tap-stamps-clocks",
            hint=f"tap two ports of one card; {_KERNEL}",
        )
    return f"/dev/ptp{clocks[0]}"
