"""The figures of a tap as OpenMetrics: in a file, or served to whoever asks."""

from __future__ import annotations

import socket
import threading
from bisect import bisect_left
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import UsageError
from tailscope.extra.tap.listener import QUANTILES
from tailscope.store.atomic import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.extra.tap.judge import Judge
    from tailscope.extra.tap.plan import TapPlan
    from tailscope.store.records.messages import TapSecond

_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_BOUNDS_S = tuple(float(f"{digit}e{exponent}") for exponent in range(-6, 1) for digit in (1, 2, 5))
"""Upper bounds of buckets."""
_MIDDLE = 1 + 3 / 256
"""The middle of a bucket of the listener, whose width is 1/64 to 1/32 of its least latency."""
_FATES = ("matched", "lost", "late", "unresolved", "ambiguous")
_MOST_FLOWS = 100
_OTHERS = "others"


class TapMetrics:
    """Sums of all seconds; one thread adds to them, others read."""

    def __init__(self, plan: TapPlan, judge: Judge | None) -> None:
        self._plan, self._judge = plan, judge
        self._lock = threading.Lock()
        self._fates: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._buckets = [0] * (len(_BOUNDS_S) + 1)
        self._sum_ns = 0
        self._last: TapSecond | None = None

    def take(self, second: TapSecond) -> None:
        """Add a second."""
        with self._lock:
            self._last = second
            self._fates.update({fate: getattr(second, fate) for fate in _FATES})
            self._missed[self._plan.pre] += second.missed_pre
            self._missed[self._plan.post] += second.missed_post
            self._sum_ns += second.latency_ns_sum
            for least_ns, count in second.latency_ns_buckets:
                self._buckets[bisect_left(_BOUNDS_S, least_ns * _MIDDLE / 1e9)] += count
            for flow, lost in second.lost_flows:
                is_known = flow in self._lost or len(self._lost) < _MOST_FLOWS
                self._lost[flow if is_known else _OTHERS] += lost

    def text(self) -> str:
        """Write them all."""
        with self._lock:
            return "".join(family.text() for family in self._families()) + "# EOF\n"

    def _families(self) -> Iterator[_Family]:
        about = {"in": self._plan.pre, "out": self._plan.post}
        yield _Family("tailscope_tap", "info", "What is heard.", [("_info", about, 1)])
        yield _Family(
            "tailscope_tap_packets",
            "counter",
            "Packets by what became of them.",
            [("_total", {"fate": fate}, self._fates[fate]) for fate in _FATES],
        )
        yield _Family(
            "tailscope_tap_missed_frames",
            "counter",
            "Frames that the tap itself has missed.",
            [("_total", {"link": link}, missed) for link, missed in self._missed.items()],
        )
        yield _Family(
            "tailscope_tap_lost_by_flow",
            "counter",
            "Lost packets of the flows that lost most in some second.",
            [("_total", {"flow": flow}, lost) for flow, lost in self._lost.items()],
        )
        names = [*map(str, _BOUNDS_S), "+Inf"]
        cumulative = [*accumulate(self._buckets)]
        yield _Family(
            "tailscope_tap_latency_seconds",
            "histogram",
            "Latency of packets, sorted into buckets within 3 %.",
            [
                *(
                    ("_bucket", {"le": name}, count)
                    for name, count in zip(names, cumulative, strict=True)
                ),
                ("_count", {}, cumulative[-1]),
                ("_sum", {}, self._sum_ns / 1e9),
            ],
            "seconds",
        )
        yield from self._of_last()
        yield from self._of_level()

    def _of_last(self) -> Iterator[_Family]:
        second = self._last
        if second is None:
            return
        quantiles = dict(zip(map(str, QUANTILES), second.latency_ns_quantiles, strict=False))
        if second.latency_ns_max is not None:
            quantiles["1.0"] = second.latency_ns_max
        yield _Family(
            "tailscope_tap_second_latency_seconds",
            "gauge",
            "Exact quantiles of the latest second.",
            [("", {"quantile": name}, ns / 1e9) for name, ns in quantiles.items()],
            "seconds",
        )
        yield _Family(
            "tailscope_tap_second_timestamp_seconds",
            "gauge",
            "Begin of the latest second, in Unix time.",
            [("", {}, second.start_unix_ns / 1e9)],
            "seconds",
        )

    def _of_level(self) -> Iterator[_Family]:
        states = [] if self._judge is None else self._judge.states
        if not states:
            return
        yield _Family(
            "tailscope_tap_slo_violated",
            "gauge",
            "1 while seconds do not meet a term of the service level.",
            [("", {"term": state.term.text}, int(state.alert is not None)) for state in states],
        )
        yield _Family(
            "tailscope_tap_slo_violated_seconds",
            "counter",
            "Seconds that did not meet a term of the service level.",
            [("_total", {"term": state.term.text}, state.violated_s) for state in states],
            "seconds",
        )


class _Family(NamedTuple):
    """Samples of one kind: the end of the name, labels and value of each."""

    name: str
    kind: str
    about: str
    samples: list[tuple[str, Mapping[str, str], float]]
    unit: str = ""

    def text(self) -> str:
        lines = [f"# TYPE {self.name} {self.kind}"]
        lines += [f"# UNIT {self.name} {self.unit}"] if self.unit else []
        lines.append(f"# HELP {self.name} {self.about}")
        for end, labels, value in self.samples:
            inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{self.name}{end}{f'{{{inner}}}' if inner else ''} {value}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def place_of(where: str) -> Path | tuple[str, int]:
    """Read where metrics go: ADDRESS:PORT, :PORT on this machine alone, or a file."""
    host, colon, port = where.rpartition(":")
    if not (colon and port.isascii() and port.isdecimal()):
        return Path(where)
    host = host.removeprefix("[").removesuffix("]")
    return host or "127.0.0.1", int(port)


@contextmanager
def publishing(metrics: TapMetrics, where: str | None) -> Iterator[tuple[Path | None, str]]:
    """Serve metrics within a block; return the file they are to be written to, or the address."""
    place = None if where is None else place_of(where)
    if place is None or isinstance(place, Path):
        yield place, ""
        return

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            content = metrics.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", _CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    host, port = place
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = type("_Server", (ThreadingHTTPServer,), {"address_family": family})
    try:
        server = kind((host, port), Handler)
    except (OSError, OverflowError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"--openmetrics: {where}: {said}", code="listen-failed", hint="choose another port"
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield None, f"{shown}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_metrics(metrics: TapMetrics, file: Path | None) -> None:
    """Write them to a file, if there is one, as a whole."""
    if file is not None:
        write_text(file, metrics.text())
