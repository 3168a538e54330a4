"""A pair of captures in slices of time: analysed apart, on several machines if need be.

What is merged is the analysis of the whole pair, to the last figure:

    found = slices.split(pre, post, at_most=8, window="100ms")
    parts = [slices.analyze_slice(pre, post, each) for each in found.slices]
    analysis = slices.merge(parts)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import tailscope._engine as _engine
from tailscope.engine.analysis import Analysis, checked_extent, clocks_of, engine_errors, source_of
from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from tailscope.engine.analysis import Progress, Sink

__all__ = ["Part", "Slice", "Split", "analyze_slice", "merge", "split"]


class Slice:
    """A stretch of time of a pair, and how the pair is analysed.

    It holds what is to be known of the whole pair, but no packets, and can be pickled.

    Attributes
    ----------
    from_ns, to_ns : int
        Packets from `from_ns` up to `to_ns`, without it, are counted; since 1970.
    """

    def __init__(self, engine: _engine.Slice) -> None:
        self._engine = engine
        self.from_ns: int
        self.to_ns: int
        self.from_ns, self.to_ns = engine.times

    def __repr__(self) -> str:
        return f"<tailscope.engine.slices.Slice from_ns={self.from_ns} to_ns={self.to_ns}>"

    def __reduce__(self) -> tuple[Callable[[bytes], Slice], tuple[bytes]]:
        return Slice.from_bytes, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """Return the slice as bytes."""
        return bytes(self._engine.to_bytes())

    @classmethod
    def from_bytes(cls, content: bytes) -> Slice:
        """Read a slice from what `to_bytes` has returned.

        Raises
        ------
        AnalysisError
            If `content` is something else.
        """
        with engine_errors():
            return cls(_engine.Slice.from_bytes(content))


class Part:
    """The figures of a slice, or of several that were joined; can be pickled."""

    def __init__(self, engine: _engine.Part) -> None:
        self._engine = engine

    def __reduce__(self) -> tuple[Callable[[bytes], Part], tuple[bytes]]:
        return Part.from_bytes, (self.to_bytes(),)

    def __add__(self, other: Part) -> Part:
        """Join two parts of one pair; the order of several does not matter.

        Raises
        ------
        AnalysisError
            If they are of different pairs, or share a stretch of time.
        """
        with engine_errors():
            return Part(self._engine.join(other._engine))

    def to_bytes(self) -> bytes:
        """Return the part as bytes, compressed."""
        return bytes(self._engine.to_bytes())

    @classmethod
    def from_bytes(cls, content: bytes) -> Part:
        """Read a part from what `to_bytes` has returned.

        Raises
        ------
        AnalysisError
            If `content` is something else.
        """
        with engine_errors():
            return cls(_engine.Part.from_bytes(content))


class Split(NamedTuple):
    """The division of a pair.

    Attributes
    ----------
    slices : tuple of Slice
        In order of time; together they are the pair. Only one where dividing is not worth it.
    note : str or None
        Why there is only one.
    """

    slices: tuple[Slice, ...]
    note: str | None


def split(
    pre: str | os.PathLike[str],
    post: str | os.PathLike[str],
    *,
    at_most: int,
    match_on: str = "auto",
    trim: int | str = 0,
    window: int | str = "5s",
    worst: int = 5000,
    clocks: str = "detect",
    progress: Progress | None = None,
) -> Split:
    """Divide a pair into slices of about as many packets each.

    Both captures are read once, but only for the times of their packets. A slice is analysed with a
    few windows of what lies around it, and is made several times longer than that.

    Parameters
    ----------
    pre, post : path
        Captures, as for `analyze`, but no pipes.
    at_most : int
        Largest number of slices.
    match_on, trim, window, worst
        As for `analyze`; they hold for every slice.
    clocks : str
        As for `analyze`; a pair of clocks that are apart is not divided.
    progress : callable, optional
        Receives (bytes done, bytes in total).

    Raises
    ------
    UsageError
        If an argument cannot be understood.
    CaptureError
        If a capture cannot be read.
    AnalysisError
        If a capture cannot be divided, because it is a pipe, or the figures would not be true.
    """
    if at_most < 1:
        raise UsageError(f"at_most: got {at_most}, expected at least 1 slice", code="at-most")
    trim_ns, window_ns = checked_extent(trim, window, worst)
    with engine_errors():
        slices, note = _engine.split(
            source_of(pre),
            source_of(post),
            at_most=at_most,
            match_on=match_on,
            trim_ns=trim_ns,
            window_ns=window_ns,
            worst=worst,
            clocks=clocks_of(pre, post, clocks),
            progress=progress,
        )
    return Split(tuple(map(Slice, slices)), note)


def analyze_slice(
    pre: str | os.PathLike[str],
    post: str | os.PathLike[str],
    piece: Slice,
    *,
    sink: Sink | None = None,
    progress: Progress | None = None,
) -> Part:
    """Analyse a slice of a pair.

    Parameters
    ----------
    pre, post : path
        The captures that were divided; they may have another path here.
    piece : Slice
    sink : callable, optional
        Receives the slice's matches as that of `analyze` does. Those of all slices, in order of
        time, are those of the pair.
    progress : callable, optional
        Receives (bytes done, bytes in total).

    Raises
    ------
    CaptureError
        If a capture cannot be read.
    AnalysisError
        If the figures would not be true, a capture is not the one that was divided, or too many
        packets are in flight.
    """
    with engine_errors():
        return Part(
            _engine.analyze_slice(
                source_of(pre), source_of(post), piece._engine, sink=sink, progress=progress
            )
        )


def merge(parts: Iterable[Part]) -> Analysis:
    """Join the parts of a pair, in any order, into what `analyze` would have returned.

    Only `Analysis.series` is missing.

    Raises
    ------
    AnalysisError
        If parts are of different pairs, share a stretch of time, or leave one out.
    UsageError
        If there are none.
    """
    engines = [part._engine for part in parts]
    if not engines:
        raise UsageError("parts: got 0, expected at least 1", code="parts-none")
    first, *others = engines
    with engine_errors():
        return Analysis(_engine.merge(first, others))
