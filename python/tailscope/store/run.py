"""The content of a run, apart from its single packets: all that a report draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailscope.exceptions import RunCorruptError
from tailscope.store.grid import grid_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tailscope.analysis import Analysis, Figure, Histogram, Quantile, Rate, Side, Worst

__all__ = [
    "EMULATED",
    "SIDES",
    "Run",
    "check_conservation",
    "host_of",
    "is_emulated",
    "kernel",
    "shown_as",
    "technology",
]

EMULATED = "EMULATED"
"""What stands beside everything that was measured where times mean nothing."""

SIDES: tuple[Side, Side] = ("pre", "post")

_SUMS = {
    "pre_packets": ("pre_trimmed", "pre_unkeyed", "ambiguous", "sent"),
    "sent": ("count", "lost", "late", "corrupt"),
    "post_packets": (
        "post_trimmed",
        "post_unkeyed",
        "count",
        "duplicated",
        "negative",
        "post_ambiguous",
        "post_late",
        "post_unknown",
    ),
}


@dataclass(frozen=True)
class Run:
    """One run: a pair of captures that was analysed, or a measurement.

    Attributes
    ----------
    label : str
        What the run is called in figures.
    info : Mapping
        ``run.json``: plan, inputs, clock, floor, host, versions; of a measurement also
        ``instrument`` and, where it did not go as planned, ``partial``: the reasons.
    summary : Mapping
        Every figure by its flat name.
    warnings : tuple of str
    percentiles : list of Quantile
        From the minimum up to the last quantile that has a sample beyond.
    latency : Histogram
    gaps : Mapping of side to Histogram
    rate : Mapping of side to Rate
    worst : Worst
    worst_explained : Mapping of str to sequence
        The parts of the worst packets' latencies and their causes; empty where nothing is known.
    explanation : Mapping or None
        What the tail is made of; None where nothing is known.
    path : Path or None
        Its directory, with tables that are read when they are asked for.
    kept : Mapping of str to Mapping
        Conclusions that were kept beside the run, by the names of their files (`layout.KEPT`).
    """

    label: str
    info: Mapping[str, Any]
    summary: Mapping[str, Figure]
    warnings: tuple[str, ...]
    percentiles: list[Quantile]
    latency: Histogram
    gaps: Mapping[Side, Histogram]
    rate: Mapping[Side, Rate]
    worst: Worst
    worst_explained: Mapping[str, Any] = field(default_factory=dict)
    explanation: Mapping[str, Any] | None = None
    path: Path | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        *,
        label: str,
        info: Mapping[str, Any],
        bucket_ns: int,
        path: Path | None = None,
    ) -> Run:
        """Collect the content of a run from an analysis.

        Parameters
        ----------
        analysis : Analysis
        label : str
            What the run is called in figures.
        info : Mapping
            The content of ``run.json``.
        bucket_ns : int
            Bucket of the histograms in ns.
        path : Path, optional
            Where its tables are.
        """
        return cls(
            label=shown_as(label, info),
            info=info,
            summary=analysis.summary,
            warnings=analysis.warnings,
            percentiles=analysis.quantiles(grid_for(int(analysis.summary["count"] or 0))),
            latency=analysis.histogram(bucket_ns),
            gaps={side: analysis.gaps(side, bucket_ns) for side in SIDES},
            rate={side: analysis.rate(side) for side in SIDES},
            worst=analysis.worst,
            path=path,
        )


def is_emulated(info: Mapping[str, Any]) -> bool:
    """Whether the device ran where times mean nothing.

    Parameters
    ----------
    info : Mapping
        The content of ``run.json``.
    """
    return not (info.get("platform") or {}).get("representative", True)


def host_of(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fingerprint of the machine that the device ran on."""
    hosts = info.get("hosts") or {}
    found: Mapping[str, Any] = hosts.get("dut") or info["host"]
    return found


def technology(info: Mapping[str, Any]) -> str | None:
    """What the device ran on; None where that was not recorded."""
    name = (info.get("platform") or {}).get("name") or info["plan"].get("platform")
    return None if name is None else str(name)


def kernel(info: Mapping[str, Any]) -> str | None:
    """The flavour of the kernel that the device ran on: of a guest's, if it ran in one."""
    platform = info.get("platform") or {}
    if technology(info) != "vm":
        found = host_of(info).get("kernel_flavour")
    elif platform.get("realtime"):
        found = "rt"
    else:
        found = "nohz" if platform.get("nohz_full_cpus") else "vanilla"
    return None if found is None else str(found)


def shown_as(label: str, info: Mapping[str, Any]) -> str:
    """What a run is called in figures and tables."""
    return f"{label} ({EMULATED})" if is_emulated(info) else label


def check_conservation(summary: Mapping[str, Figure], source: str) -> None:
    """Check that no packet got lost between the figures.

    Parameters
    ----------
    summary : Mapping
        Every figure by its flat name.
    source : str
        Where it was read, for the error.

    Raises
    ------
    RunCorruptError
        If a whole differs from the sum of its parts, or one of them is missing.
    """
    for whole, parts in _SUMS.items():
        numbers = {name: summary.get(name) for name in (whole, *parts)}
        for name, number in numbers.items():
            if not isinstance(number, int):
                raise RunCorruptError(f"{source}: {name}: expected a count, got {number!r}")
        total = sum(numbers[part] for part in parts)  # type: ignore[misc]
        if total != numbers[whole]:
            equation = " + ".join(parts)
            raise RunCorruptError(
                f"{source}: {whole} = {equation}: expected {numbers[whole]}, got {total}"
            )
