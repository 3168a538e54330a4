"""What the catalogue writes down of a run directory, whatever state that is in."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tailscope.exceptions import RunCorruptError
from tailscope.store import layout
from tailscope.store.columns import COUNT, PLAN, REAL, RUN, SUMMARY, TEXT, TIME, TRUTH
from tailscope.store.notes import Remarks, read_notes
from tailscope.store.reader import read_mark
from tailscope.store.run import host_of, is_emulated, kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["STATES", "CatalogueRow", "plain", "read_record"]

STATES = ("complete", "partial", "incomplete", "damaged", "foreign")
"""Of runs: whole; measured in part; never finished, or not yet; not what was written; written by
another version."""

_NOT_AS_WRITTEN = (
    RunCorruptError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
)
_MOST = 2**63


@dataclass
class CatalogueRow:
    """A run as the tables have it.

    Attributes
    ----------
    run, summary : dict
        One row each.
    files : list of dict
    remarks : Remarks
    """

    run: dict[str, Any]
    summary: dict[str, Any]
    files: list[dict[str, Any]] = field(default_factory=list)
    remarks: Remarks = field(default_factory=Remarks)

    def rows(self) -> dict[str, list[dict[str, Any]]]:
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
    """Read what the catalogue keeps of a run; what is wrong with it is part of that.

    Parameters
    ----------
    path : Path
        The run directory.
    name : str
        What it is called.
    campaign : str or None
        The campaign that it is part of.
    """
    record = CatalogueRow(dict.fromkeys(RUN), dict.fromkeys(SUMMARY))
    record.summary["run"] = name
    record.run |= {"run": name, "path": plain(str(path)), "campaign": campaign}
    wrong: list[str] = []
    try:
        record.run["state"] = _fill(record, path, wrong)
    except _NOT_AS_WRITTEN as error:
        record.run["state"] = "damaged"
        wrong.append(_what(error, layout.RUN))
    try:
        record.remarks = read_notes(path)
    except _NOT_AS_WRITTEN as error:
        wrong.append(_what(error, layout.NOTES))
    record.run["problem"] = plain("; ".join(wrong)) or None
    return record


def plain(text: str) -> str:
    """Make a text one that UTF-8 can hold: names of files may be no text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _fill(record: CatalogueRow, path: Path, wrong: list[str]) -> str:
    """Fill in all but notes; add what is wrong, and return the state."""
    info = read_mark(path)
    if info is None:
        wrong.append(f"{layout.RUN}: gone")
        return "damaged"
    if not info.get("complete"):
        wrong.append("never finished, or still being written")
        return "incomplete"
    if info.get("format") != layout.FORMAT:
        wrong.append(f"format: expected {layout.FORMAT}, got {info.get('format')!r}")
        return "foreign"
    record.files = [_file(name, each) for name, each in info["files"].items()]
    found = [problem for file in record.files if (problem := _problem(path, file))]
    _fill_run(record.run, info)
    found += _fill_summary(record.summary, path, info)
    if found:
        wrong += found
        return "damaged"
    wrong += [str(reason) for reason in info.get("partial", ())]
    return "partial" if wrong else "complete"


def _file(name: str, file: Mapping[str, Any]) -> dict[str, Any]:
    size, checksum = _as(COUNT, file["size_bytes"]), _as(TEXT, file["sha256"])
    return {"file": plain(name), "size_bytes": size, "sha256": checksum}


def _problem(path: Path, file: Mapping[str, Any]) -> str | None:
    """What is wrong with a file, as far as a look at its size can tell."""
    try:
        size = (path / file["file"]).stat().st_size
    except FileNotFoundError:
        return f"{file['file']}: missing"
    if size != file["size_bytes"]:
        return f"{file['file']}: expected {file['size_bytes']} bytes, got {size}"
    return None


def _fill_run(row: dict[str, Any], info: Mapping[str, Any]) -> None:
    floor, host = info.get("floor") or {}, host_of(info)
    values = {
        **{name: info["plan"].get(name) for name in PLAN},
        "emulated": is_emulated(info),
        "written_utc": info["written_unix_ns"],
        "tailscope_version": info.get("tailscope_version"),
        "kernel": kernel(info),
        **{name: host.get(name) for name in ("kernel_release", "cpu_model", "cpu_count")},
        "clock": info["clock"]["source"],
        "floor_ns_p50": floor.get("latency_ns_p50"),
        "floor_ns_p999": floor.get("latency_ns_p999"),
        "believed_up_to": floor.get("believed_up_to"),
    }
    for name, value in values.items():
        row[name] = _named(layout.RUN, name, RUN[name], value)


def _fill_summary(row: dict[str, Any], path: Path, info: Mapping[str, Any]) -> list[str]:
    """Fill in the figures; returns what is wrong with them."""
    power = (info.get("power") or {}).get("figures") or {}
    try:
        summary = json.loads((path / layout.SUMMARY).read_bytes())
        figures = {**power, **summary}
        for name, kind in SUMMARY.items():
            if name in figures and name != "run":
                row[name] = _named(layout.SUMMARY, name, kind, figures[name])
    except FileNotFoundError:
        return []
    except _NOT_AS_WRITTEN as error:
        return [_what(error, layout.SUMMARY)]
    return []


def _named(file: str, name: str, kind: str, value: object) -> object:
    try:
        return _as(kind, value)
    except (ValueError, OverflowError) as error:
        raise RunCorruptError(f"{file}: {name}: {error}") from None


def _as(kind: str, value: object) -> object:
    """A value as a column of this type holds it.

    Raises
    ------
    ValueError
        If it cannot.
    """
    return None if value is None else _READ[kind](value)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return plain(", ".join(f"{name}={one}" for name, one in value.items()))
    if isinstance(value, str | int):
        return plain(str(value))
    raise ValueError(f"expected a text, got {value!r}")


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -_MOST <= value < _MOST:
        raise ValueError(f"expected a whole number, got {value!r}")
    return value


def _real(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a number, got {value!r}")
    return float(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {value!r}")
    return value


def _utc(value: object) -> datetime:
    try:
        whole = datetime.fromtimestamp(_count(value) // 1_000_000_000, UTC)
    except (OverflowError, OSError):
        raise ValueError(f"expected a time in ns, got {value!r}") from None
    return whole.replace(tzinfo=None)


_READ: dict[str, Callable[[object], object]] = {
    TEXT: _text,
    COUNT: _count,
    REAL: _real,
    TRUTH: _truth,
    TIME: _utc,
}


def _what(error: BaseException, file: str) -> str:
    """An error in one line that begins with the file's name, without where that lies."""
    if isinstance(error, RunCorruptError):
        text = str(error)
        return text[text.find(file) :] if file in text else f"{file}: {text}"
    if isinstance(error, OSError):
        return f"{file}: {error.strerror or error}"
    return f"{file}: not as it was written: {error!r}"
