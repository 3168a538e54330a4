"""A measurement of the path to another host, from its first query to its run directory."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tailscope.engine.analysis import analyze_recording
from tailscope.exceptions import EvidenceError
from tailscope.extra.hosts import PASSAGES, RECORD
from tailscope.extra.hosts.cards import stamping
from tailscope.extra.hosts.ends import Sender
from tailscope.extra.hosts.figures import hosts_record
from tailscope.extra.hosts.passages import CAUSES, HERE, THERE, read_passages
from tailscope.extra.hosts.words import warnings_of
from tailscope.noise.table import NoiseRows, SideNoise, columns
from tailscope.noise.timeline import Timeline
from tailscope.report.of_run import page_of
from tailscope.signals import patient
from tailscope.store.atomic import write_text
from tailscope.store.directory import RunWriter, check_whole
from tailscope.store.parquet import write_parquet
from tailscope.store.provenance import links_info
from tailscope.store.records.base import encode
from tailscope.store.records.plan import AnalysisPlan
from tailscope.store.records.run import NoiseRecord, OwnWork
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.engine.analysis import Analysis, Figure
    from tailscope.extra.hosts.passages import Passages
    from tailscope.extra.hosts.records import HostsRecord
    from tailscope.store.records.about import AboutRecord
    from tailscope.store.records.run import RunInfo

_UNSTAMPED = "an end of the path"
"""Cause of what a program may have added to latencies of which no kernel took each time."""


@dataclass(frozen=True, kw_only=True)
class HostsPlan:
    """What is sent, for how long, and how it is analysed."""

    to: str
    """The other host, as its user named it."""
    address: str
    """Its address and port."""
    rate_pps: int
    pattern: str
    """When queries leave, as the sender takes it."""
    about: AboutRecord
    size: str
    """The size of frames, or a mix of sizes."""
    flows: int
    source_port: int
    dscp: int | None
    duration_ns: int
    window_ns: int
    trim_ns: int
    bucket_ns: int
    worst: int
    seed: int
    poll: str
    plain: bool
    """True if nothing beyond RFC 8762 is asked for."""
    txtime: str
    """Whether the queue of the interface lets packets wait: auto, on or off."""
    card: str | None
    """The link whose card takes the times of packets; None for the kernel."""
    key_file: Path | None
    """The file of the key that packets are sealed by."""
    command: str
    """The command that measures it once more, for a shell."""
    out: Path

    def options(self, record: Path) -> list[str]:
        """Return the options of the sender."""
        given = {
            "to": self.address,
            "rate": self.rate_pps,
            "pattern": self.pattern,
            "seed": self.seed,
            "duration": f"{self.duration_ns}ns",
            "drain": f"{self.window_ns}ns",
            "size": self.size,
            "flows": self.flows,
            "source-port": self.source_port,
            "poll": self.poll,
            "txtime": self.txtime,
            "record": record,
        }
        options = [f"--{name}={value}" for name, value in given.items()]
        options += [] if self.dscp is None else [f"--dscp={self.dscp}"]
        options += [] if self.card is None else [f"--card={self.card}"]
        options += [] if self.key_file is None else [f"--key-file={self.key_file}"]
        return [*options, *(["--plain"] if self.plain else [])]


@dataclass(frozen=True)
class Asked:
    """What came of it."""

    analysis: Analysis
    info: RunInfo
    record: HostsRecord
    interrupted: bool


def ask(plan: HostsPlan) -> Asked:
    """Send queries, analyse the answers, and write the run directory."""
    with (
        RunWriter(plan.out, draw=page_of) as writer,
        RunFolder() as folder,
        stamping(plan.card),
    ):
        recording = folder.make("recording")
        with (
            # Until an answer came, there is nothing to keep: Ctrl-C ends it at once.
            Sender(plan.options(recording), place=Here(folder.path)) as sender,
            patient(lambda: None) as patience,
        ):
            result = sender.follow(lambda: patience.asked)
        passages = read_passages(recording)
        if not len(passages.seq):
            raise EvidenceError(
                f"{plan.to}: no answer came to {result.sender.sent:,} queries",
                code="no-answers",
                hint="the host answered before: see that it is still up, and reachable",
            )
        record = hosts_record(plan.to, plan.address, passages, result.sender)
        record = replace(record, command=plan.command)
        analysis = analyze_recording(
            passages.recording(),
            cut_off=patience.asked,
            trim=plan.trim_ns,
            window=plan.window_ns,
            worst=plan.worst,
            series=False,
            sink=writer.sink,
        )
        writer.add_noise(columns([_noise(passages)]))
        write_text(writer.path / RECORD, encode(record))
        write_parquet(writer.path / PASSAGES, passages.columns())
        info = _info(plan, analysis, record, result.partial)
        lacks = writer.finish(
            analysis, info=info, bucket_ns=plan.bucket_ns, figures=_figures(analysis, record)
        )
        check_whole(writer.path, lacks)
    return Asked(analysis, info, record, patience.asked)


def _info(
    plan: HostsPlan, analysis: Analysis, record: HostsRecord, partial: Sequence[str]
) -> RunInfo:
    asked = AnalysisPlan(
        pre=socket.gethostname(),
        post=plan.to,
        match_on="probe",
        clocks="same",
        trim_ns=plan.trim_ns,
        window_ns=plan.window_ns,
        bucket_ns=plan.bucket_ns,
        worst=plan.worst,
    )
    noise = NoiseRecord(
        events=None,
        events_missing_because="ends of a path are watched by their own programs",
        interrupts={},
        counter_samples=0,
        steal_ns={},
        own_work=OwnWork(instrument=(), dut=()),
    )
    # Frames without room for a query are longer than they were to be.
    shortest, longest = record.ends.frame_bytes_min, record.ends.frame_bytes_max
    return replace(
        links_info(asked, analysis.summary),
        about=replace(plan.about, size_bytes=shortest if shortest == longest else None),
        partial=tuple(partial),
        warnings=tuple(warnings_of(record)),
        noise=noise,
    )


def _figures(analysis: Analysis, record: HostsRecord) -> dict[str, Figure]:
    """Return the figures that the analysis of packets alone does not know."""
    loss, order = record.loss, record.order
    # A reflector that tells nothing of itself may have lost queries, as the network may have.
    of_reflector = (loss.forth or 0) if record.ends.reflector is None else 0
    figures: dict[str, Figure] = {
        "unsent": record.ends.unsent,
        "lost_in_instrument": loss.of_ends,
        "lost_in_dut": (loss.forth or 0) + (loss.back or 0) - of_reflector,
        "lost_where_unknown": loss.where_unknown + of_reflector,
    }
    if order.reordered_forth is not None and order.reordered_back is not None:
        # What the reflector held up is no part of latencies, and changes no order.
        figures["reordered"] = reordered = order.reordered_forth + order.reordered_back
        count = int(analysis.summary["count"] or 0)
        figures["reordered_ratio"] = reordered / count if count else None
    return figures


def _noise(passages: Passages) -> SideNoise:
    """Return the stalls of both ends, and which of them may be in latencies."""
    rows = NoiseRows()
    for end, name in ((HERE, "sender"), (THERE, "reflector")):
        stalls = passages.stalls[end]
        for number, cause in enumerate(CAUSES):
            some = stalls.cause == number
            start, end_ns = stalls.start_ns[some], stalls.end_ns[some]
            rows.add("instrument", end, "stall", start, end_ns, cause=f"{name}: {cause}")
    since_ns, until_ns = passages.uncertain()
    pieces, same = np.arange(len(since_ns)), np.zeros(len(since_ns), np.int32)
    timeline = Timeline(0, since_ns, until_ns, pieces, same, same, [_UNSTAMPED], [""])
    return SideNoise("instrument", [timeline], rows, {})
