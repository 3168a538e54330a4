"""The result of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import convert
from msgspec.structs import asdict

from tailscope.store.info import is_emulated
from tailscope.store.records.campaign import CellFigures

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tailscope.engine.analysis import Analysis, Figure, Recording
    from tailscope.store.directory import Lack
    from tailscope.store.records.run import RunInfo

_REPRESENTATIVE = "representative"


@dataclass(frozen=True)
class Measured:
    """The result of a run."""

    analysis: Analysis
    info: RunInfo
    """The content of ``run.json``."""
    recording: Recording | None
    """The generator's recording; valid within `inspect` only: its files go with the run's folder.
    None where a timestamper watched."""
    dut_folder: Path | None
    """Folder in which the device wrote down its stalls."""
    interrupted: bool
    """True if somebody ended it before its time."""
    out: Path | None
    """The run directory that was written."""
    lacks: tuple[Lack, ...] = ()
    """Results that could not be made of it, and why."""

    @property
    def figures(self) -> dict[str, Figure]:
        """Every figure by its flat name, the instrument's own included."""
        return {**self.analysis.summary, **own_figures(self.info)}

    @property
    def most_important(self) -> CellFigures:
        """The figures that a line about the run says."""
        return most_important(self.figures, self.info)


def most_important(figures: Mapping[str, Figure], info: RunInfo) -> CellFigures:
    """The figures that a line about a run says."""
    names = set(CellFigures.__struct_fields__) - {_REPRESENTATIVE}
    found = {name: figures[name] for name in names}
    return convert({**found, _REPRESENTATIVE: not is_emulated(info)}, CellFigures)


def own_figures(info: RunInfo) -> dict[str, Figure]:
    """Return figures that a measurement counts, or draws, unlike an analysis of captures."""
    instrument, power = info.instrument, info.power
    assert instrument is not None, "it was measured"
    return {
        "unsent": instrument.unsent,
        "unsent_generator": instrument.unsent_generator,
        "lost_in_dut": instrument.lost_in_dut,
        "lost_in_instrument": instrument.lost_in_instrument,
        "lost_where_unknown": instrument.lost_where_unknown,
        "dropped_by_dut": instrument.dropped_by_dut,
        **({} if instrument.traffic is None else asdict(instrument.traffic)),
        **((power and power.figures) or {}),
    }
