"""Records of the catalogue for a run directory, whatever state that is in."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from tailscope.exceptions import RunCorruptError, RunError
from tailscope.store import layout
from tailscope.store.columns import ABOUT, PLAN, RUN, SUMMARY
from tailscope.store.files import holds_packets, size_of
from tailscope.store.info import clock_of, host_of, is_emulated, kernel
from tailscope.store.notes import Remarks, read_notes
from tailscope.store.reader import read_info, read_mark, read_summary, verified
from tailscope.units import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tailscope.engine.analysis import Figure
    from tailscope.store.records.run import RunInfo

    PlanValue: TypeAlias = str | int | dict[str, str] | dict[str, int] | None
    Value: TypeAlias = str | int | float | bool | datetime | None
    Row: TypeAlias = dict[str, Value]

STATES = ("complete", "partial", "incomplete", "damaged", "foreign")
"""States of runs: whole; measured in part; never finished, or not yet; not what was written;
written by a newer version."""
_MOST = 2**63
_MOST_PROBLEMS = 5
_MOST_CHARACTERS = 300


@dataclass
class CatalogueRow:
    """A run as the tables have it."""

    run: Row
    summary: Row
    """One row each."""
    files: list[Row] = field(default_factory=list)
    remarks: Remarks = field(default_factory=Remarks)

    def rows(self) -> dict[str, list[Row]]:
        """Rows for each table."""
        name = {"run": self.run["run"]}
        return {
            "run": [self.run],
            "summary": [self.summary],
            "tag": [{**name, "tag": plain(tag)} for tag in self.remarks.tags],
            "note": [
                {**name, "written_utc": _utc(note.written_unix_ns), "text": plain(note.text)}
                for note in self.remarks.notes
            ],
            "file": [{**name, **file} for file in self.files],
        }


def read_record(path: Path, *, name: str, campaign: str | None) -> CatalogueRow:
    """Read what the catalogue keeps of a run; what is wrong with it is part of that."""
    record = CatalogueRow(dict.fromkeys(RUN), dict.fromkeys(SUMMARY))
    record.summary["run"] = name
    record.run |= {"run": name, "path": plain(str(path)), "campaign": campaign}
    wrong: list[str] = []
    try:
        record.run["state"] = _fill(record, path, wrong)
    except (RunError, OSError) as error:
        record.run["state"] = "damaged"
        wrong.append(_what(error, layout.RUN))
    try:
        record.remarks = read_notes(path)
    except (RunError, OSError) as error:
        wrong.append(_what(error, layout.NOTES))
    record.run["problem"] = plain(_one_line(wrong)) or None
    return record


def record_of(name: str, info: RunInfo, figures: Mapping[str, Figure]) -> CatalogueRow:
    """Return the catalogue's record of a run that was read elsewhere."""
    record = CatalogueRow(dict.fromkeys(RUN), dict.fromkeys(SUMMARY))
    record.run |= {"run": plain(name), "state": "partial" if info.partial else "complete"}
    record.run["problem"] = plain(_one_line(info.partial)) or None
    record.summary |= {name: value for name, value in figures.items() if name in SUMMARY}
    record.summary["run"] = plain(name)
    _fill_run(record.run, info)
    return record


def plain(text: str) -> str:
    """Make a text one that UTF-8 can hold: names of files may be no text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _fill(record: CatalogueRow, path: Path, wrong: list[str]) -> str:
    """Fill in all but notes; add what is wrong, and return the state."""
    mark = read_mark(path)
    if mark is None:
        wrong.append(f"{layout.RUN}: gone")
        return "damaged"
    if not mark.complete:
        wrong.append(
            "not analysed, or still being measured: `tailscope runs finish` analyses it"
            if holds_packets(path)
            else "never finished, or still being written"
        )
        return "incomplete"
    if mark.format != layout.RUN_FORMAT:
        wrong.append(f"format: expected {layout.RUN_FORMAT}, got {mark.format}")
        return "foreign"
    info = read_info(path)
    record.files = [
        {"file": plain(name), "size_bytes": file.size_bytes, "sha256": plain(file.sha256)}
        for name, file in info.files.items()
    ]
    found = {name: problem for name in info.files if (problem := _problem(path, info, name))}
    _fill_run(record.run, info)
    wrong += found.values()
    if layout.SUMMARY not in found:
        wrong += _fill_summary(record.summary, path, info)
    if wrong:
        return "damaged"
    wrong += info.partial
    return "partial" if wrong else "complete"


def _problem(path: Path, info: RunInfo, name: str) -> str | None:
    """Return what is wrong with a file, as far as its size can tell."""
    expected = info.files[name].size_bytes
    try:
        size = size_of(path, name)
    except FileNotFoundError:
        return f"{name}: missing"
    except (RunError, OSError) as error:
        return _what(error, name)
    if size != expected:
        return f"{name}: expected {expected} bytes, got {size}"
    return None


def _fill_run(row: Row, info: RunInfo) -> None:
    floor, host = info.floor, host_of(info)
    row |= {
        **{name: _of_plan(name, getattr(info.plan, name, None)) for name in PLAN},
        "command": info.plan.__struct_config__.tag,
        "emulated": is_emulated(info),
        "written_utc": _utc(info.written_unix_ns),
        "tailscope_version": plain(info.tailscope_version),
        "kernel": _text_of(kernel(info)),
        "kernel_release": _text_of(host.kernel_release),
        "cpu_model": _text_of(host.cpu_model),
        "cpu_count": host.cpu_count,
        "clock": plain(clock_of(info)),
    }
    if info.about is not None:
        row |= {name: _of_plan(name, getattr(info.about, name)) for name in ABOUT}
    if floor is not None:
        row |= {
            "floor_ns_p50": floor.latency_ns_p50,
            "floor_ns_p999": floor.latency_ns_p999,
            "believed_up_to": floor.believed_up_to,
        }


def _fill_summary(row: Row, path: Path, info: RunInfo) -> list[str]:
    """Fill in the figures; returns what is wrong with them."""
    try:
        content = verified(path, info, layout.SUMMARY)
        figures: dict[str, Figure] = read_summary(content, path / layout.SUMMARY)[0]
    except (RunError, OSError) as error:
        return [_what(error, layout.SUMMARY)]
    power = {} if info.power is None else info.power.figures or {}
    row |= {name: value for name, value in {**power, **figures}.items() if name in SUMMARY}
    return []


def _of_plan(name: str, value: PlanValue) -> str | int | None:
    """A value of a plan as a column holds it."""
    if isinstance(value, dict):
        return plain(", ".join(f"{option}={one}" for option, one in value.items()))
    if isinstance(value, int) and not 0 <= value < _MOST:
        raise RunCorruptError(
            f"{layout.RUN}: plan.{name}: expected a whole number below 2^63, got {value}",
            code="field-value",
        )
    return _text_of(value) if isinstance(value, str) else value


def _text_of(value: str | None) -> str | None:
    return None if value is None else plain(value)


def _utc(unix_ns: int) -> datetime:
    return datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC).replace(tzinfo=None)


def _one_line(wrong: Sequence[str]) -> str:
    """Return what is wrong with a run, as far as it fits into a line."""
    shown = [shortened(text, _MOST_CHARACTERS) for text in wrong[:_MOST_PROBLEMS]]
    more = len(wrong) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])


def _what(error: RunError | OSError, file: str) -> str:
    """An error in one line that begins with the file's name, without where that lies."""
    if isinstance(error, OSError):
        return f"{file}: {error.strerror or error}"
    text = str(error)
    return text[text.find(file) :] if file in text else f"{file}: {text}"
