"""Columns of tables: arrays of NumPy, masked where cells are missing, and texts by places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Values: TypeAlias = "NDArray[Any]"
"""An array of numbers, booleans or texts."""


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts, of which there are few that differ."""

    places: Values
    """For each row, the place of its text among the others."""
    names: Sequence[str | None]
    """The texts, each once; None where one is missing."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """Find those that differ."""
        places: dict[str, int] = {}
        own = [places.setdefault(text, len(places)) for text in texts]
        return cls(np.array(own, np.uint32), [*places])

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: slice | Values) -> Texts:
        return Texts(self.places[rows], self.names)

    def are(self, text: str) -> NDArray[np.bool_]:
        """Mark the rows that have a text."""
        place = self.names.index(text) if text in self.names else len(self.names)
        is_text: NDArray[np.bool_] = self.places == place
        return is_text

    def array(self) -> NDArray[np.object_]:
        """Return the text of each row; equal ones are one object."""
        found: NDArray[np.object_] = np.array([*self.names, None], object)[self.places]
        return found


Column: TypeAlias = "Values | np.ma.MaskedArray[Any, Any] | Texts"
"""A column; of a masked array, masked cells are missing."""


def column_of(cells: Column | Sequence[object]) -> Column:
    """Make a column of numbers, booleans or texts."""
    if isinstance(cells, Texts | np.ma.MaskedArray):
        return cells
    is_typed = isinstance(cells, np.ndarray) or len(cells) > 0
    array = np.asarray(cells, None if is_typed else np.int64)
    return Texts.of(array.tolist()) if array.dtype.kind in "OU" else array


def joined(pieces: Sequence[Column]) -> Column:
    """Join pieces of one column; there is at least one."""
    if isinstance(pieces[0], Texts):
        places: dict[str | None, int] = {}
        codes = []
        for piece in pieces:
            assert isinstance(piece, Texts), "all pieces are of one type"
            own = [places.setdefault(name, len(places)) for name in piece.names]
            codes.append(np.array([*own, 0], np.uint32)[piece.places])
        return Texts(np.concatenate(codes), [*places])
    if any(isinstance(piece, np.ma.MaskedArray) for piece in pieces):
        masked: np.ma.MaskedArray[Any, Any] = np.ma.concatenate(pieces)  # type: ignore[no-untyped-call]
        return masked
    return np.concatenate(pieces)  # type: ignore[arg-type]


def values(column: Column) -> Values:
    """Return what a column holds; None where a cell is missing."""
    if isinstance(column, Texts):
        return column.array()
    if isinstance(column, np.ma.MaskedArray):
        found = np.ma.getdata(column).astype(object)
        found[np.ma.getmaskarray(column)] = None
        return found
    return column
