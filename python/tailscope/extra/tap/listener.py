"""The program of the data plane that hears two interfaces and matches what crosses them."""

from __future__ import annotations

import queue
import socket
import struct
from fcntl import ioctl
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError, UsageError
from tailscope.store.records.messages import ErrorEvent, TapKey, TapResult, TapSecond
from tailscope.testbed.recording import RecordingProgram
from tailscope.testbed.rights import Capability, require

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.extra.tap.plan import TapPlan
    from tailscope.testbed.places import Place

    Take = Callable[[TapKey | TapSecond], None]

_GET_ADDRESS = 0x8927
"""Request SIOCGIFHWADDR: the address of an interface, and of which type it is."""
_FRAMED = (1, 772)
"""Types of interfaces whose frames begin with a header of Ethernet: those, and loopback."""
_LOOK_S = 0.1
QUANTILES = (0.5, 0.99, 0.999)
"""The quantiles that each second tells."""


def check_links(pre: str, post: str) -> None:
    """Check that these are two interfaces of this namespace, with frames of Ethernet."""
    if pre == post:
        raise UsageError(f"IN and OUT: got {pre} twice, expected two interfaces", code="tap-link")
    for link in (pre, post):
        if _type_of(link) not in _FRAMED:
            raise TestbedError(
                f"{link}: its frames do not begin with a header of Ethernet",
                code="link-type",
                hint="tap the interfaces of Ethernet on both sides of it",
            )
    require(
        "tap",
        Capability.NET_RAW,
        otherwise="have root capture both interfaces, and use `tailscope analyze`",
    )


def _type_of(link: str) -> int:
    try:
        with socket.socket() as any_socket:
            answer = ioctl(any_socket, _GET_ADDRESS, struct.pack("16s24x", link.encode()))
    except (OSError, struct.error):
        raise TestbedError(
            f"{link}: no such interface",
            code="no-link",
            hint="`ip link` lists the interfaces; `ip netns exec NAME tailscope tap ...` hears"
            " those of a namespace",
        ) from None
    return int(struct.unpack_from("H", answer, 16)[0])


class Listener(RecordingProgram[TapResult]):
    """Hears two interfaces within a block."""

    _meanwhile = TapKey | TapSecond

    def __init__(
        self, plan: TapPlan, figures: Path, captures: Path | None, *, place: Place
    ) -> None:
        options = [
            f"--pre={plan.pre}",
            f"--post={plan.post}",
            f"--filter={plan.program}",
            f"--match-on={plan.match_on}",
            f"--window-ns={plan.window_ns}",
            f"--worst={plan.worst}",
            f"--figures={figures}",
            f"--quantiles={','.join(map(str, QUANTILES))}",
        ]
        if plan.limits_ns:
            options.append(f"--limits-ns={','.join(map(str, plan.limits_ns))}")
        if plan.taps:
            options.append("--taps")
        if plan.card_clock is not None:
            options.append(f"--card-clock={plan.card_clock}")
        if captures is not None:
            options += [f"--captures={captures}", f"--keep={plan.keep}"]
        super().__init__("tap", "tap", options, TapResult, place=place)
        self._take: Take | None = None

    def follow(self, take: Take, is_over: Callable[[], bool]) -> None:
        """Hand over what is told until it is over, or the program has ended."""
        self._take = take
        while self.process.is_running and not is_over():
            try:
                line = self.process.next_line(_LOOK_S)
            except queue.Empty:
                continue
            if line is None:
                return
            event = self._read(line)
            if isinstance(event, TapResult | ErrorEvent):
                # `finish` reads it: it was not asked to end.
                self.process.heard(line)
                return

    def _read(self, line: str) -> object:
        event = super()._read(line)
        if self._take is not None and isinstance(event, TapKey | TapSecond):
            self._take(event)
        return event
