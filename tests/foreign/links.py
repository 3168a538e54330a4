"""Captures of other link types than Ethernet, on one side or on both."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .case import Made, case, in_files
from .files import ETHERNET, LOOPBACK, RAW, SLL, SLL2, pcap
from .frames import cooked, cooked2, loopback, udp_frame, without_ethernet
from .stream import RECAST, seed_of, stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Frame = Callable[[int], bytes]

bare = partial(udp_frame, padded=False)


def of(turned: Callable[[bytes], bytes]) -> Frame:
    """Numbered frames as another link type has them."""
    return lambda number: turned(bare(number))


def as_link(name: str, link: tuple[int, int], before: Frame, behind: Frame) -> None:
    """Enter captures of other link types."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        seen = (traffic.before(before), traffic.behind(behind))
        contents = (pcap(each, link=kind) for each, kind in zip(seen, link, strict=True))
        return Made(in_files(folder, *contents), traffic.truth(RECAST))


as_link("cooked (SLL) behind", (ETHERNET, SLL), udp_frame, of(cooked))
as_link("cooked (SLL2) before", (SLL2, ETHERNET), of(cooked2), udp_frame)
as_link("cooked (SLL and SLL2)", (SLL, SLL2), of(cooked), of(cooked2))
as_link("raw IP", (RAW, RAW), of(without_ethernet), of(without_ethernet))
as_link("raw IP behind", (ETHERNET, RAW), udp_frame, of(without_ethernet))
as_link("loopback of BSD before", (LOOPBACK, ETHERNET), of(loopback), udp_frame)
