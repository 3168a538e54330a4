"""``campaign.json``: an experiment, and what became of its cells."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import field

from tailscope.store.records.base import Count, Record, Section
from tailscope.store.records.host import HostRecord

CAMPAIGN_FORMAT: Final = 1

Scalar = str | int | float | bool | None
Variable = list[Scalar] | dict[str, dict[str, object] | None] | str
"""Values, or labels that set several fields; a text where they were private and not published."""


class CellFigures(Section, frozen=True, kw_only=True):
    """The most important figures of a run."""

    latency_ns_p50: Count | None
    """As in `summary.json`."""
    latency_ns_p99: Count | None
    """As in `summary.json`."""
    latency_ns_p999: Count | None
    """As in `summary.json`."""
    latency_ns_p9999: Count | None
    """As in `summary.json`."""
    latency_ns_p99999: Count | None
    """As in `summary.json`."""
    latency_ns_max: Count | None
    """As in `summary.json`."""
    latency_ns_p50_supported: bool
    """As in `summary.json`."""
    latency_ns_p99_supported: bool
    """As in `summary.json`."""
    latency_ns_p999_supported: bool
    """As in `summary.json`."""
    latency_ns_p9999_supported: bool
    """As in `summary.json`."""
    latency_ns_p99999_supported: bool
    """As in `summary.json`."""
    sent: Count
    """As in `summary.json`."""
    count: Count
    """As in `summary.json`."""
    lost: Count
    """As in `summary.json`."""
    unsent: Count
    """As in `summary.json`."""
    representative: bool
    """True if times mean anything: they do not in an emulated guest."""


class CellRecord(Section, frozen=True, kw_only=True):
    """The outcome of a cell: one combination, one repetition."""

    name: str
    """Its name."""
    values: dict[str, Scalar] = field(default_factory=dict)
    """Value of each variable, or its label."""
    repeat: Count = 1
    """Number of the repetition, from 1."""
    state: str
    """`pending`, `running`, `done`, `partial`, `failed`, or `waiting` for another kernel to be
    booted; `unreadable` if a published run could not be read."""
    reason: str | None = None
    """Reason why it is not done."""
    hint: str | None = None
    """Advice on what to do about it."""
    runs: tuple[str, ...]
    """Its run directories, within the campaign's."""
    figures: tuple[CellFigures, ...] = ()
    """The most important figures of each run."""
    started_unix_ns: Count | None = None
    """Time at which it began."""
    lasted_s: float | None = None
    """Duration, in seconds."""


class BootRecord(Section, frozen=True, kw_only=True):
    """A reboot of the device's machine."""

    kernel: str | None
    """`vanilla`, `rt` or `nohz`; none for the default one."""
    parameters: str
    """Boot parameters beside those that the machine always has."""
    started_unix_ns: Count
    """Time at which it began."""
    lasted_s: float | None = None
    """Time until the machine was back as asked for, in seconds; none if it never was."""


class ExperimentRecord(Section, frozen=True, kw_only=True):
    """The experiment, with the profile that was chosen."""

    name: str | None = None
    """Its name."""
    fixed: dict[str, object] = field(default_factory=dict)
    """Fields common to all runs."""
    vary: dict[str, Variable] = field(default_factory=dict)
    """Variables and their values."""
    exclude: tuple[dict[str, Scalar | list[Scalar]], ...] = ()
    """Combinations that are left out."""
    repeats: Count = 1
    """Number of repetitions."""
    service_levels: tuple[str, ...] = ()
    """Service levels that each cell must meet."""
    order: str | None = None
    """`shuffled` or `as-written`."""
    seed: Count | None = None
    """Seed of the shuffling."""
    hosts: dict[str, object] | None = None
    """The machines of a laboratory."""


class CampaignRecord(Record, frozen=True, kw_only=True):
    """A campaign."""

    format: Literal[1] = CAMPAIGN_FORMAT
    """Version of the format."""
    name: str | None = None
    """Name of the experiment."""
    about: str | None = None
    """Subject of the experiment."""
    complete: bool | None = None
    """True if no cell is left."""
    tailscope_version: str | None = None
    """The version of tailscope that wrote it."""
    started_unix_ns: Count | None = None
    """Start of the campaign."""
    host: HostRecord | None = None
    """The machine."""
    experiment: ExperimentRecord | None = None
    """The experiment, with the profile that was chosen: [experiment.md](experiment.md)."""
    boots: tuple[BootRecord, ...] = ()
    """Reboots of the device's machine, in their order."""
    cells: tuple[CellRecord, ...]
    """The cells: one for each combination and repetition."""
