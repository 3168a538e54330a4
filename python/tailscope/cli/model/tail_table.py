"""Tables 4 and 5 of containers2024, and the data of its Figures 15 to 18: many runs, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailscope.exceptions import EvidenceError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailscope.cli.model.tail import LatencySource
    from tailscope.models.tail.equation1 import Equation1
    from tailscope.models.tail.excesses import Excesses
    from tailscope.models.tail.model import Settings, TailModel

__all__ = ["TailTable", "is_folder", "print_table", "table_of"]

_WORST, _STATS = ".worst.csv", ".stats.csv"
_RATE = "rate"


@dataclass(frozen=True)
class TabulatedRun:
    """A run, or a table of its worst packets.

    Attributes
    ----------
    setting, name : str
    model : TailModel or None
        None where nothing could be fitted.
    equation_1 : Equation1 or None
        The same of the authors' method.
    refused : str or None
    """

    setting: str
    name: str
    model: TailModel | None
    equation_1: Equation1 | None
    refused: str | None

    @property
    def is_inside(self) -> bool | None:
        """Whether the largest latency of the rest lies in its interval."""
        if self.model is None or self.model.check is None or self.refused is not None:
            return None
        out, largest = self.model.ahead.outlook, self.model.check.max_ns
        if largest is None:
            return None
        return out.low_ns <= largest and (out.high_ns is None or largest <= out.high_ns)

    def content(self) -> dict[str, Any]:
        """What ``--json`` says of it."""
        from tailscope.cli.model.tail import record_of

        return {
            "setting": self.setting,
            "name": self.name,
            "refused": self.refused,
            "tailscope": None if self.model is None else record_of(self.model, 0),
            "equation_1": None if self.equation_1 is None else _equation_1(self.equation_1),
        }


def _equation_1(found: Equation1) -> dict[str, Any]:
    return {
        **found.chosen._asdict(),
        "bounded": found.is_bounded,
        "return_level_ns": found.return_level_ns,
        "exceedances_packets": found.exceedances_packets,
        "exceedances_bursts": found.exceedances_bursts,
        "candidates": [each._asdict() for each in found.fits],
    }


@dataclass(frozen=True)
class TailTable:
    """All of them."""

    runs: Sequence[TabulatedRun]

    def content(self) -> dict[str, Any]:
        """What ``--json`` says."""
        return {
            "settings": [_setting(name, own) for name, own in self.by_setting()],
            "runs": [run.content() for run in self.runs],
        }

    def by_setting(self) -> Iterator[tuple[str, list[TabulatedRun]]]:
        """The runs of each setting."""
        for name in dict.fromkeys(run.setting for run in self.runs):
            yield name, [run for run in self.runs if run.setting == name]


def _setting(name: str, runs: Sequence[TabulatedRun]) -> dict[str, Any]:
    """A line of the table."""
    own = [run.model for run in runs if run.model is not None and run.refused is None]
    inside = [run.is_inside for run in runs if run.is_inside is not None]
    theirs = [run.equation_1 for run in runs if run.equation_1 is not None]
    return {
        "setting": name,
        "runs": len(runs),
        "refused": sum(run.refused is not None for run in runs),
        "exceedances_bursts_mean": _mean(
            [model.check.exceedances_bursts for model in own if model.check is not None]
        ),
        "bounded_share": _mean([model.ahead.limit_ns is not None for model in own]),
        "inside_share": _mean(inside),
        "equation_1_runs": len(theirs),
        "equation_1_exceedances_bursts_mean": _mean([each.exceedances_bursts for each in theirs]),
        "equation_1_exceedances_packets_mean": _mean([each.exceedances_packets for each in theirs]),
        "equation_1_bounded_share": _mean([each.is_bounded for each in theirs]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def is_folder(path: Path) -> bool:
    """Whether a path is a campaign, or a folder that holds tables of the authors."""
    from tailscope.store.campaign import is_campaign
    from tailscope.store.layout import RUN

    if not path.is_dir() or (path / RUN).exists():
        return False
    return is_campaign(path) or next(_tables(path), None) is not None


def _tables(path: Path) -> Iterator[Path]:
    return iter(sorted(path.rglob(f"*{_WORST}*")))


def table_of(sources: Sequence[LatencySource], settings: Settings, seed: int) -> TailTable:
    """Model each run by itself, by tailscope and as the paper does."""
    return TailTable(
        [_modelled(*each, settings, seed) for source in sources for each in _named(source)]
    )


def _named(source: LatencySource) -> Iterator[tuple[str, str, LatencySource]]:
    """Setting and name of each run below a path."""
    from tailscope.cli.model.tail import LatencySource
    from tailscope.store.campaign import is_campaign, read_campaign

    path = source.path
    if source.count is not None or not is_folder(path):
        yield path.parent.name, path.name, source
    elif is_campaign(path):
        for run in read_campaign(path):
            if run.path is not None:
                varied = {**(run.values or {"cell": run.cell})}
                varied.pop(_RATE, None)
                yield " ".join(varied.values()) or "-", run.name, LatencySource(run.path, None)
    else:
        for file in _tables(path):
            where = file.parent.relative_to(path)
            yield str(where), file.name.split(".")[0], LatencySource(file, _count(file))


def _count(worst: Path) -> int:
    """How many packets there were, by the table ``stats`` beside that of the worst."""
    from tailscope.store.authors import read_columns

    stem = worst.name.split(".num_worst")[0]
    found = sorted(worst.parent.glob(f"{stem}{_STATS}*"))
    if not found:
        raise RunError(
            f"{worst}: expected a table {stem}{_STATS} beside it, got none",
            hint="it has the number of packets",
        )
    (received,) = read_columns(found[0], ("post_received",))
    return int(received[0])


def _modelled(
    setting: str, name: str, source: LatencySource, settings: Settings, seed: int
) -> TabulatedRun:
    import numpy as np

    from tailscope.cli.model.tail import excesses_of
    from tailscope.exceptions import TailscopeError
    from tailscope.models.tail.model import model

    try:
        excesses, _ = excesses_of(source, settings.split)
    except TailscopeError as error:
        return TabulatedRun(setting, name, None, None, str(error))
    found: TailModel | None = None
    try:
        found = model(excesses, settings, np.random.default_rng(seed))
        refused = found.ahead.refused
    except EvidenceError as error:
        refused = str(error)
    return TabulatedRun(setting, name, found, _by_equation_1(excesses, settings), refused)


def _by_equation_1(excesses: Excesses, settings: Settings) -> Equation1 | None:
    from tailscope.models.tail.bursts import usual_run_length_ns
    from tailscope.models.tail.equation1 import equation_1

    if settings.split >= 1:
        return None
    length_ns = settings.run_length_ns or usual_run_length_ns(excesses.gap_ns)
    try:
        return equation_1(excesses, settings.split, length_ns)
    except EvidenceError:
        return None


def print_table(found: TailTable) -> None:
    """Print a line for each setting; one exceedance is expected."""
    from tailscope.cli.table import aligned

    header = ("setting", "runs", "refused", "bursts", "bounded", "inside", "by Eq. 1", "bounded")
    rows = [
        (
            line["setting"],
            str(line["runs"]),
            str(line["refused"]),
            _number(line["exceedances_bursts_mean"]),
            _share(line["bounded_share"]),
            _share(line["inside_share"]),
            _number(line["equation_1_exceedances_bursts_mean"]),
            _share(line["equation_1_bounded_share"]),
        )
        for line in (_setting(name, own) for name, own in found.by_setting())
    ]
    for text in aligned(header, [rows]):
        print(text)
    for reason in dict.fromkeys(run.refused for run in found.runs if run.model is None):
        names = [f"{run.setting}/{run.name}" for run in found.runs if run.refused == reason]
        more = "" if len(names) == 1 else f" and {len(names) - 1} more"
        print(f"{names[0]}{more}: {reason}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
