"""What the documentation says of figures, and of files."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

from docs.reference.records import descriptions

from tailscope.store.records.base import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from docs.reference.files import OtherFile, RecordFile

    from tailscope.store.tables import Table

DOCS = Path(__file__).parents[1] / "docs"
GENERATED = "reference/files.md"
"""What is written to files is described there."""


def undocumented(names: Iterable[str], *pages: str) -> list[str]:
    """Names without a row in a table: there `*` is anything, `pX` any quantile, `pre_` a side."""
    known = "|".join(_patterns((*pages, GENERATED)))
    return [name for name in names if not re.fullmatch(known, name)]


def _patterns(pages: Iterable[str]) -> Iterator[str]:
    for page in pages:
        for line in (DOCS / page).read_text().splitlines():
            if line.startswith("| `"):
                for name in re.findall(r"`([a-z][a-z_0-9X*.]*)`", line.split("|")[1]):
                    yield from (_pattern(part) for part in name.split(".") if part != "*")


def _pattern(name: str) -> str:
    pattern = name.replace(".", r"\.").replace("*", ".+").replace("pX", "p[0-9]+")
    return re.sub("^pre_", "(pre|post)_", pattern)


def undescribed(folder: Path, files: Iterable[RecordFile | OtherFile | Table]) -> list[str]:
    """Files, columns and fields in a folder of which the reference says nothing."""
    known: dict[str, list[RecordFile | OtherFile | Table]] = {}
    for file in files:
        known.setdefault(file.file if hasattr(file, "file") else file.name, []).append(file)
    found = []
    for path in sorted(folder.iterdir()):
        described = known.get(path.name + "/" * path.is_dir(), [])
        if not described:
            found.append(path.name)
        for file in described:
            if hasattr(file, "kind"):
                decode(path.read_bytes(), file.kind, path)
                found += [
                    f"{path.name}: {name}"
                    for name in file.kind.__struct_fields__
                    if not descriptions(file.kind).get(name)
                ]
        columns = {
            each.name: each.kind
            for file in described
            if hasattr(file, "columns")
            for each in file.columns
        }
        if columns:
            found += [
                f"{path.name}: {name}: {kind}"
                for name, kind in _columns(path)
                if name not in columns or kind not in (None, columns[name])
            ]
    return found


def _columns(path: Path) -> Iterator[tuple[str, str | None]]:
    """Columns with their kinds, which an empty table of text does not tell."""
    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        for column in pq.read_schema(path):
            kind = getattr(column.type, "value_type", column.type)
            yield column.name, str(kind)
        return
    with path.open() as file:
        rows = csv.DictReader(file)
        first = next(rows, None)
        for name in rows.fieldnames or ():
            yield name, None if first is None else _kind(name, first[name])


def _kind(name: str, value: str) -> str:
    if value in ("True", "False"):
        return "bool"
    if value.isdecimal() or (not value and name.endswith("_ns")):
        return "int"
    return "float" if re.fullmatch(r"[0-9.e-]+", value) else "str"
