"""The engine, compiled from `crates/python`; `tailscope.engine.analysis` documents it."""

from collections.abc import Callable, Sequence
from typing import IO, Any, Final, Literal, TypeAlias, TypedDict, final

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.uint64]
_Progress = Callable[[int, int | None], None]

VERSION: Final[str]

class EngineError(Exception):
    code: str
    hint: str | None

class ArgumentError(ValueError):
    code: str

class CaptureError(EngineError): ...
class ClocksApartError(EngineError): ...

class KeyChangesError(EngineError):
    key: str

class KeysRepeatError(EngineError): ...
class SwappedError(EngineError): ...

_Source = list[tuple[str, str | None]]
_Intervals = Sequence[tuple[int, int]]
_Clocks = tuple[int, int, int, bool, int | None, int | None, int | None]

class Analysis:
    @property
    def summary(self) -> dict[str, int | float | str | bool | None]: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def deserves_second_look(self) -> bool: ...
    @property
    def worst(self) -> tuple[_Array, _Array, _Array, _Array]: ...
    @property
    def more(self) -> tuple[_Array, NDArray[np.bool_], _Array] | None: ...
    @property
    def series(self) -> tuple[_Array, _Array, _Array] | None: ...
    def quantiles(
        self, qs: list[float]
    ) -> list[tuple[float, int, int | None, int | None, int, bool]]: ...
    def histogram(self, bucket_ns: int) -> tuple[_Array, _Array]: ...
    def least_histogram(self, bucket_ns: int) -> tuple[_Array, _Array] | None: ...
    def gap_histogram(
        self, side: Literal["pre", "post"], bucket_ns: int
    ) -> tuple[_Array, _Array]: ...
    def rate_per_second(self, side: Literal["pre", "post"]) -> tuple[_Array, _Array]: ...
    @property
    def worst_flows(self) -> tuple[list[str], list[int]] | None: ...
    @property
    def resegmented_ns(self) -> _Array: ...
    @property
    def loss_runs(self) -> list[tuple[str | None, int, int, int]]: ...
    @property
    def corruptions(self) -> list[tuple[int, int, str, int, int, int, int]]: ...
    def groups(
        self, by: str
    ) -> list[
        tuple[
            str,
            tuple[int, int, int, int],
            tuple[int | None, int | None, int | None, int | None, bool],
        ]
    ]: ...
    def worst_keys(self, pre: _Source) -> list[str]: ...
    def hlog(self) -> str: ...

@final
class Coverage:
    def __init__(self, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> None: ...
    def until(self, moments_ns: NDArray[np.int64]) -> NDArray[np.int64]: ...

class Distribution:
    def __init__(self) -> None: ...
    def record(self, values_ns: _Array) -> None: ...
    def record_many(self, values_ns: _Array, counts: _Array) -> None: ...
    @property
    def count(self) -> int: ...
    def at_ranks(self, ranks: list[int]) -> list[int]: ...
    def above(self, limit_ns: int) -> int: ...

class Keys:
    def __init__(
        self,
        capture: _Source,
        match_on: str,
        *,
        behind: bool = False,
        limit_bytes: int | None = None,
    ) -> None: ...
    def next(self, most: int) -> tuple[_Array, NDArray[np.uint8], _Array, NDArray[np.bool_]]: ...

def estimate_clocks(
    pre: _Source,
    post: _Source,
    *,
    match_on: str,
    window_ns: int,
    doubts: tuple[_Intervals, _Intervals] | None = None,
    progress: _Progress | None = None,
) -> _Clocks: ...
def interfaces(path: str) -> list[tuple[int, str | None, str | None, str, int]]: ...
def analyze(
    pre: _Source,
    post: _Source,
    *,
    match_on: str,
    trim_ns: int,
    window_ns: int,
    worst: int,
    joined_by: str | None = None,
    clocks: _Clocks | None = None,
    doubts: tuple[_Intervals, _Intervals] | None = None,
    whole: bool = False,
    series: bool = False,
    sink: Callable[[_Array, _Array, _Array], None] | None = None,
    packets: object | None = None,
    progress: _Progress | None = None,
) -> Analysis: ...

@final
class Slice:
    @property
    def times(self) -> tuple[int, int]: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(content: bytes) -> Slice: ...

@final
class Part:
    def join(self, other: Part) -> Part: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(content: bytes) -> Part: ...

def split(
    pre: _Source,
    post: _Source,
    *,
    at_most: int,
    match_on: str,
    trim_ns: int,
    window_ns: int,
    worst: int,
    clocks: _Clocks | None = None,
    progress: _Progress | None = None,
) -> tuple[list[Slice], str | None]: ...
def analyze_slice(
    pre: _Source,
    post: _Source,
    piece: Slice,
    *,
    sink: Callable[[_Array, _Array, _Array], None] | None = None,
    progress: _Progress | None = None,
) -> Part: ...
def merge(first: Part, others: list[Part]) -> Analysis: ...
def analyze_recording(
    clock: tuple[int, int, int],
    intended_tsc: _Array,
    departure_tsc: _Array,
    arrival_seq: _Array,
    arrival_tsc: _Array,
    corrupt_seq: _Array,
    stall_start_tsc: _Array,
    stall_duration_tsc: _Array,
    *,
    cut_off: bool,
    trim_ns: int,
    window_ns: int,
    worst: int,
    series: bool = False,
    sink: Callable[[_Array, _Array, _Array, _Array, NDArray[np.bool_]], None] | None = None,
    progress: _Progress | None = None,
) -> Analysis: ...

class CpuTrace(TypedDict):
    cpu: int
    events: int
    lost: int
    untold_switches: int
    gap_start: _Array
    gap_end: _Array
    kinds: list[tuple[tuple[str, int, str], bool, int, int, int, int]]
    kind: NDArray[np.uint32]
    start: _Array
    sent: _Array
    segment_start: _Array
    segment_end: _Array
    segment_span: _Array

def simulate(
    out_dir: str, *, suffix: str = "pcap", progress: _Progress | None = None, **settings: object
) -> dict[str, str | int | None]: ...
def read_trace(
    formats: list[tuple[str, str]],
    sources: list[tuple[int, str]],
    senders: list[tuple[int, str]],
    *,
    page_bytes: int,
    measured: list[int],
    ticks_per_s: int,
) -> list[CpuTrace]: ...
def read_hdr(content: bytes, most: int) -> tuple[_Array, _Array, _Array]: ...
def retime(source: str, target: str, knots: list[tuple[int, int]]) -> int: ...
def parse_duration_ns(text: str) -> int: ...
def parse_rate_pps(text: str) -> int: ...
def tunnel_bytes(text: str, src_ip: str, dst_ip: str) -> int | None: ...

_Cells: TypeAlias = NDArray[Any] | tuple[NDArray[np.uint32], list[str]]
_Column: TypeAlias = tuple[_Cells | None, NDArray[np.bool_] | None]

class TableReader:
    def __init__(self, file: IO[bytes], size: int) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> list[tuple[str, str]]: ...
    def batch_count(self, rows: int) -> int: ...
    def batches(self, columns: list[int], rows: int) -> TableBatches: ...

class TableBatches:
    def skip(self, batches: int) -> None: ...
    def next(self) -> list[tuple[_Cells, NDArray[np.bool_] | None]] | None: ...

class TableWriter:
    def __init__(self, fields: Sequence[tuple[str, str, bool, str]]) -> None: ...
    def write(self, rows: int, columns: Sequence[_Column]) -> bytes: ...
    def finish(self) -> bytes: ...

def read_numbers(content: bytes, columns: Sequence[tuple[str, bool]]) -> list[NDArray[Any]]: ...
def read_whole(path: str, most: int) -> bytes: ...
