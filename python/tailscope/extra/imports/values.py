"""Latencies one by one: sockperf's full log, irtt's JSON, and text with one value a line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import CaptureError
from tailscope.extra.imports.foreign import (
    MOST,
    count_of,
    exact_run,
    ns_of,
    text_of,
    unit_differs,
    unit_needed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal
    from pathlib import Path

    from tailscope.engine.analysis import Figure
    from tailscope.extra.imports.foreign import ForeignRun

SOCKPERF = re.compile(rb"packet, txTime\(sec\), rxTime\(sec\)")
IRTT = re.compile(rb'^\s*\{\s*"version":\s*\{\s*"irtt":')
VALUE = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?", re.IGNORECASE)
"""A line of a file with nothing but values."""

_SOCKPERF_ROW = re.compile(r"(\d+), (\d+\.\d+), (\d+\.\d+)(?:, \d+\.\d+)?")
_SOCKPERF_DROPPED = re.compile(r"# dropped messages = (\d+);")
_WHOLE = "rtt(usec)"
"""The last column with ``--full-rtt``."""
_ROUND_TRIPS = "latencies are round trips, as one machine saw them"


def read_sockperf(path: Path, unit: str | None) -> ForeignRun:
    """Read ``sockperf ping-pong --full-log``: when each message left and when it was answered.

    sockperf prints half of it as its latency; a half is measured by nobody.
    """
    if unit not in (None, "s"):
        raise unit_differs(path, unit, "s", "sockperf's log")
    text = text_of(path)
    rows = list(_sockperf_rows(path, text))
    dropped = _SOCKPERF_DROPPED.search(text)
    sent_ns, latency_ns = (np.array([row[n] for row in rows], np.int64) for n in range(2))
    return exact_run(
        "sockperf",
        path,
        "s",
        latency_ns,
        sent_ns,
        {} if dropped is None else _lost(len(rows), count_of(dropped[1], f"{path}: dropped")),
        (_ROUND_TRIPS if _WHOLE in text else f"{_ROUND_TRIPS}; sockperf prints half of them",),
    )


def read_irtt(path: Path, unit: str | None) -> ForeignRun:
    """Read ``irtt client -o``: each round trip without the server's own time."""
    if unit not in (None, "ns"):
        raise unit_differs(path, unit, "ns", "irtt's JSON")
    try:
        trips = json.loads(text_of(path))["round_trips"]
        answered = [trip for trip in trips if trip["lost"] == "false"]
        latency_ns = [trip["delay"]["rtt"] for trip in answered]
        sent_ns = [trip["timestamps"]["client"]["send"]["wall"] for trip in answered]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CaptureError(
            f"{path}: expected irtt's JSON with 'lost', 'delay' and 'timestamps' of every round"
            f" trip: {error}",
            code="irtt",
            hint="irtt client -o FILE writes them, unless --ts=none leaves them out",
        ) from None
    for name, values in (("rtt", latency_ns), ("send", sent_ns)):
        for value in values:
            if not (isinstance(value, int) and 0 <= value <= MOST):
                raise CaptureError(
                    f"{path}: {name}: expected 0 to {MOST} ns, got {value!r}", code="latency-range"
                )
    return exact_run(
        "irtt",
        path,
        "ns",
        np.array(latency_ns, np.int64),
        np.array(sent_ns, np.int64),
        _lost(len(answered), len(trips) - len(answered)),
        (f"{_ROUND_TRIPS}, less the time that the server took",),
    )


def read_values(path: Path, unit: str | None) -> ForeignRun:
    """Read one latency a line."""
    if unit is None:
        raise unit_needed(path, "a list of latencies")
    latencies = []
    for number, line in enumerate(text_of(path).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        where = f"{path}: line {number}"
        if not VALUE.fullmatch(text.encode()):
            raise CaptureError(
                f"{where}: expected one latency, got {text[:40]!r}", code="histogram-row"
            )
        latencies.append(round(ns_of(text, unit, where)))
    return exact_run("values", path, unit, np.array(latencies, np.int64))


def _sockperf_rows(path: Path, text: str) -> Iterator[tuple[int, int]]:
    lines = enumerate(text.splitlines(), 1)
    for _, line in lines:
        if SOCKPERF.match(line.encode()):
            break
    for number, line in lines:
        if line.startswith("---"):
            return
        where = f"{path}: line {number}"
        found = _SOCKPERF_ROW.fullmatch(line.strip())
        if found is None:
            raise CaptureError(
                f"{where}: expected packet, txTime, rxTime, got {line[:40]!r}", code="histogram-row"
            )
        sent_ns, came_ns = (round(_seconds(each, where)) for each in found.groups()[1:3])
        if came_ns < sent_ns:
            raise CaptureError(
                f"{where}: rxTime: expected {found[2]} or later, got {found[3]}",
                code="latency-range",
            )
        yield sent_ns, came_ns - sent_ns
    raise CaptureError(
        f"{path}: expected a line of dashes behind the messages, got the end of the file",
        code="histogram-truncated",
        hint="the log was cut off",
    )


def _seconds(text: str, where: str) -> Decimal:
    return ns_of(text, "s", where)


def _lost(answered: int, lost: int) -> dict[str, Figure]:
    sent = answered + lost
    return {"sent": sent, "lost": lost, "loss_ratio": lost / sent if sent else None}
