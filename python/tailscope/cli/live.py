"""One line that says how a measurement goes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from tailscope.units import count_text, duration_text, printable

if TYPE_CHECKING:
    from tailscope.testbed.messages import GeneratorProgress, LoopProgress

__all__ = ["LiveLine", "say_finishing"]

_EVERY_S = 5.0


class LiveLine:
    """Shows progress on standard error: in place on a terminal, a line every 5 s elsewhere."""

    def __init__(self) -> None:
        self._in_place = sys.stderr.isatty()
        self._shown = False
        self._last_s = time.monotonic()
        self._before: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._in_place and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, event: GeneratorProgress) -> None:
        """Show what a progress event of the generator says."""
        self._write(self._text(event))

    def show_part(self, part: str, event: GeneratorProgress) -> None:
        """Show it as one of several measurements."""
        self._write(f"{part}: {self._text(event)}")

    def show_text(self, text: str) -> None:
        """Show what else is being waited for."""
        self._write(printable(text))

    def say(self, text: str) -> None:
        """Say something that stays; what is shown in place goes."""
        cleared = "\r\x1b[K" if self._in_place and self._shown else ""
        sys.stderr.write(f"{cleared}{printable(text)}\n")
        sys.stderr.flush()

    def show_stalls(self, event: LoopProgress) -> None:
        """Show what a progress event of loops without packets says."""
        stalls, longest = count_text(event.stalls), duration_text(event.stall_ns_max)
        self._write(f"{event.elapsed_s:.0f} s  stalls {stalls}  longest {longest}")

    def _write(self, text: str) -> None:
        if self._in_place:
            sys.stderr.write(f"\r\x1b[K{text}")
            self._shown = True
        elif time.monotonic() - self._last_s >= _EVERY_S:
            self._last_s = time.monotonic()
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def _text(self, event: GeneratorProgress) -> str:
        now = (event.elapsed_s, event.rx_packets)
        before, self._before = self._before or (0.0, 0), now
        if before > now:
            before = (0.0, 0)
        rate_pps = (now[1] - before[1]) / max(now[0] - before[0], 1e-9)
        parts = [event.state, f"{count_text(round(rate_pps))} packets/s"]
        parts.append(f"received {count_text(event.received)}")
        for label, latency_ns in (
            ("p50", event.latency_ns_p50),
            ("p99.9", event.latency_ns_p999),
            ("max", event.latency_ns_max),
        ):
            if latency_ns is not None:
                parts.append(f"{label} {duration_text(latency_ns)}")
        parts.append(f"stalls {count_text(event.stalls)}")
        return "  ".join(parts)


def say_finishing() -> None:
    """Answer the first Ctrl-C behind the traffic."""
    print(
        "\ninterrupted: the traffic has ended, and the run is being finished; a second time"
        " leaves out what `tailscope finish` can make",
        file=sys.stderr,
        flush=True,
    )
