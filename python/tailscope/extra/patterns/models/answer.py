"""What a detector says: a pattern with its evidence, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Marks: TypeAlias = NDArray[np.bool_]
    Floats: TypeAlias = NDArray[np.float64]
    Numbers: TypeAlias = NDArray[np.int64]
    Figure: TypeAlias = float | int | str | tuple[float, ...] | None


@dataclass(frozen=True)
class Finding:
    """A pattern, the figures that are its evidence, and the packets that it delayed."""

    pattern: str
    figures: Mapping[str, Figure]
    delayed: Marks | None = field(default=None, compare=False)
    """The packets whose delay it explains; None if it delays none."""


@dataclass(frozen=True)
class Refusal:
    """The reason why a pattern is not named."""

    pattern: str
    reason: str


Answer: TypeAlias = Finding | Refusal
