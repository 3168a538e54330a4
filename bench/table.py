"""What is printed: one line for each claim, beside its target."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Sense = Literal["speed-up", "cost", "rate", "share", "absolute", "error"]


@dataclass(frozen=True)
class Row:
    """One measurement; ``unit`` is that of both ``ours`` and ``theirs``."""

    what: str
    against: str
    sense: Sense
    ours: float
    theirs: float | None
    unit: str
    target: float | None

    @property
    def measured(self) -> float:
        """What the target speaks of: a ratio, or our figure where there is no other."""
        if self.theirs is None:
            return self.ours
        if self.sense == "error":
            return 100 * (self.ours / self.theirs - 1)
        return self.theirs / self.ours if self.sense == "speed-up" else self.ours / self.theirs

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        if self._more_is_better:
            return "met" if self.measured >= self.target else "missed"
        return "met" if self.measured <= self.target else "missed"

    @property
    def _more_is_better(self) -> bool:
        return self.sense in ("speed-up", "rate", "share")

    def cells(self) -> tuple[str, ...]:
        ratio = "%" if self.sense == "error" else "x"
        unit = self.unit if self.theirs is None else ratio
        sign = ">=" if self._more_is_better else "<="
        theirs = "" if self.theirs is None else f"{self.theirs:.3g} {self.unit}"
        target = "" if self.target is None else f"{sign} {self.target:g} {unit}"
        ours, measured = f"{self.ours:.3g} {self.unit}", f"{self.measured:.3g} {unit}"
        return self.what, self.against, ours, theirs, measured, target, self.verdict

    def figures(self) -> dict[str, object]:
        return asdict(self) | {"measured": self.measured, "verdict": self.verdict}


def print_table(rows: list[Row]) -> None:
    table = [("what", "against", "ours", "theirs", "measured", "target", "")]
    table += [row.cells() for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for what, against, *figures, verdict in table:
        left = f"{what:<{widths[0]}}  {against:<{widths[1]}}"
        right = [f"{cell:>{width}}" for cell, width in zip(figures, widths[2:-1], strict=True)]
        print("  ".join([left, *right, verdict]).rstrip(), flush=True)
