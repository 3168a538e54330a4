"""Cards that take the times of packets, of those that leave and of those that come."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError
from tailscope.host import cards

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def stamping(link: str | None) -> AbstractContextManager[None]:
    """Have the card of a link take the times of all packets within a block; of None do nothing."""
    if link is None:
        return nullcontext()
    offer = cards.offered_stamps(link)
    if not offer.stamps_all or offer.clock is None:
        raise TestbedError(
            f"{link}: its card takes no times of all packets that come",
            code="hosts-card",
            hint=f"`ethtool -T {link}` shows what it offers; without --card the kernel takes the"
            " times",
        )
    return cards.stamping(link, sent=cards.SENT_FRAMES)
