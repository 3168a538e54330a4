"""The tables of a run directory: their files, their columns, and what those say.

Writers, readers, views of the catalogue and the page of the reference take them from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from tailscope.exceptions import RunCorruptError
from tailscope.store import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["uint64", "int64", "double", "bool", "string", "int", "float", "str"]
Cell = int | float | bool | str | None
_MOST = 2**64


class TableColumn(NamedTuple):
    """A column of a table."""

    name: str
    kind: Kind
    """The type as Arrow calls it; of CSV, as Python reads it."""
    about: str
    may_be_null: bool = False


class Table(NamedTuple):
    """A file that is a table."""

    file: str
    about: str
    columns: tuple[TableColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)


PERCENTILES = Table(
    layout.PERCENTILES,
    "Quantiles of the latency on a fine grid, from the minimum up to the last one with a sample "
    "beyond.",
    (
        TableColumn("q", "float", "The quantile, 0 to 1."),
        TableColumn("value_ns", "int", "The smallest latency with that share at or below it."),
        TableColumn(
            "ci_low_ns",
            "int",
            "Lower end of its 95 % interval; empty if there is none.",
            may_be_null=True,
        ),
        TableColumn(
            "ci_high_ns",
            "int",
            "Upper end of its 95 % interval; empty if there is none.",
            may_be_null=True,
        ),
        TableColumn("beyond", "int", "Samples of higher rank."),
        TableColumn("supported", "bool", "Whether at least 10 samples lie beyond."),
    ),
)
HISTOGRAM = Table(
    layout.HISTOGRAM,
    "Histogram of the latency, without empty buckets.",
    (
        TableColumn("bucket_ns", "int", "Lower edge of the bucket."),
        TableColumn("count", "int", "Number of packets."),
    ),
)
BUCKETS = Table(
    layout.BUCKETS,
    "Of an import, in place of the histogram: buckets of the latency, without empty ones. They may"
    " differ in width, and overlap by what was rounded.",
    (
        TableColumn("low_ns", "int", "Lower edge: no latency in the bucket is shorter."),
        TableColumn("high_ns", "int", "Upper edge: none is longer."),
        TableColumn("count", "int", "Number of packets."),
    ),
)
GAPS = Table(
    layout.GAPS,
    "Histograms of the gaps between packets.",
    (
        TableColumn("side", "str", "`pre` or `post`."),
        TableColumn("bucket_ns", "int", "Lower edge of the bucket."),
        TableColumn("count", "int", "Number of gaps."),
    ),
)
RATE = Table(
    layout.RATE,
    "Packets per second.",
    (
        TableColumn("side", "str", "`pre` or `post`."),
        TableColumn("start_ns", "int", "Begin of the second."),
        TableColumn("count", "int", "Number of packets."),
    ),
)
_FLOW = (
    TableColumn(
        "flow",
        "string",
        "Source, destination and protocol of the packet, of the inner one in a tunnel, and its "
        "VLAN; null where that is not known, as for measurements.",
        may_be_null=True,
    ),
    TableColumn("size_bytes", "uint64", "Its length on the wire; null likewise.", may_be_null=True),
)
FLOW_COLUMNS = tuple(column.name for column in _FLOW)
"""Columns of packets that name their flow."""
LATENCY = Table(
    layout.LATENCY,
    "Every match, in the order in which packets were sent.",
    (
        TableColumn("seq", "uint64", "Number of the packet before the device, from 0."),
        TableColumn("pre_ns", "uint64", "When it was seen before the device, since 1970."),
        TableColumn("latency_ns", "uint64", "How much later it was seen behind the device."),
        TableColumn(
            "intended_ns",
            "uint64",
            "When it should have left; null for captures.",
            may_be_null=True,
        ),
        TableColumn(
            "tainted",
            "bool",
            "Whether the instrument's stalls could change the first four digits of the latency; "
            "null for captures.",
            may_be_null=True,
        ),
        TableColumn(
            "instrument_stall_ns",
            "uint64",
            "How long the instrument stalled meanwhile, and how long the packet may have waited "
            "behind packets that stalls held back: at most this much of the latency is the "
            "instrument's; null for captures. Files of before do not have it: there all of the "
            "latency of a tainted packet may be the instrument's.",
            may_be_null=True,
        ),
        *_FLOW,
    ),
)
LOST = Table(
    layout.LOST,
    "Of captures: every lost packet, in the order in which packets were sent. Some may not be "
    "proven to be lost: `lost_proven` in `summary.json`.",
    (
        TableColumn("seq", "uint64", "Number of the packet before the device, from 0."),
        TableColumn("pre_ns", "uint64", "When it was seen before the device, since 1970."),
        *_FLOW,
    ),
)
UNTIMED = Table(
    layout.UNTIMED,
    "Of captures with `--clock-log`: every packet that was seen while one of the clocks was in "
    "doubt, in the order in which packets were sent; but for those seen behind the device before "
    "they were sent.",
    (
        TableColumn("seq", "uint64", "Number of the packet before the device, from 0."),
        TableColumn("pre_ns", "uint64", "When it was seen before the device, since 1970."),
        TableColumn(
            "latency_ns",
            "uint64",
            "How much later it was seen behind the device, as the clocks say: no latency.",
        ),
    ),
)
CLOCK_DOUBTS = Table(
    layout.CLOCK_DOUBTS,
    "Of captures with `--clock-log`: when one of the clocks was in doubt.",
    (
        TableColumn("side", "str", "The capture: `pre` or `post`."),
        TableColumn("start_ns", "int", "When it began, since 1970."),
        TableColumn("end_ns", "int", "When it ended."),
        TableColumn(
            "offset_ns",
            "int",
            "Largest offset of the clock then; empty if no log says.",
            may_be_null=True,
        ),
        TableColumn("reason", "str", "`offset`, `frequency`, `state` or `silence`."),
    ),
)
FLOWS = Table(
    layout.FLOWS,
    "Of captures: figures of each flow, those of the most packets first. At most 65,535 flows are "
    "told apart.",
    (
        TableColumn("flow", "str", "Source, destination, protocol and VLAN."),
        TableColumn("sent", "int", "Packets that are to be found behind the device."),
        TableColumn("matched", "int", "Those that were matched."),
        TableColumn("lost", "int", "Those that were lost."),
        TableColumn(
            "unseen",
            "int",
            "Of `lost`, those of a flow that never appears behind the device: it may leave by "
            "another port.",
        ),
        TableColumn("latency_ns_p50", "int", "Median of the latency.", may_be_null=True),
        TableColumn("latency_ns_p99", "int", "99th percentile.", may_be_null=True),
        TableColumn("latency_ns_max", "int", "Highest latency.", may_be_null=True),
        TableColumn(
            "tail", "int", "Matches above the 99th percentile of all packets.", may_be_null=True
        ),
        TableColumn(
            "exact", "bool", "False if quantiles are up to a 2048th too low: too many packets."
        ),
    ),
)
LOSS_RUNS = Table(
    layout.LOSS_RUNS,
    "Of captures: runs of at least ten packets that were lost one behind the other, the longest "
    "first.",
    (
        TableColumn("flow", "str", "The flow; empty for all packets, whatever their flow."),
        TableColumn("start_ns", "int", "When the first was seen before the device, since 1970."),
        TableColumn("end_ns", "int", "When the last was."),
        TableColumn("lost", "int", "Number of packets."),
    ),
)
CORRUPT = Table(
    layout.CORRUPT,
    "Of captures with damaged packets: each of them, by time.",
    (
        TableColumn("pre_ns", "int", "When it was seen before the device, since 1970."),
        TableColumn("post_ns", "int", "When it was seen behind the device."),
        TableColumn("flow", "str", "Its flow."),
        TableColumn("size_bytes", "int", "Its length on the wire."),
        TableColumn("offset_bytes", "int", "The first byte of its frame that differs."),
        TableColumn("bytes", "int", "Number of bytes that differ."),
        TableColumn("bits", "int", "Number of bits that differ."),
    ),
)
WORST = Table(
    layout.WORST,
    "The worst packets, by latency, then by time.",
    (
        TableColumn("latency_ns", "uint64", "Its latency."),
        TableColumn("pre_ns", "uint64", "When it was seen before the device."),
        TableColumn("post_ns", "uint64", "When it was seen behind the device."),
        TableColumn(
            "pre_seq",
            "uint64",
            "Number of the packet before the device, from 0; null where that was not imported.",
            may_be_null=True,
        ),
        *_FLOW,
    ),
)
_PART = "This part of its latency: [noise.md](../noise.md)."
WORST_EXPLAINED = Table(
    layout.WORST,
    "For a measurement it also says what they waited for.",
    (
        TableColumn("service_ns", "int64", _PART),
        TableColumn("dut_ns", "int64", _PART),
        TableColumn("queue_ns", "int64", _PART),
        TableColumn("instrument_ns", "int64", _PART),
        TableColumn("unexplained_ns", "int64", _PART),
        TableColumn(
            "cause", "string", "What it waited for the longest; empty where that is unexplained."
        ),
        TableColumn("queue_cause", "string", "What it waited for the longest in its queue."),
    ),
)
NOISE = Table(
    layout.NOISE,
    "What kept CPUs from their work: an interval per row, in order of time.",
    (
        TableColumn(
            "source",
            "string",
            "`dut`, `instrument`, `loadgen` for the load generator of a laboratory, `own clock` for"
            " a machine of it whose clock could not be brought to that of the captures, or `watch`"
            " for `tailscope noise`.",
        ),
        TableColumn("cpu", "int64", "The CPU."),
        TableColumn(
            "kind",
            "string",
            "`stall`: seen by a polling loop; `cause`: an interval with a name, disjoint; "
            "`injected`: caused on purpose, the truth.",
        ),
        TableColumn("cause", "string", "Name of the cause: [noise.md](../noise.md)."),
        TableColumn("detail", "string", "What else is known."),
        TableColumn("event", "int64", "Number that pieces of one interrupted event share."),
        TableColumn("start_ns", "int64", "When it began, on the clock of the packets."),
        TableColumn("duration_ns", "int64", "How long it lasted."),
    ),
)
NEIGHBOURS = Table(
    layout.NEIGHBOURS,
    "When neighbours held the device's CPUs ([noise.md](../noise.md#neighbours)): an interval per"
    " row, in order of time.",
    (
        TableColumn("start_ns", "int64", "When the interval began, on the clock of the packets."),
        TableColumn("end_ns", "int64", "When it ended."),
        TableColumn(
            "held_ns",
            "int64",
            "For how long neighbours held the CPU at most: all of the interval where the kernel's"
            " events or the device's stalls say when; else, in waits that ended in the interval.",
        ),
    ),
)
_PASSED = "; null where it did not."
STAGES = Table(
    layout.STAGES,
    "With `--stages`: when packets passed points of the kernel, or calls of a polling loop, on the"
    " clock of the packets. A row for each packet that was looked at.",
    (
        TableColumn("seq", "uint64", "Number of the packet before the device, from 0."),
        TableColumn(
            "arrived_ns",
            "int64",
            "When the driver handed it to the kernel" + _PASSED,
            may_be_null=True,
        ),
        TableColumn(
            "received_ns",
            "int64",
            "When the stack took it, or the loop's call that receives returned it" + _PASSED,
            may_be_null=True,
        ),
        TableColumn(
            "queued_ns",
            "int64",
            "When the stack handed it to the queue of the link that it left by" + _PASSED,
            may_be_null=True,
        ),
        TableColumn(
            "started_ns",
            "int64",
            "When the queue handed it to that link's driver" + _PASSED,
            may_be_null=True,
        ),
        TableColumn(
            "polled_ns", "int64", "When that call of the loop began" + _PASSED, may_be_null=True
        ),
        TableColumn(
            "handed_on_ns",
            "int64",
            "When the loop's call that sends began" + _PASSED,
            may_be_null=True,
        ),
        TableColumn("sent_ns", "int64", "When that call returned" + _PASSED, may_be_null=True),
        TableColumn(
            "dropped_ns",
            "int64",
            "When the kernel dropped it, or when it was last seen in the loop" + _PASSED,
            may_be_null=True,
        ),
        TableColumn("reason", "string", "Why, as in `explanation.json`; empty if it was not."),
    ),
)
INTERRUPTS = Table(
    layout.INTERRUPTS,
    "Interrupt counters: a row for each sample, counter and CPU.",
    (
        TableColumn("unix_ns", "int64", "When it was read."),
        TableColumn(
            "interrupt", "string", "Name of the counter in the kernel; softirqs follow `softirq`."
        ),
        TableColumn("cpu", "int64", "The CPU."),
        TableColumn("count", "int64", "Interrupts since the machine was booted."),
    ),
)
POWER = Table(
    layout.POWER,
    "Power over time, where it was read: a row for each stretch between readings and each domain.",
    (
        TableColumn("domain", "string", "`package-0`, `package-0/dram`, `server`, `meter`."),
        TableColumn("start_ns", "int64", "Begin of the stretch, on the clock of the packets."),
        TableColumn("end_ns", "int64", "End of the stretch."),
        TableColumn("watts", "double", "Mean power of the stretch."),
    ),
)
SIGHTINGS = Table(
    "sightings.parquet",
    "In a laboratory, what an agent says: when its machine saw packets.",
    (
        TableColumn("seq", "int64", "Number of the packet, from its payload."),
        TableColumn("first_ns", "int64", "When it was seen or sent, by the machine's clock."),
        TableColumn("last_ns", "int64", "When it was seen or came back."),
    ),
)
PAIRS = Table(
    "pairs.parquet",
    "In a laboratory, what an agent says: its time-stamp counter beside Unix time.",
    (
        TableColumn("at_ns", "int64", "A time by the counter."),
        TableColumn("low_ns", "int64", "What to add at least to get Unix time."),
        TableColumn("high_ns", "int64", "What to add at most."),
    ),
)
READINGS = Table(
    "readings.parquet",
    "In a laboratory, what an agent says: readings of power.",
    (
        TableColumn("unix_ns", "int64", "The middle of the reading, by the machine's Unix time."),
        TableColumn("took_ns", "int64", "How long it took."),
        TableColumn("values", "string", "Watts or µJ of each domain, separated by spaces."),
    ),
)

TABLES = (
    PERCENTILES,
    LATENCY,
    LOST,
    UNTIMED,
    CLOCK_DOUBTS,
    FLOWS,
    LOSS_RUNS,
    CORRUPT,
    WORST,
    WORST_EXPLAINED,
    HISTOGRAM,
    BUCKETS,
    GAPS,
    RATE,
    NOISE,
    NEIGHBOURS,
    STAGES,
    INTERRUPTS,
    POWER,
)
"""All of them."""


def rows_of(content: bytes, table: Table, source: str) -> list[tuple[Cell, ...]]:
    """Read a table from CSV."""
    import csv
    import io

    try:
        rows = csv.reader(io.StringIO(content.decode()))
        header = tuple(next(rows, ()))
        if header != table.names:
            raise RunCorruptError(
                f"{source}: expected columns {', '.join(table.names)}, got {', '.join(header)}",
                code="csv-columns",
            )
        written = [*rows]
    except (csv.Error, UnicodeDecodeError) as error:
        raise RunCorruptError(f"{source}: expected CSV: {error}", code="csv") from None
    for number, row in enumerate(written, 1):
        if len(row) != len(header):
            raise RunCorruptError(
                f"{source}: row {number}: expected {len(header)} columns, got {len(row)}",
                code="csv-row",
            )
    columns = zip(table.columns, zip(*written, strict=True), strict=False)
    return [*zip(*(_cells(column, texts, source) for column, texts in columns), strict=True)]


def _cells(column: TableColumn, texts: Sequence[str], source: str) -> Sequence[Cell]:
    """Read a column; the numbers of a histogram all at once, as there are many."""
    is_plain = column.kind == "int" and all(map(str.isdecimal, texts))
    if is_plain and max(map(len, texts)) < len(str(_MOST)):
        return [*map(int, texts)]
    return [_cell(column, text, f"{source}: row {row}") for row, text in enumerate(texts, 1)]


def _cell(column: TableColumn, text: str, where: str) -> Cell:
    if not text and column.may_be_null:
        return None
    if column.kind == "str":
        return text
    if column.kind == "bool" and text in ("True", "False"):
        return text == "True"
    try:
        if column.kind == "int" and text.isdecimal() and int(text) < _MOST:
            return int(text)
        if column.kind == "float":
            return float(text)
    except ValueError:
        pass
    raise RunCorruptError(
        f"{where}: {column.name}: expected {column.kind}, got {text!r}", code="csv-value"
    )
