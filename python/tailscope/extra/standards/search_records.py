"""``search.json``: the highest rates that a search found."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record, Section
from tailscope.store.records.host import HostRecord
from tailscope.store.records.overload import OverloadFigures
from tailscope.store.records.plan import MeasurementPlan

SEARCH_FORMAT: Final = 2


class SearchedGoal(Section, frozen=True, kw_only=True):
    """The result of a goal."""

    goal: str
    """`NDR`, `PDR` or `level`."""
    rate_pps: Count | None
    """The highest rate that holds; null if none does, or none is known."""
    fails_at_pps: Count | None
    """The lowest rate above it that does not hold; null if there is none."""
    limited_by: str | None
    """Limit of the rate: [search.md](search.md)."""


class SearchedTrial(Section, frozen=True, kw_only=True):
    """A rate that was tried."""

    rate_pps: Count
    """Packets per second."""
    sent: Count
    """As in `summary.json`."""
    unsent: Count
    """As in `summary.json`."""
    lost_in_dut: Count
    """As in `summary.json`."""
    lost_in_instrument: Count
    """As in `summary.json`."""
    lost_where_unknown: Count = 0
    """As in `summary.json`."""
    latency_ns_p50: Count | None
    """As in `summary.json`."""
    loss_ratio: float
    """The device's share of lost packets."""
    meets_level: bool | None
    """Whether the packets of the trial meet `--slo`; null without, or if it depends on
    the instrument's stalls."""
    invalid: str | None
    """Why the trial says nothing of the device; null if it does."""


class SearchRecord(Record, frozen=True, kw_only=True):
    """The results of `tailscope search`."""

    format: Literal[2] = SEARCH_FORMAT
    """Version of the format."""
    tailscope_version: str
    """The version of tailscope that wrote it."""
    host: HostRecord
    """The machine."""
    plan: MeasurementPlan
    """The plan of a trial."""
    min_rate_pps: Count
    """Lowest rate, as asked for."""
    max_rate_pps: Count
    """Highest rate, as asked for."""
    trial_s: float
    """Duration of a trial."""
    width: float
    """Largest distance of the rate that holds and the one that does not, relative to the second."""
    pdr_loss: float
    """Share of packets that may be lost at the PDR."""
    slo: str | None
    """The service level; null without."""
    forwarder: str | None
    """The forwarder that a prediction was made with; null without."""
    goals: tuple[SearchedGoal, ...]
    """Results by goal."""
    instrument_limit_pps: Count | None
    """The lowest rate at which no trial says anything of the device; null if there is none."""
    prediction: OverloadFigures | None
    """With `--forwarder`, what `tailscope model overload` says; null without, or if nothing
    follows."""
    trials: tuple[SearchedTrial, ...]
    """The trials, in order."""
    without_device: tuple[SearchedTrial, ...]
    """Trials without the device, in order."""
    warnings: tuple[str, ...]
    """Warnings to the reader: sentences."""
    partial: tuple[str, ...]
    """Why the search is partial: sentences."""
