"""Two captures in, the truth out: the typed face of the engine.

Every figure is computed by the engine; nothing is computed again here.
"""

from __future__ import annotations

import math
import mmap
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

import tailscope._engine as _engine
from tailscope.exceptions import (
    AnalysisError,
    CaptureError,
    ClocksApartError,
    KeyChangesError,
    KeysRepeatError,
    SwappedError,
    UsageError,
)
from tailscope.paths import hint_of, refuse_absent
from tailscope.units import duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Nanoseconds: TypeAlias = NDArray[np.uint64]
    Counts: TypeAlias = NDArray[np.uint64]
    Places: TypeAlias = NDArray[np.uint32]
    Ticks: TypeAlias = NDArray[np.uint64]
    Marks: TypeAlias = NDArray[np.bool_]
    Sink: TypeAlias = Callable[..., None]
    Progress: TypeAlias = Callable[[int, int | None], None]
    Intervals: TypeAlias = Sequence[tuple[int, int]]

Side: TypeAlias = Literal["pre", "post"]
Figure: TypeAlias = int | float | str | bool | None


class Quantile(NamedTuple):
    """A quantile with its uncertainty.

    Attributes
    ----------
    q : float
        Quantile in [0, 1].
    value_ns : int
        The smallest latency with at least ``q * n`` samples at or below it.
    ci_low_ns, ci_high_ns : int or None
        Narrowest pair of order statistics that covers the true quantile with at least 95 %
        probability; None where the samples do not bound that side.
    beyond : int
        Number of samples of higher rank.
    supported : bool
        True if at least 10 samples lie beyond. If not, only the lower bound says something.
    """

    q: float
    value_ns: int
    ci_low_ns: int | None
    ci_high_ns: int | None
    beyond: int
    supported: bool


class Histogram(NamedTuple):
    """Non-empty buckets, ascending.

    Attributes
    ----------
    bucket_ns : ndarray of uint64, shape (n_buckets,)
        Lower edges.
    counts : ndarray of uint64, shape (n_buckets,)
    """

    bucket_ns: Nanoseconds
    counts: Counts


class Rate(NamedTuple):
    """Packets per second of one side.

    Attributes
    ----------
    start_ns : ndarray of uint64, shape (n_seconds,)
        Begin of each second.
    counts : ndarray of uint64, shape (n_seconds,)
    """

    start_ns: Nanoseconds
    counts: Counts


class Worst(NamedTuple):
    """The worst packets, by latency descending, then by time.

    Attributes
    ----------
    latency_ns, pre_ns, post_ns : ndarray of uint64, shape (n_worst,)
    pre_seq : ndarray of uint64, shape (n_worst,)
        Position of the packet in the pre capture, from 0.
    """

    latency_ns: Nanoseconds
    pre_ns: Nanoseconds
    post_ns: Nanoseconds
    pre_seq: Counts


class Group(NamedTuple):
    """The figures of packets that have something in common."""

    name: str
    sent: int
    """Packets that are to be found behind the device."""
    matched: int
    lost: int
    unseen: int
    """Of `lost`, those of flows that never appear behind the device: they may go elsewhere."""
    latency_ns_p50: int | None
    latency_ns_p99: int | None
    """Quantiles of the latency; None without a match, or with too many groups to keep them."""
    latency_ns_max: int | None
    tail: int | None
    """Matches above the 99th percentile of all packets."""
    exact: bool
    """False where quantiles are up to a 2048th too low, because the packets were too many."""


class LossRun(NamedTuple):
    """Packets that were lost one behind the other: at least ten."""

    flow: str | None
    """None for all packets, whatever their flow."""
    start_ns: int
    end_ns: int
    """When the first and the last of them were seen before the device, since 1970."""
    lost: int


class Corruption(NamedTuple):
    """A packet that came out damaged."""

    pre_ns: int
    post_ns: int
    """When it was seen before and behind the device, since 1970."""
    flow: str
    size_bytes: int
    offset_bytes: int
    """The first byte that differs, in the frame behind the device."""
    bytes: int
    bits: int
    """How many differ."""


class PacketSink(Protocol):
    """Receives packets with their flows as they become final: constant memory."""

    def flows(self, names: list[str]) -> None:
        """Take the names of flows that follow those before; flows are numbered from 0."""

    def matches(
        self,
        seq: Counts,
        pre_ns: Nanoseconds,
        latency_ns: Nanoseconds,
        flow: Places,
        size_bytes: Places,
    ) -> None:
        """Take matches in the order of the pre capture."""

    def lost(self, seq: Counts, pre_ns: Nanoseconds, flow: Places, size_bytes: Places) -> None:
        """Take lost packets in the order of the pre capture."""

    def untimed(self, seq: Counts, pre_ns: Nanoseconds, latency_ns: Nanoseconds) -> None:
        """Take packets of which a time is in doubt, with what their times say, likewise."""


class Series(NamedTuple):
    """Every match in the order of the pre capture.

    Attributes
    ----------
    seq : ndarray of uint64, shape (n,)
        Position of the packet in the pre capture, from 0.
    pre_ns, latency_ns : ndarray of uint64, shape (n,)
    intended_ns : ndarray of uint64, shape (n,), or None
        Time at which the packet was meant to leave; None for captures.
    tainted : ndarray of bool, shape (n,), or None
        True if the instrument's stalls could change the first four digits of the latency; None for
        captures.
    instrument_stall_ns : ndarray of uint64, shape (n,), or None
        Time that the instrument stalled while the packet was under way, and that it may have waited
        behind packets that stalls held back: at most this much of the latency is the
        instrument's. None for captures.
    """

    seq: Counts
    pre_ns: Nanoseconds
    latency_ns: Nanoseconds
    intended_ns: Nanoseconds | None = None
    tainted: Marks | None = None
    instrument_stall_ns: Nanoseconds | None = None


class PacketKeys(NamedTuple):
    """Packets of one capture: when each was seen, and what it is recognised by."""

    ts_ns: Nanoseconds
    """In the order of the capture."""
    key_bytes: NDArray[np.uint8]
    """The keys of all packets, one after the other."""
    key_ends: Counts
    """End of each packet's key in `key_bytes`; it begins where the one before ends."""
    keyed: Marks
    """True if the packet has a key."""


class Clock(NamedTuple):
    """A counter of ticks, and what it says in Unix time."""

    tsc_hz: int
    """Ticks per second."""
    tsc: int
    """The counter at one moment."""
    unix_ns: int
    """The Unix time at that moment in ns."""

    def at_ns(self, tsc: int) -> int:
        """Unix time in ns at a value of the counter, rounded down."""
        return self.unix_ns + (tsc - self.tsc) * 1_000_000_000 // self.tsc_hz

    def all_at_ns(self, tsc: Ticks | NDArray[np.int64]) -> NDArray[np.int64]:
        """Unix times in ns at many values of the counter, rounded down, as `at_ns`."""
        import numpy as np

        # Whole seconds apart: the product of two large numbers would not fit.
        whole, rest = np.divmod(np.asarray(tsc, np.int64) - self.tsc, self.tsc_hz)
        ns: NDArray[np.int64] = whole * 1_000_000_000 + rest * 1_000_000_000 // self.tsc_hz
        return self.unix_ns + ns

    def all_at_tsc(self, unix_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the counter at many Unix times in ns, rounded down."""
        import numpy as np

        whole, rest = np.divmod(unix_ns - self.unix_ns, 1_000_000_000)
        ticks: NDArray[np.int64] = whole * self.tsc_hz + rest * self.tsc_hz // 1_000_000_000
        return self.tsc + ticks


class ClockDifference(NamedTuple):
    """The difference between the clock behind the device and the one before it."""

    offset_ns: int = 0
    """Lead at `since_ns`, in ns."""
    drift_ppt: int = 0
    """Drift of its rate, in parts per 10^12; positive if it runs faster."""
    since_ns: int = 0
    """A time of the clock behind the device, in ns."""
    relative: bool = False
    """True if latencies are above that of the fastest packet, because the offset is not known."""
    offset_low_ns: int | None = None
    offset_high_ns: int | None = None
    """The least and the highest offset at the first packet that packets prove, in ns: none arrived
    before it was sent. Without packets that travel the other way there is no least one."""
    drift_error_ppt: int | None = None
    """Largest error of the drift either way, in parts per 10^12, if the fastest packets take as
    long at any time; 0 if the drift is known, None where too few packets tell. With a known offset
    None says that the drift is still to be told: packets that show one are refused."""


_ONE_CLOCK: Final = ClockDifference(drift_error_ppt=0)
_ANY_DRIFT_PPT: Final = 10**9
"""The most that the clock of a computer drifts by, in parts per 10^12."""
_DRIFT_BEHIND: Final = ",drift="
_PPM: Final = re.compile(r"([+-]?\d+(?:\.\d+)?) ?ppm", re.ASCII)
ESTIMATED_DRIFT: Final = f"{_DRIFT_BEHIND}estimate"
"""What stands behind a known offset whose drift is to be estimated."""


class ClockDoubt(NamedTuple):
    """A time at which the clock of a capture is in doubt, as that clock says it."""

    side: Side
    start_ns: int
    end_ns: int
    offset_ns: int | None
    """Its largest offset that was seen then; None where nobody looked."""
    reason: Literal["offset", "frequency", "state", "silence"]


class Interface(NamedTuple):
    """An interface of a capture."""

    number: int
    """Its place in the file, from 0."""
    name: str | None
    description: str | None
    link_type: str
    packets: int
    """Its packets in the beginning of the capture."""


class Recording(NamedTuple):
    """A recording of the generator, in ticks of its clock."""

    clock: Clock
    intended_tsc: Ticks
    departure_tsc: Ticks
    """Time at which each packet was meant to leave, and left, by sequence number."""
    arrival_seq: Counts
    arrival_tsc: Ticks
    """Number and time of each packet that arrived, in order of arrival."""
    corrupt_seq: Counts
    """Packets that came back changed."""
    stall_start_tsc: Ticks
    stall_duration_tsc: Ticks
    """The instrument's own stalls: those of the generator, and others that taint samples."""

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], clock: Clock, *, cut_off: bool = False
    ) -> Recording:
        """Map the arrays that ``tailscope-dp gen --record`` has written.

        Those of one that ended before its time (`cut_off`) may end at different packets.
        """
        whole = cls(clock, *(load_ticks(folder, name) for name in cls._fields[1:]))
        return whole._consistent() if cut_off else whole

    def _consistent(self) -> Recording:
        """Return what all arrays have: some may end some packets before others."""
        import numpy as np

        sent = min(len(self.intended_tsc), len(self.departure_tsc))
        arrived = min(len(self.arrival_seq), len(self.arrival_tsc)) if sent else 0
        if arrived:
            # What left later arrived later, too.
            last = np.searchsorted(self.arrival_tsc[:arrived], self.departure_tsc[sent - 1])
            is_unknown = self.arrival_seq[last:arrived] >= sent
            arrived = int(last + np.argmax(is_unknown)) if is_unknown.any() else arrived
        stalls = min(len(self.stall_start_tsc), len(self.stall_duration_tsc))
        return Recording(
            self.clock,
            self.intended_tsc[:sent],
            self.departure_tsc[:sent],
            self.arrival_seq[:arrived],
            self.arrival_tsc[:arrived],
            self.corrupt_seq[self.corrupt_seq < sent],
            self.stall_start_tsc[:stalls],
            self.stall_duration_tsc[:stalls],
        )


class Distribution:
    """Durations counted one by one, exact at 1 ns.

    Takes two to four bytes a sample at the worst, and less where many are alike.
    """

    def __init__(self) -> None:
        self._engine = _engine.Distribution()

    @property
    def count(self) -> int:
        """Number of values."""
        return self._engine.count

    def record(self, values_ns: Nanoseconds) -> None:
        """Count some more."""
        self._engine.record(values_ns)

    def record_many(self, values_ns: Nanoseconds, counts: Counts) -> None:
        """Count values several times each."""
        with engine_errors():
            self._engine.record_many(values_ns, counts)

    def at_ranks(self, ranks: Iterable[int]) -> list[int]:
        """Return values by rank, which must ascend, from 1 for the smallest."""
        with engine_errors():
            return self._engine.at_ranks(list(ranks))

    def at(self, q: float) -> int:
        """Return the smallest value with at least ``q * count`` at or below it, or 0."""
        return self.at_ranks([max(1, math.ceil(q * self.count))])[0] if self.count else 0

    def above(self, limit_ns: int) -> int:
        """Return the number of values above a limit."""
        return self._engine.above(limit_ns)


class Analysis:
    """The result of `analyze`.

    Arrays are the engine's own memory where that is possible: they are not copied.

    Attributes
    ----------
    summary : Mapping[str, int | float | str | bool | None]
        Every figure by its flat name, units in the names (``latency_ns_p999``).
    warnings : tuple of str
        Facts that a reader of the figures must know.
    """

    def __init__(self, engine: _engine.Analysis) -> None:
        self._engine = engine
        self.summary: Mapping[str, Figure] = engine.summary
        self.warnings: tuple[str, ...] = tuple(engine.warnings)

    def __repr__(self) -> str:
        summary = self.summary
        return (
            f"<tailscope.Analysis count={summary['count']} lost={summary['lost']}"
            f" latency_ns_p50={summary['latency_ns_p50']}>"
        )

    def quantile(self, q: float) -> Quantile | None:
        """Return one quantile of the latency; None if there is no sample.

        Parameters
        ----------
        q : float
            Quantile in [0, 1].

        Raises
        ------
        ValueError
            If `q` lies outside of [0, 1].
        """
        quantiles = self.quantiles([q])
        return quantiles[0] if quantiles else None

    def quantiles(self, qs: Iterable[float]) -> list[Quantile]:
        """Quantiles of the latency; an empty list when there is no sample.

        Parameters
        ----------
        qs : iterable of float
            Quantiles in [0, 1].

        Raises
        ------
        ValueError
            If one lies outside of [0, 1].
        """
        wanted = list(qs)
        for q in wanted:
            if not 0.0 <= q <= 1.0:
                raise ValueError(f"a quantile lies in [0, 1], got {q!r}")
        if not self.summary["count"]:
            return []
        return [Quantile(*figures) for figures in self._engine.quantiles(wanted)]

    def histogram(self, bucket_ns: int = 100) -> Histogram:
        """Histogram of the latency.

        Parameters
        ----------
        bucket_ns : int
            Width of a bucket in ns.
        """
        return Histogram(*self._engine.histogram(bucket_ns))

    def distribution(self) -> Distribution:
        """Return the latencies of all matches, exact at 1 ns."""
        found = Distribution()
        found.record_many(*self.histogram(1))
        return found

    def least_histogram(self, bucket_ns: int = 100) -> Histogram | None:
        """Histogram of the least that latencies can have been, without stalls of the instrument.

        Parameters
        ----------
        bucket_ns : int
            Width of a bucket; 1 is exact.

        Returns
        -------
        Histogram or None
            None for captures, which know nothing of stalls.
        """
        buckets = self._engine.least_histogram(bucket_ns)
        return None if buckets is None else Histogram(*buckets)

    def gaps(self, side: Side, bucket_ns: int = 100) -> Histogram:
        """Histogram of the gaps between consecutive packets of one side.

        Parameters
        ----------
        side : {"pre", "post"}
        bucket_ns : int
            Width of a bucket in ns.
        """
        return Histogram(*self._engine.gap_histogram(side, bucket_ns))

    def rate(self, side: Side) -> Rate:
        """Return the packets per second of one side.

        Parameters
        ----------
        side : {"pre", "post"}
        """
        return Rate(*self._engine.rate_per_second(side))

    @property
    def deserves_second_look(self) -> bool:
        """True if both captures hold many packets that the other does not."""
        return self._engine.deserves_second_look

    @property
    def worst(self) -> Worst:
        """The worst packets."""
        return Worst(*self._engine.worst)

    def groups(self, by: str) -> list[Group]:
        """Figures of packets that have something in common, those of the most packets first.

        Parameters
        ----------
        by : {"flow", "dst_port", "protocol", "size", "vlan", "tos"}
            A flow has addresses, ports, protocol and VLAN: of the inner packet in a tunnel.

        Returns
        -------
        list of Group
            Empty for a recording, and for a pair that was merged from slices.
        """
        with engine_errors():
            found = self._engine.groups(by)
        return [
            Group(name, *counts, p50_ns, p99_ns, max_ns, tail, exact)
            for name, counts, (p50_ns, p99_ns, max_ns, tail, exact) in found
        ]

    @property
    def loss_runs(self) -> list[LossRun]:
        """Runs of at least ten lost packets, the longest first: of each flow, and of all."""
        return [LossRun(*run) for run in self._engine.loss_runs]

    @property
    def corruptions(self) -> list[Corruption]:
        """Packets that came out damaged, in order of time."""
        return [Corruption(*each) for each in self._engine.corruptions]

    @property
    def worst_flows(self) -> tuple[list[str], list[int]] | None:
        """Flow and size in bytes of each of `worst`; None where flows are not known."""
        return self._engine.worst_flows

    @property
    def resegmented_ns(self) -> Nanoseconds:
        """Times of packets that a `PacketSink` took for lost, and that came out in another form."""
        return self._engine.resegmented_ns

    @property
    def series(self) -> Series | None:
        """Every match, or None when `analyze` was told not to keep them."""
        columns = self._engine.series
        return None if columns is None else Series(*columns, *(self._engine.more or ()))

    def table(self) -> pa.Table | None:
        """Every match as an Arrow table that shares the memory of `series`.

        Returns
        -------
        pyarrow.Table or None
            Columns ``seq``, ``pre_ns`` and ``latency_ns``, all uint64; of a recording also
            ``intended_ns``, ``tainted`` and ``instrument_stall_ns``.

        Raises
        ------
        UsageError
            If pyarrow is not installed: extra ``arrow``.
        """
        series = self.series
        if series is None:
            return None
        from tailscope.engine.arrow import table

        columns = zip(series._fields, series, strict=True)
        return table({name: of for name, of in columns if of is not None})

    def worst_keys(self, pre: str | os.PathLike[str]) -> list[str]:
        """Key bytes of the worst packets in hexadecimal, in the order of `worst`.

        Parameters
        ----------
        pre : path
            The pre capture, which is read a second time.

        Raises
        ------
        CaptureError
            If it cannot be read again.
        """
        with engine_errors():
            return list(self._engine.worst_keys(source_of(pre)))

    def hlog(self) -> str:
        """Return the latency as an HdrHistogram log (V2)."""
        return str(self._engine.hlog())


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn the errors of the engine into those of the package, within a block."""
    try:
        yield
    except _engine.KeyChangesError as error:
        raise KeyChangesError(str(error), key=error.key, code=error.code, hint=error.hint) from None
    except _engine.EngineError as error:
        kind = _ERRORS.get(type(error), AnalysisError)
        hint = error.hint
        if hint is None and hasattr(error, "errno"):
            hint = hint_of(OSError(error.errno, ""))
        raise kind(str(error), code=error.code, hint=hint) from None
    except _engine.ArgumentError as error:
        raise UsageError(str(error), code=error.code) from None
    except (ValueError, OverflowError) as error:
        raise UsageError(str(error), code="argument") from None


_AT_ONCE = 1 << 20
"""Values of an array that are looked at together."""

TRAILER = "@trailer"
"""End of a capture's name whose times are those behind its frames."""

_ERRORS: dict[type[_engine.EngineError], type[AnalysisError]] = {
    _engine.CaptureError: CaptureError,
    _engine.ClocksApartError: ClocksApartError,
    _engine.SwappedError: SwappedError,
    _engine.KeysRepeatError: KeysRepeatError,
}


def source_of(capture: str | os.PathLike[str]) -> list[tuple[str, str | None]]:
    """Path and interface of each file of a capture.

    A capture is named as FILE or FILE:INTERFACE, with ``@trailer`` behind it for the times behind
    its frames, as a pattern such as ``ring_*.pcap``, or as
    several of them with commas between: what is a file as it stands is that file.
    """
    text = os.fspath(capture)
    if text.endswith(TRAILER) and not _exists(text):
        files = source_of(text.removesuffix(TRAILER))
        return [(file, f"{interface or ''}{TRAILER}") for file, interface in files]
    if _is_capture(text):
        return [_file_and_interface(text)]
    named = [name for part in _listed(text.split(",")) for name in _matching(part)]
    sources = [_file_and_interface(name) for name in named]
    for number, (file, interface) in enumerate(sources):
        if (file, interface) in sources[:number]:
            raise UsageError(
                f"{text}: got {file} twice, expected each file once", code="file-twice"
            )
    return sources


def _listed(parts: Sequence[str]) -> Iterator[str]:
    """Divide a list at its commas, but for those within the name of a file or a pattern of some."""
    while parts:
        names = (",".join(parts[:end]) for end in range(1, len(parts) + 1))
        name = next((name for name in names if _exists(name) or _matches(name)), parts[0])
        yield name
        parts = parts[name.count(",") + 1 :]


def _exists(text: str) -> bool:
    return any(map(os.path.isfile, (text, text.rpartition(":")[0])))


def _is_capture(text: str) -> bool:
    """Return whether a text names one file, or what nobody takes for a pattern or a list."""
    file = text.rpartition(":")[0]
    is_plain = not any(character in text for character in "*?[,")
    return is_plain or os.path.exists(text) or bool(file and os.path.exists(file))  # noqa: PTH110


def _matching(pattern: str) -> list[str]:
    """Return the files that a pattern means, in order; a name that is none is itself."""
    if _is_capture(pattern):
        return [pattern]
    if found := _matches(pattern):
        return found
    raise CaptureError(
        f"{pattern}: no file matches",
        code="capture-io",
        hint="a pattern means files: * any characters, ? one, [ab] one of these",
    )


def _matches(pattern: str) -> list[str]:
    """Return the files that a pattern matches, each with the interface behind it, if any."""
    from glob import glob

    if found := sorted(glob(pattern)):  # noqa: PTH207 - relative ones stay so
        return found
    files, colon, interface = pattern.rpartition(":")
    return [f"{file}:{interface}" for file in sorted(glob(files))] if colon else []  # noqa: PTH207


def _file_and_interface(text: str) -> tuple[str, str | None]:
    file, colon, interface = text.rpartition(":")
    is_interface = colon and interface and os.path.exists(file)  # noqa: PTH110
    if not is_interface or os.path.exists(text):  # noqa: PTH110
        if text != "-":
            refuse_absent(Path(text), CaptureError, "capture-io")
        return text, None
    return file, interface


def clock_difference(text: str) -> ClockDifference | None:
    """Read ``same`` or ``offset=TIME[,drift=PPM]``; None for ``detect`` and ``estimate``.

    Those are still unknown, as is a drift that is to be estimated.
    """
    if text in ("detect", "estimate"):
        return None
    if text == "same":
        return _ONE_CLOCK
    offset, has_drift, drift = text.partition(_DRIFT_BEHIND)
    if offset.startswith("offset="):
        time = offset.removeprefix("offset=")
        sign = -1 if time.startswith("-") else 1
        known = ClockDifference(sign * duration_ns(time.removeprefix("-"), "clocks"))
        if not has_drift or text.endswith(ESTIMATED_DRIFT):
            return known
        if ppm := _PPM.fullmatch(drift):
            drift_ppt = round(float(ppm.group(1)) * 1_000_000)
            if abs(drift_ppt) <= _ANY_DRIFT_PPT:
                return known._replace(drift_ppt=drift_ppt, drift_error_ppt=0)
        raise UsageError(
            f"clocks: drift: expected -1000ppm to 1000ppm, or estimate, got {drift!r}",
            code="clocks",
            hint="drift=8ppm says that the clock behind the device runs faster by 8 µs a second",
        )
    raise UsageError(
        "clocks: expected detect, same, estimate, offset=TIME or offset=TIME,drift=PPM, got"
        f" {text!r}",
        code="clocks",
        hint="offset=37s says that the clock behind the device is 37 s ahead, offset=-3ms that "
        "it is 3 ms behind",
    )


def reads_twice(clocks: str) -> bool:
    """Return whether the difference of clocks is first to be looked for in the captures.

    A drift holds from the first packet on, so also one that is known.
    """
    return clocks == "estimate" or _DRIFT_BEHIND in clocks


def _found(estimated: ClockDifference, known: ClockDifference | None) -> ClockDifference:
    """Return what was estimated of clocks, as far as it is not known."""
    if known is None:
        return estimated
    if known.drift_error_ppt is not None:
        return known._replace(since_ns=estimated.since_ns)
    error_ppt = estimated.drift_error_ppt
    return known._replace(
        drift_ppt=estimated.drift_ppt,
        since_ns=estimated.since_ns,
        drift_error_ppt=_ANY_DRIFT_PPT if error_ppt is None else error_ppt,
    )


def checked_extent(trim: int | str, window: int | str, worst: int) -> tuple[int, int]:
    """Return the trim and the window of an analysis, in ns."""
    if worst < 0:
        raise UsageError(f"worst: got {worst}, expected 0 or more packets", code="worst")
    return duration_ns(trim, "trim"), duration_ns(window, "window")


def clocks_of(
    pre: str | os.PathLike[str], post: str | os.PathLike[str], clocks: str | ClockDifference
) -> ClockDifference | None:
    """Return the known difference of a pair's clocks; interfaces of one file share a clock."""
    files = [{file for file, _ in source_of(capture)} for capture in (pre, post)]
    if clocks == "detect" and files[0] == files[1]:
        return _ONE_CLOCK
    return clock_difference(clocks) if isinstance(clocks, str) else clocks


def interfaces(capture: str | os.PathLike[str]) -> list[Interface]:
    """List the interfaces that the beginning of a capture describes."""
    if os.fspath(capture) != "-":
        refuse_absent(Path(capture), CaptureError, "capture-io")
    with engine_errors():
        return [Interface(*interface) for interface in _engine.interfaces(os.fspath(capture))]


def estimate_clocks(
    pre: str | os.PathLike[str],
    post: str | os.PathLike[str],
    *,
    match_on: str = "auto",
    window: int | str = "5s",
    doubts: tuple[Intervals, Intervals] = ((), ()),
    progress: Progress | None = None,
) -> ClockDifference:
    """Estimate how far two clocks are apart, by the fastest packets over time.

    The method is that of Moon, Skelly and Towsley, "Estimation and Removal of Clock Skew from
    Network Delay Measurements" (INFOCOM 1999). The offset cannot be told from the latency of the
    fastest packet, which is taken for 0. Arguments are those of `analyze`, but no pipes.
    """
    with engine_errors():
        difference = _engine.estimate_clocks(
            source_of(pre),
            source_of(post),
            match_on=match_on,
            window_ns=duration_ns(window, "window"),
            doubts=doubts,
            progress=progress,
        )
    return ClockDifference(*difference)


def retime(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    knots: Sequence[tuple[int, int]],
) -> int:
    """Write a capture once more as pcapng in zstd, in the time of another clock; count its packets.

    A knot is a time of the capture's clock, and by how much it is ahead of the other clock then, in
    ns: straight in between, and on beyond the first and the last.
    """
    with engine_errors():
        return _engine.retime(os.fspath(source), os.fspath(target), list(knots))


def analyze(
    pre: str | os.PathLike[str],
    post: str | os.PathLike[str],
    *,
    match_on: str = "auto",
    trim: int | str = 0,
    window: int | str = "5s",
    worst: int = 5000,
    joined_by: str | None = None,
    clocks: str | ClockDifference = "detect",
    doubts: tuple[Intervals, Intervals] = ((), ()),
    whole: bool = False,
    series: bool = True,
    sink: Sink | None = None,
    packets: PacketSink | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Match two captures of the same traffic and measure what happened in between.

    The definitions are those of ``docs/analyze.md``; they reproduce Tables I and II of Gallenmüller
    et al., "5G QoS: Impact of Security Functions on Latency" (NOMS 2020), to the nanosecond.

    Parameters
    ----------
    pre, post : path
        Pcap or pcapng, compressed or not; ``"FILE:INTERFACE"`` is one interface, ``"-"`` a pipe,
        ``"ring_*.pcap"`` or ``"a.pcap,b.pcap"`` several files, which are merged by time;
        ``"FILE@trailer"`` takes the times that a switch or a tap has put behind frames.
    match_on, joined_by : str
        Key that makes a packet recognisable (``auto``, ``probe``, ``frame``, ``l3``, ``payload``,
        ``inner``, ``tcp-bytes`` or ``bytes:OFF+LEN,...``), and the most specific one that ``auto``
        may take.
    trim, window : int or str
        Drop matches up to `trim` after the first post packet; match a post packet with a pre packet
        that is younger than `window`. In ns, or a text such as ``"1s"``.
    worst : int
        Number of worst packets to keep.
    clocks : str or ClockDifference
        ``detect`` refuses clocks that are apart (interfaces of one file share one), ``same`` trusts
        them, ``estimate`` reads twice and takes the difference out, ``offset=TIME`` this one and
        refuses clocks that drift, ``offset=TIME,drift=PPM`` takes out both from the first packet
        on, and ``offset=TIME,drift=estimate`` reads twice for the drift alone.
    doubts : tuple of sequences of (int, int)
        When the clocks before and behind the device are in doubt, in ns of that clock: packets of
        then are ``untimed``.
    whole : bool
        True if both captures span the traffic: what is not behind the device is lost, not outside.
    series : bool
        Keep every match (24 bytes each) for `Analysis.series`.
    sink, packets, progress : callable, optional
        `sink` receives every match in the order of the pre capture, as chunks of three uint64
        arrays (position in pre, time in pre in ns, latency in ns), `packets` matches and lost
        packets with their flows, and untimed ones; `progress` bytes done, and in total or None.

    Raises
    ------
    UsageError, CaptureError, AnalysisError
        If an argument cannot be understood, a capture cannot be read, or the figures would not be
        true: `ClocksApartError`, `SwappedError`, and with a sink `KeyChangesError` among them.
    """
    trim_ns, window_ns = checked_extent(trim, window, worst)
    if isinstance(clocks, str) and reads_twice(clocks):
        known = clock_difference(clocks)
        estimated = estimate_clocks(
            pre, post, match_on=match_on, window=window_ns, doubts=doubts, progress=progress
        )
        clocks = _found(estimated, known)
    difference = clocks_of(pre, post, clocks)
    while True:
        try:
            with engine_errors():
                matched = _engine.analyze(
                    source_of(pre),
                    source_of(post),
                    match_on=match_on,
                    trim_ns=trim_ns,
                    window_ns=window_ns,
                    worst=worst,
                    joined_by=joined_by,
                    clocks=difference,
                    doubts=doubts,
                    whole=whole,
                    series=series,
                    sink=sink,
                    packets=packets,
                    progress=progress,
                )
                return Analysis(matched)
        except KeyChangesError as changes:
            # There are few keys, and each one is less specific.
            if sink is not None or packets is not None:
                raise
            joined_by = changes.key


def analyze_recording(
    recording: Recording,
    *,
    cut_off: bool = False,
    trim: int | str = 0,
    window: int | str = "5s",
    worst: int = 5000,
    series: bool = True,
    sink: Sink | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Analyse what the generator recorded: every figure of `analyze` for the captures of that run.

    The summary also says how late packets left (``departure_error_ns_*``), latency from when they
    were meant to (``intended_latency_ns_*``), how many samples the instrument's own stalls taint
    (``tainted``), and the least that latencies can have been, without any of its stalls
    (``least_latency_ns_*``). Of a recording that ended before its time (`cut_off`), what had not
    arrived by then is not lost. Of each match, `series` takes 41 bytes, and `sink` receives the
    columns of `Series`, in the order of departure.
    """
    trim_ns, window_ns = checked_extent(trim, window, worst)
    with engine_errors():
        return Analysis(
            _engine.analyze_recording(
                *recording,
                cut_off=cut_off,
                trim_ns=trim_ns,
                window_ns=window_ns,
                worst=worst,
                series=series,
                sink=sink,
                progress=_Forgetting(recording, progress),
            )
        )


class _Forgetting:
    """Progress of an analysis, which gives back the memory of what it has read.

    Mapped files count as memory of a process that looked at them, until something else needs it.
    """

    _EVERY = 32

    def __init__(self, recording: Recording, progress: Progress | None) -> None:
        self._recording, self._progress = recording, progress
        self._calls = 0

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None:
        self._calls += 1
        if self._calls % self._EVERY == 0:
            _forget(self._recording)
        if self._progress is not None:
            self._progress(done_bytes, total_bytes)


def read_keys(
    capture: str | os.PathLike[str],
    match_on: str,
    *,
    behind: bool = False,
    limit_bytes: int | None = None,
    at_once: int = 1 << 16,
) -> Iterator[PacketKeys]:
    """Read what the packets of a capture are recognised by, in constant memory.

    The key and its limit are ``match_on`` and ``key_limit_bytes`` of a summary; `behind` says that
    the capture is the one behind the device. So many packets come together as `at_once` says.
    """
    with engine_errors():
        keys = _engine.Keys(source_of(capture), match_on, behind=behind, limit_bytes=limit_bytes)
    while True:
        with engine_errors():
            packets = PacketKeys(*keys.next(at_once))
        if not len(packets.ts_ns):
            return
        yield packets


def pieces(*arrays: Ticks) -> Iterator[tuple[Ticks, ...]]:
    """Yield arrays of one length a piece at a time, and give back the memory of what was read."""
    for first in range(0, len(arrays[0]), _AT_ONCE):
        yield tuple(array[first : first + _AT_ONCE] for array in arrays)
        _forget(arrays)


def _forget(arrays: Iterable[object]) -> None:
    """Give back the memory of mapped files; what is needed again is read again."""
    import numpy as np

    for array in arrays:
        if isinstance(array, np.memmap):
            # What maps the file has no public name in NumPy.
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def load_ticks(folder: str | os.PathLike[str], name: str) -> Ticks:
    """Map one array of a recording."""
    from pathlib import Path

    import numpy as np

    path = Path(folder) / f"{name}.npy"
    try:
        ticks: Ticks = np.load(path, mmap_mode="r")
    except (FileNotFoundError, IsADirectoryError, EOFError, ValueError) as error:
        raise AnalysisError(f"{path}: not a recording: {error}", code="recording") from None
    except OSError as error:
        error.filename = str(path)
        raise
    if ticks.dtype != np.uint64 or ticks.ndim != 1:
        raise AnalysisError(f"{path}: expected uint64 of one dimension", code="recording")
    return ticks
