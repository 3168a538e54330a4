"""Tables of a run to send, with their sizes, and the rows themselves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tailscope.exceptions import RunCorruptError, RunError
from tailscope.store import layout
from tailscope.store.files import MOST_RECORD_BYTES, read_file
from tailscope.store.info import foreign_text
from tailscope.store.reader import EVERY_PACKET, check_held, read_run, verified_file
from tailscope.store.records.base import as_content
from tailscope.store.run import SIDES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.engine.analysis import Figure, Side
    from tailscope.store.packets import Packets
    from tailscope.store.records.run import Input, RunInfo
    from tailscope.store.run import Run

LATENCY = pa.schema(
    {
        "run_id": pa.int32(),
        "seq": pa.int64(),
        "pre_ns": pa.int64(),
        "latency_ns": pa.int64(),
        "intended_ns": pa.int64(),
        "tainted": pa.bool_(),
        "instrument_stall_ns": pa.int64(),
    }
)
PACKETS = pa.schema({"capture_id": pa.int32(), "ts": pa.int64(), "hdr": pa.binary()})

_ROWS_AT_ONCE = 1 << 16
_KEY_BYTES = {"probe": 8, "frame": 72, "l3": 72, "payload": 80, "inner": 80, "tcp-bytes": 80}
"""The most bytes of a key."""
# COPY sends 2 bytes a row and 4 a value besides the value itself.
_LATENCY_BYTES = 2 + (4 + 4) + 3 * (4 + 8)
_INTENDED_BYTES, _NULLS_BYTES = (4 + 8) + (4 + 1) + (4 + 8), 4 + 4 + 4
_PACKET_BYTES = 2 + (4 + 4) + (4 + 8) + 4


class TableRows(NamedTuple):
    """The size of a table to send."""

    name: str
    rows: int
    most_bytes: int
    """Upper bound on the bytes sent: packets may be shorter than their keys."""


@dataclass(frozen=True)
class Content:
    """All that a run has to send."""

    path: Path
    """The run directory."""
    run: Run
    sha256: str
    """Checksum of its ``run.json``, which identifies the run."""
    captures: Mapping[Side, Path] = field(default_factory=dict)
    """Both captures, or none."""
    lacking: str | None = None
    """Reason why there are no captures."""

    @property
    def info(self) -> str:
        """``run.json``."""
        return json.dumps(as_content(self.run.info))

    @property
    def figures(self) -> str:
        """Every figure by its name."""
        return json.dumps(dict(self.run.summary))

    @property
    def percentiles(self) -> str:
        """Percentiles with their intervals."""
        return json.dumps([found._asdict() for found in self.run.percentiles])

    def packets_of(self, side: Side) -> int:
        """Packets in the capture of a side."""
        return int(self.run.summary[f"{side}_packets"] or 0)

    @property
    def matches(self) -> int:
        """Rows of ``latency.parquet``."""
        return int(self.run.summary["count"] or 0)

    @property
    def tables(self) -> list[TableRows]:
        """Return the tables to send, with their sizes."""
        more = _NULLS_BYTES if self.run.summary["clock"] == "capture-file" else _INTENDED_BYTES
        packets = sum(map(self.packets_of, self.captures))
        key = _most_key_bytes(str(self.run.summary["match_on"]))
        return [
            TableRows("run", 1, len(self.info)),
            TableRows("summary", len(self.run.summary), len(self.figures)),
            TableRows("percentile", len(self.run.percentiles), len(self.percentiles)),
            TableRows("latency", self.matches, self.matches * (_LATENCY_BYTES + more)),
            TableRows(
                "capture", len(self.captures), sum(len(str(p)) for p in self.captures.values())
            ),
            TableRows("pkt", packets, packets * (_PACKET_BYTES + key)),
        ]

    def check_capture(self, capture: Path) -> None:
        """See that a capture that the run holds itself is the one that was written."""
        name = f"{layout.CAPTURES}/{capture.name}"
        if name in self.run.info.files:
            verified_file(self.path, self.run.info, name).close()


def read_content(path: Path) -> Content:
    """Read what a run has to send, apart from single packets."""
    run = read_run(path)
    check_held(path, run.info, layout.LATENCY, EVERY_PACKET)
    if (imported := foreign_text(run.info)) is not None:
        raise RunError(
            f"{path}: the key and the window of its packets: {imported} does not hold that",
            code="not-imported",
            hint="`tailscope analyze PRE POST` keeps every packet of two captures",
        )
    mark = read_file(path, layout.RUN, most_bytes=MOST_RECORD_BYTES)
    digest = hashlib.sha256(mark).hexdigest()
    captures, lacking = _captures(path, run.info)
    return Content(path, run, digest, captures, lacking)


def latencies(packets: Packets, run_id: int) -> Iterator[pa.RecordBatch]:
    """Rows of table latency."""
    from tailscope.engine.arrow import column

    names = LATENCY.names[1:]
    for batch in packets.batches(*names):
        rows = len(batch[0])
        columns = [pa.repeat(pa.scalar(run_id, pa.int32()), rows)]
        for name, cells in zip(names, batch, strict=True):
            kind = LATENCY.field(name).type
            columns.append(pa.nulls(rows, kind) if cells is None else column(cells).cast(kind))
        yield pa.record_batch(columns, schema=LATENCY)


def packets(
    capture: str, side: Side, summary: Mapping[str, Figure], capture_id: int
) -> Iterator[pa.RecordBatch]:
    """Rows of table pkt, of the capture on one side of a run."""
    import numpy as np

    from tailscope.engine.analysis import read_keys
    from tailscope.engine.arrow import column

    limit = summary.get("key_limit_bytes")
    keys = read_keys(
        capture,
        str(summary["match_on"]),
        behind=side == "post",
        limit_bytes=limit if isinstance(limit, int) else None,
        at_once=_ROWS_AT_ONCE,
    )
    for found in keys:
        offsets = np.concatenate([[0], found.key_ends]).astype(np.int32)
        marks = np.packbits(found.keyed, bitorder="little")
        buffers = map(pa.py_buffer, (marks, offsets, found.key_bytes))
        count = len(found.ts_ns)
        yield pa.record_batch(
            [
                pa.repeat(pa.scalar(capture_id, pa.int32()), count),
                column(found.ts_ns.astype(np.int64)),
                pa.Array.from_buffers(pa.binary(), count, list(buffers)),
            ],
            schema=PACKETS,
        )


def _captures(path: Path, info: RunInfo) -> tuple[dict[Side, Path], str | None]:
    """The captures of a run as far as they are still what they were, or why there are none."""
    own = [name for name in info.files if name.startswith(f"{layout.CAPTURES}/")]
    if own:
        names = {side: _only(path, own, side) for side in SIDES}
        return {side: path / name for side, name in names.items()}, None
    if not info.inputs:
        return {}, "its times were recorded by the generator, without captures"
    for side in SIDES:
        if changed := _changed(info.inputs[side]):
            return {}, f"{side} capture {info.inputs[side].file}: {changed}"
    return {side: Path(info.inputs[side].file) for side in SIDES}, None


def _only(path: Path, names: list[str], side: Side) -> str:
    found = [name for name in names if name.startswith(f"{layout.CAPTURES}/{side}.")]
    if len(found) != 1:
        raise RunCorruptError(
            f"{path}: expected one capture {side}.*, got {', '.join(names)}", code="capture-count"
        )
    return found[0]


def _changed(recorded: Input) -> str | None:
    """Return how a capture differs from the one that was analysed."""
    if recorded.size_bytes is None:
        return "it was read from a pipe"
    try:
        status = Path(recorded.file).stat()
    except OSError as error:
        return str(error.strerror)
    now = {"size_bytes": status.st_size, "modified_unix_ns": status.st_mtime_ns}
    for name, got in now.items():
        if got != (expected := getattr(recorded, name)):
            return f"{name}: expected {expected}, got {got}"
    return None


def _most_key_bytes(match_on: str) -> int:
    if match_on.startswith("bytes:"):
        ranges = match_on.removeprefix("bytes:").partition("/")[0].split(",")
        return sum(int(each.partition("+")[2]) for each in ranges)
    return _KEY_BYTES[match_on]
