"""``files.md``: what is in the files that tailscope writes, and their JSON Schemas.

Records say it in the docstrings of their fields, tables in their columns.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from docs.reference.fields import plan_rows
from docs.reference.markdown import NOTE, code, codes, joined, table
from docs.reference.records import fields_of, schema

from tailscope.store import layout, tables
from tailscope.store.records.baseline import BaselineRecord
from tailscope.store.records.campaign import CampaignRecord
from tailscope.store.records.dataplane import DutCounts, GeneratorCounts
from tailscope.store.records.doctor import DoctorRecord
from tailscope.store.records.explanation import Explanation
from tailscope.store.records.floor import FloorRecord
from tailscope.store.records.kvm import KvmRecord
from tailscope.store.records.notes import NotesRecord
from tailscope.store.records.overload import OverloadRecord
from tailscope.store.records.plan import AnalysisPlan, ImportPlan, MeasurementPlan
from tailscope.store.records.recorded import RecordedRun
from tailscope.store.records.run import RunInfo
from tailscope.store.records.summary import GROUPS, Summary
from tailscope.store.records.verdict import VerdictRecord
from tailscope.store.records.watched import WatchedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from msgspec import Struct

    from tailscope.store.tables import Table


class RecordFile(NamedTuple):
    """A JSON file of a directory."""

    name: str
    about: str
    kind: type[Struct]


class OtherFile(NamedTuple):
    """A file that is no table of ours, and no JSON."""

    name: str
    about: str


def _kept(name: str, kind: type[Struct], command: str, page: str) -> RecordFile:
    about = (
        f"What `tailscope {command} --keep` keeps beside the checksums: its `--json`"
        f" ([{page}](../{page})), and where that comes from."
    )
    return RecordFile(name, about, kind)


RUN = (
    RecordFile(
        layout.RUN,
        "Where a run comes from, and the checksums of all other files and of itself. It is written"
        " last: a run is complete when it says so.",
        RunInfo,
    ),
    RecordFile(
        layout.SUMMARY,
        "Every figure, flat; also what `--json` writes, apart from `format`. Units are in the"
        " names: `_ns` nanoseconds, `_s` seconds, `_pps` packets per second, `_w` watts, `_j`"
        " joules. `null` means that there is no such value: no sample, none that the samples"
        " support, or, in an import, none that was counted. [statistics.md](../statistics.md) says"
        " what each is worth.",
        Summary,
    ),
    tables.PERCENTILES,
    tables.LATENCY,
    tables.LOST,
    tables.FLOWS,
    tables.LOSS_RUNS,
    tables.CORRUPT,
    tables.WORST,
    tables.WORST_EXPLAINED,
    tables.HISTOGRAM,
    tables.BUCKETS,
    OtherFile(layout.HLOG, "The same in HdrHistogram's log format, values within 0.1 %."),
    tables.GAPS,
    tables.RATE,
    tables.NOISE,
    tables.NEIGHBOURS,
    tables.STAGES,
    tables.INTERRUPTS,
    RecordFile(layout.EXPLANATION, "What the tail of a measurement is made of.", Explanation),
    tables.POWER,
    OtherFile(f"{layout.CAPTURES}/", "`pre.pcapng.zst` and `post.pcapng.zst`, where asked."),
    RecordFile(
        layout.RECORDED,
        "Of a measurement that was recorded and not analysed: what `tailscope runs finish` needs"
        " beside the arrays of the recording, which are in the same folder. It goes when that is"
        " done.",
        RecordedRun,
    ),
    OtherFile(
        layout.REPORT,
        "The report: one file, works offline. It may be drawn again, and has no checksum.",
    ),
    _kept(layout.OVERLOAD, OverloadRecord, "model overload", "overload.md"),
    _kept(layout.VERDICT, VerdictRecord, "verify", "verdict.md"),
    RecordFile(
        layout.NOTES,
        "What its user says of a run, beside the checksums: [catalogue.md](../catalogue.md).",
        NotesRecord,
    ),
)
"""The files of a run directory."""

CAMPAIGN = (
    RecordFile(
        layout.CAMPAIGN,
        "Written after each cell. The runs are directories beside it.",
        CampaignRecord,
    ),
)
"""The files of a campaign."""

BASELINE = (
    RecordFile(
        "baseline.json",
        "What `tailscope compare save` writes, under any name: what runs are compared by"
        " ([baseline.md](../baseline.md)).",
        BaselineRecord,
    ),
)
"""A baseline."""

NOISE_FOLDER = (
    RecordFile(
        layout.WATCHED,
        "What CPUs were kept from, without packets; also what `--json` writes, apart from"
        " `format`.",
        WatchedRecord,
    ),
    tables.NOISE,
    tables.INTERRUPTS,
)
"""The files of ``tailscope noise --out``."""

STATE = (
    RecordFile(
        "floor.json",
        "What `tailscope calibrate` keeps of an instrument, as `floor-INSTRUMENT.json` in the state"
        " folder.",
        FloorRecord,
    ),
    RecordFile(
        "kvm.json",
        "Whether this machine can run guests by itself, in the state folder.",
        KvmRecord,
    ),
)
"""What is kept of a machine."""

PRINTED = (
    RecordFile(
        "doctor.json",
        "What `tailscope doctor --json` writes, under any name: what can be measured on a machine,"
        " how far, and the line that adds what is missing ([doctor.md](../doctor.md)).",
        DoctorRecord,
    ),
)
"""What a command says of a machine."""

EVERY_FILE = (*RUN, *CAMPAIGN, *BASELINE, *NOISE_FOLDER, *STATE, *PRINTED)
RECORDS = tuple(file for file in EVERY_FILE if isinstance(file, RecordFile))

ELSEWHERE: tuple[type[Struct], ...] = (
    *(AnalysisPlan, ImportPlan, MeasurementPlan, RunInfo),
    *(GeneratorCounts, *get_args(DutCounts)),
)
"""Parts that are described elsewhere."""


def page() -> str:
    """The page."""
    return joined(_blocks())


def schemas(files: Iterable[RecordFile | OtherFile | Table] = EVERY_FILE) -> dict[str, str]:
    """The JSON Schema of each file, by its name in the folder of the reference."""
    return {
        f"schemas/{schema_name(file)}": _written(schema(file.kind, file.name))
        for file in files
        if isinstance(file, RecordFile)
    }


def described(files: Iterable[RecordFile | OtherFile]) -> Iterator[str]:
    """The blocks of a page for files of a folder of `tailscope.extra`."""
    yield from _files(files)


def schema_name(file: RecordFile) -> str:
    """The name of a file's JSON Schema; of lines, each is what it describes."""
    return Path(file.name).with_suffix(".json").name


def _written(found: Mapping[str, object]) -> str:
    return json.dumps(found, indent=2) + "\n"


def _blocks() -> Iterator[str]:
    yield "# Files"
    yield NOTE
    yield (
        "In names, `*` stands for anything and `pX` for any of `p50`, `p90`, `p99`, `p999`, …"
        " `p999999`. For every name that begins with `pre_` there is one that begins with"
        " `post_`. Dots separate nested names; the entries of a list are described under the"
        " name of the list. Every file is written under a temporary name, synced, and renamed."
    )
    yield "## What stays stable"
    yield (
        "Every JSON file has a `format`, and a JSON Schema in [schemas/](schemas). Within a format"
        " no field changes its name, its type, its unit or its meaning, none goes away, and none is"
        " added. tailscope reads files strictly: if a field is unknown, of another type, or missing"
        " where the schema requires it, the error names it, so that damage does not pass for data."
        " It reads regular files only, no links to any, and JSON of at most 16 MiB"
        " (`campaign.json`: 64 MiB), a million values and 64 levels."
    )
    yield (
        "A new format comes with a new version of tailscope. From the first release, 0.2.0, on a"
        " newer tailscope reads what an older one wrote. Files of the versions before it are"
        " refused, and so is a format that is newer than the tailscope that reads it; the error"
        " names both formats. Kept conclusions"
        " (`overload.json`, `verdict.json`) are left out with a warning if another"
        " version of tailscope kept them: draw them again."
    )
    yield "## A run directory"
    yield f"Format {layout.RUN_FORMAT}."
    yield from _files(RUN)
    yield "## A campaign"
    yield from _files(CAMPAIGN)
    yield "## A baseline"
    yield from _files(BASELINE)
    yield "## A recording of `tailscope noise --out`"
    yield from _files(NOISE_FOLDER, known=RUN)
    yield "## What is kept of a machine"
    yield from _files(STATE)
    yield "## What is said of a machine"
    yield from _files(PRINTED)


def _files(
    files: Iterable[RecordFile | OtherFile | Table],
    known: tuple[RecordFile | OtherFile | Table, ...] = (),
) -> Iterator[str]:
    last = None
    for file in files:
        name = file.file if hasattr(file, "columns") else file.name
        if name != last:
            yield f"### {name}"
        last = name
        if file in known:
            yield f"As in [a run directory](#{_anchor(name)})."
            continue
        yield file.about
        if isinstance(file, RecordFile):
            yield from _record(file)
        elif hasattr(file, "columns"):
            rows = ((code(each.name), each.kind, each.about) for each in file.columns)
            yield table(("column", "type", ""), rows)


def _record(file: RecordFile) -> Iterator[str]:
    if file.kind is Summary:
        yield table(("name", ""), [("`format`", Summary.ABOUT["format"])])
        yield from _summary()
        return
    elsewhere = (*ELSEWHERE, *(() if file.kind is FloorRecord else (FloorRecord,)))
    rows = fields_of(file.kind, elsewhere=elsewhere)
    yield table(("name", ""), _grouped(rows))
    if file.kind is RunInfo:
        yield from _plan()


def _grouped(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Rows of the same text one after the other become one."""
    for about, group in groupby(rows, key=lambda row: row[1]):
        yield ", ".join(code(name) for name, _ in group), about


def _plan() -> Iterator[str]:
    yield (
        "`plan` for a measurement; for an analysis it has `command`, `pre`, `post` and the options"
        " of `tailscope analyze`. [fields.md](fields.md) has units, defaults and what is allowed:"
    )
    rows = [*plan_rows()]
    rows.append(("`command`", "`run`, `analyze` or `import`"))
    rows.append(("`stall_ns`", "Shortest turn of a loop that counts as a stall."))
    yield table(("name", ""), rows)
    yield "For an import it has `command` and:"
    yield table(("name", ""), _grouped(fields_of(ImportPlan)))


def _summary() -> Iterator[str]:
    for group in GROUPS:
        yield f"#### {group.title}"
        yield table(
            ("name", ""), ((codes(", ".join(line.names)), line.about) for line in group.lines)
        )


def _anchor(name: str) -> str:
    return name.replace(".", "")
