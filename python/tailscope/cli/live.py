"""A line that shows the progress of a measurement."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Self

from tailscope.cli.terminal import columns_on, fitted, say
from tailscope.units import count_text, long_text, printable, quantity_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.store.records.messages import GeneratorProgress, LoopProgress, ProgressEvent

_EVERY_S = 5.0
_CLEAR = "\r\x1b[J"

_IMPORTANCE = (
    *("what", "left", "failed", "done", "waiting", "partial", "pending", "running"),
    *("p99.9", "max", "lost", "unsent", "p50", "stalls", "longest", "share"),
    *("cell", "stalled", "rate", "state", "elapsed"),
)
"""The parts of a line; the last ones go first where the terminal is narrow."""


class LiveLine:
    """Shows progress on standard error: in place on a terminal, a line every 5 s elsewhere.

    On a terminal it never takes more than one line. The cursor waits at its beginning, from where
    all of it can be cleared even if the terminal was made narrower and has broken it.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._in_place = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._last_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.clear()

    def show(self, parts: Mapping[str, str]) -> None:
        """Show the parts of a line, by name, as far as there is room."""
        if self._quiet:
            return
        # In the last column some terminals begin a new line.
        text = fitted(parts, _IMPORTANCE, columns_on(sys.stderr) - 1)
        if self._in_place:
            sys.stderr.write(f"{_CLEAR}{text}\r")
        elif time.monotonic() - self._last_s >= _EVERY_S:
            self._last_s = time.monotonic()
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def show_text(self, text: str) -> None:
        """Show what else is being waited for."""
        self.show({"what": printable(text)})

    def show_work(self, text: str) -> None:
        """Show on a terminal what this program itself does, once no packets are on their way."""
        if self._in_place:
            self.show_text(text)

    def show_step(self, text: str) -> None:
        """Show which step begins, or what came of one: a line that stays."""
        if not self._quiet:
            self.say(text)

    def say(self, text: str) -> None:
        """Say something that must be known, and stays; what is shown in place goes."""
        self.clear()
        say(text, stream=sys.stderr)

    def say_finishing(self) -> None:
        """Answer the first Ctrl-C behind the traffic."""
        self.say(
            "interrupted: the traffic has ended, and the run is being finished; a second time"
            " leaves out what `tailscope runs finish` can make"
        )

    def clear(self) -> None:
        """Take away what is shown in place, and what the terminal has echoed of Ctrl-C."""
        if self._in_place:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


class Pace:
    """Says of one measurement after another how it goes."""

    def __init__(self, warm_up_s: float = 0.0, duration_s: float | None = None) -> None:
        self._warm_up_s, self._duration_s = warm_up_s, duration_s
        self._measuring_since_s: float | None = None
        self._before_s, self._before_packets = 0.0, 0
        self._writing_since: tuple[float, int] | None = None

    def parts(self, event: GeneratorProgress) -> dict[str, str]:
        """Return the parts of a progress event of the generator."""
        if event.state == "writing":
            return self._writing(event)
        self._writing_since = None
        if event.elapsed_s < self._before_s or event.rx_packets < self._before_packets:
            self._before_s, self._before_packets, self._measuring_since_s = 0.0, 0, None
        if event.state != "warm-up" and self._measuring_since_s is None:
            self._measuring_since_s = min(event.elapsed_s, max(self._before_s, self._warm_up_s))
        packets = event.rx_packets - self._before_packets
        rate_pps = packets / max(event.elapsed_s - self._before_s, 1e-9)
        self._before_s, self._before_packets = event.elapsed_s, event.rx_packets

        shown = {"state": event.state, **self._left(event)}
        shown["rate"] = f"{count_text(round(rate_pps))} packets/s"
        for label, latency_ns in (
            ("p50", event.latency_ns_p50),
            ("p99.9", event.latency_ns_p999),
            ("max", event.latency_ns_max),
        ):
            if latency_ns is not None:
                shown[label] = f"{label} {quantity_text(latency_ns / 1e9, 's')}"
        if event.sent:
            # Some of them may be on their way.
            missing = max(0, event.sent - event.received)
            shown["lost"] = f"lost {'≤ ' if missing else ''}{count_text(missing)}"
        if event.unsent:
            shown["unsent"] = f"unsent {count_text(event.unsent)}"
        shown["stalls"] = f"stalls {count_text(event.stalls)}"
        stalled = event.stall_ns_total / 1e9 / max(event.elapsed_s, 1e-9)
        shown["stalled"] = f"stalled {min(stalled, 1.0):.1%}"
        return shown

    def _writing(self, event: ProgressEvent) -> dict[str, str]:
        """Return the share of a recording that is written, and the time left at this pace."""
        parts = {"what": f"writing {event.written / max(1, event.recorded):.0%}"}
        since_s, written = self._writing_since = self._writing_since or (
            event.elapsed_s,
            event.written,
        )
        if event.written > written:
            pace_s = (event.elapsed_s - since_s) / (event.written - written)
            parts["left"] = f"{long_text((event.recorded - event.written) * pace_s)} left"
        return parts

    def loop_parts(self, event: LoopProgress) -> dict[str, str]:
        """Return the parts of a progress event of loops without packets."""
        self._measuring_since_s = 0.0
        return {
            "elapsed": long_text(event.elapsed_s),
            **self._left(event),
            "stalls": f"stalls {count_text(event.stalls)}",
            "longest": f"longest {quantity_text(event.stall_ns_max / 1e9, 's')}",
        }

    def _left(self, event: ProgressEvent) -> dict[str, str]:
        """Return the share that is done, and the time left.

        Between warm-up and measurement memory is made ready, which takes its time.
        """
        if self._duration_s is None:
            return {}
        if self._measuring_since_s is None:
            left_s = self._duration_s + max(0.0, self._warm_up_s - event.elapsed_s)
        else:
            left_s = max(0.0, self._duration_s - event.elapsed_s + self._measuring_since_s)
        share = 1 - left_s / (self._warm_up_s + self._duration_s)
        return {"share": f"{share:.0%}", "left": f"{long_text(left_s)} left"}
