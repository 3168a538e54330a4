"""``tailscope watch --mesh``: the path from this host to each other one, again and again."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.options import Quiet, option
from tailscope.cli.panels import MEASUREMENT, OUTPUT, TRAFFIC
from tailscope.cli.terminal import say
from tailscope.exceptions import TailscopeError
from tailscope.registry import service
from tailscope.units import count_text, duration_text, positive_duration_ns, rate_pps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.extra.watch.mesh import MeshHost
    from tailscope.extra.watch.mesh_figures import MeshFigures

EXAMPLE = "tailscope watch --mesh hosts.yaml --listen 192.0.2.1:9464"

_PAUSE_S = 10.0
"""Time before a host that does not answer is asked again."""
_LOOK_S = 0.2


def command(
    mesh: Annotated[
        Path, option("--mesh", "FILE", "File with the hosts of the mesh.", MEASUREMENT)
    ],
    own: Annotated[
        str | None,
        option(
            "--as",
            "NAME",
            "Name of this host in the file.  [default: that of the machine]",
            MEASUREMENT,
        ),
    ] = None,
    rate: Annotated[
        str, option("--rate", "RATE", "Packets per second to each host.", TRAFFIC)
    ] = "10",
    key_file: Annotated[
        Path | None,
        option(
            "--key-file",
            "FILE",
            "File with the key that reflectors have.  [default: none]",
            TRAFFIC,
        ),
    ] = None,
    every: Annotated[
        str, option("--every", "DURATION", "Duration of each measurement.", MEASUREMENT)
    ] = "1min",
    lasts: Annotated[
        str | None,
        option(
            "--for",
            "DURATION",
            "Time after which it ends.  [default: at Ctrl-C]",
            MEASUREMENT,
        ),
    ] = None,
    listen: Annotated[
        str,
        option(
            "--listen",
            "ADDRESS:PORT",
            "Where metrics and the page of the mesh are read; none for nowhere.",
            OUTPUT,
        ),
    ] = "127.0.0.1:9464",
    quiet: Quiet = False,
) -> int:
    """Each host runs it, and `tailscope reflect`. Ctrl-C, or SIGTERM, ends it."""
    from tailscope.extra.watch.listening import address_text, place_of
    from tailscope.extra.watch.mesh import own_name, read_mesh
    from tailscope.extra.watch.mesh_figures import MeshFigures
    from tailscope.extra.watch.mesh_page import MeshPage
    from tailscope.extra.watch.server import serving
    from tailscope.signals import patient

    hosts = read_mesh(mesh)
    name = own_name(hosts, own)
    others = {other: host for other, host in hosts.items() if other != name}
    asks = _Asks(
        rate_pps=rate_pps(rate, "--rate"),
        duration_ns=positive_duration_ns(every, "--every"),
        key_file=key_file,
    )
    where = place_of(listen)
    figures = MeshFigures(name, others)
    over_ns = None if lasts is None else positive_duration_ns(lasts, "--for")
    with ExitStack() as stack:
        patience = stack.enter_context(patient(lambda: None))
        if where is not None:
            page = MeshPage(hosts, name, figures)
            port = stack.enter_context(serving(figures, *where, page=page))
            address = address_text(where[0], port)
            say(f"page of the mesh at {address}, metrics at {address}/metrics")
        stop = threading.Event()
        pool = stack.enter_context(ThreadPoolExecutor(len(others)))
        stack.callback(stop.set)
        watches = [
            pool.submit(_watch, other, host, asks, figures, stop, quiet)
            for other, host in others.items()
        ]
        began_ns = time.monotonic_ns()
        while not patience.asked and (over_ns is None or time.monotonic_ns() - began_ns < over_ns):
            if any(watch.done() for watch in watches):
                break
            time.sleep(_LOOK_S)
        stop.set()
        for watch in watches:
            watch.result()
    return 0


@dataclass(frozen=True)
class _Asks:
    """How each path is measured."""

    rate_pps: int
    duration_ns: int
    key_file: Path | None


def _watch(
    other: str,
    host: MeshHost,
    asks: _Asks,
    figures: MeshFigures,
    stop: threading.Event,
    quiet: bool,
) -> None:
    """Measure a path until it is to end."""
    measure = service("path", "watch --mesh")
    while not stop.is_set():
        try:
            found = measure(
                host.reflect,
                rate_pps=asks.rate_pps,
                duration_ns=asks.duration_ns,
                key_file=asks.key_file,
                is_over=stop.is_set,
            )
        except TailscopeError as error:
            figures.silent(other)
            say(f"{other}: {error}", stream=sys.stderr)
            stop.wait(_PAUSE_S)
            continue
        times = found.latency
        quantiles_ns = {} if times is None else {"0.5": times.ns_p50, "0.99": times.ns_p99}
        figures.answered(
            other,
            sent=found.sent,
            lost=found.lost,
            lost_in_ends=found.lost_in_ends,
            lost_where_unknown=found.lost_where_unknown,
            quantiles_ns=quantiles_ns,
        )
        if not quiet:
            _print(other, found.sent, found.lost, quantiles_ns)


def _print(other: str, sent: int, lost: int, quantiles_ns: Mapping[str, int]) -> None:
    quantiles = [
        f"{name} {duration_text(value_ns)}"
        for name, value_ns in zip(("p50", "p99"), quantiles_ns.values(), strict=False)
    ]
    say(", ".join([f"{other}: lost {count_text(lost)} of {count_text(sent)}", *quantiles]))
