"""Figures of a run that may be those of other programs on the device's CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from tailscope.engine.analysis import Distribution
from tailscope.noise.held import held_packets
from tailscope.noise.neighbours import read_held
from tailscope.store import layout
from tailscope.store.floor import FLOOR_GRID
from tailscope.store.info import neighbours_of
from tailscope.store.packets import Packets
from tailscope.units import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tailscope.engine.analysis import Analysis
    from tailscope.store.records.run import RunInfo

_TENTH = 0.1
_LOSS = "loss"


def with_unusable(info: RunInfo, path: Path, analysis: Analysis) -> RunInfo:
    """Add to what is known of neighbours which figures are not usable because of them."""
    noise, record = info.noise, neighbours_of(info)
    if noise is None or record is None or not record.held_ns:
        return info
    held = read_held((path / layout.NEIGHBOURS).read_bytes(), str(path / layout.NEIGHBOURS))
    file = path / layout.LATENCY
    with Packets(file.open("rb"), str(file)) as packets:
        prepared = held_packets(held, packets, is_exact=record.is_exact)
        bounds, least = prepared.bounds(), Distribution()
        for pre_ns, latency_ns in packets.batches("pre_ns", "latency_ns"):
            least.record(latency_ns - bounds.of(pre_ns, latency_ns))
    neighbours = structs.replace(
        record, unusable=(*_times(analysis, least), *_loss(analysis, prepared.most_lost))
    )
    return structs.replace(info, noise=structs.replace(noise, neighbours=neighbours))


def _times(analysis: Analysis, least: Distribution) -> Iterator[str]:
    """Quantiles the least of which is more than a tenth below their interval."""
    summary = analysis.summary
    for (name, label), q in zip(QUANTILES.items(), FLOOR_GRID, strict=True):
        low_ns = summary[f"latency_ns_{name}_ci_low"]
        is_supported = summary[f"latency_ns_{name}_supported"]
        if is_supported and low_ns is not None and least.at(q) < (1 - _TENTH) * float(low_ns):
            yield label


def _loss(analysis: Analysis, most_lost: int) -> Iterator[str]:
    """Yield the loss if more than a tenth of the lost packets may be those of other programs."""
    lost = int(analysis.summary["lost"] or 0)
    if lost and most_lost > _TENTH * lost:
        yield _LOSS
