"""What a run found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tailscope.analysis import Analysis, Recording

__all__ = ["Measured", "own_figures"]


@dataclass(frozen=True)
class Measured:
    """What a run found.

    Attributes
    ----------
    analysis : Analysis
    info : Mapping
        The content of ``run.json``.
    recording : Recording or None
        Of the generator; valid within `inspect` only: its files go with the run's folder. None
        where a timestamper watched.
    dut_folder : Path or None
        Where the device wrote down its stalls.
    interrupted : bool
        Whether somebody ended it before its time.
    out : Path or None
        The run directory that was written.
    """

    analysis: Analysis
    info: Mapping[str, Any]
    recording: Recording | None
    dut_folder: Path | None
    interrupted: bool
    out: Path | None

    @property
    def figures(self) -> dict[str, Any]:
        """Every figure by its flat name, the instrument's own included."""
        return {**self.analysis.summary, **own_figures(self.info)}


def own_figures(info: Mapping[str, Any]) -> dict[str, Any]:
    """What a measurement counts, and draws, that an analysis of captures cannot know.

    Parameters
    ----------
    info : Mapping
        The content of ``run.json``.
    """
    names = ("unsent", "lost_in_dut", "lost_in_instrument", "dropped_by_dut")
    power = info.get("power", {}).get("figures", {})
    return {**{name: info["instrument"][name] for name in names}, **power}
