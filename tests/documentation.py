"""What the documentation says of figures, and of files."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tailscope.store.contents import RunFile

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


def undescribed(folder: Path, files: Iterable[RunFile]) -> list[str]:
    """Files, columns and fields in a folder of which `tailscope.store.contents` says nothing."""
    known: dict[str, list[RunFile]] = {}
    for file in files:
        known.setdefault(file.name, []).append(file)
    found = []
    for path in sorted(folder.iterdir()):
        described = known.get(path.name + "/" * path.is_dir(), [])
        fields = {name: about for file in described for name, about in file.fields.items()}
        columns = {name: kind for file in described for name, (kind, _) in file.columns.items()}
        if not described:
            found.append(path.name)
        elif fields:
            found += [f"{path.name}: {name}" for name in _unknown_fields(path, fields)]
        elif columns:
            found += [
                f"{path.name}: {name}: {kind}"
                for name, kind in _columns(path)
                if columns.get(name) != kind
            ]
    return found


def _unknown_fields(path: Path, fields: Mapping[str, str]) -> list[str]:
    names = [name for names in fields for name in names.split(", ")]
    known = re.compile("|".join(map(_pattern, names)))
    leaves = dict.fromkeys(_leaves(json.loads(path.read_text())))
    return [name for name in leaves if not (known.fullmatch(name) or known.fullmatch(f"{name}.*"))]


def _leaves(content: Any, name: str = "") -> Iterator[str]:
    if isinstance(content, dict) and content:
        for key, value in content.items():
            yield from _leaves(value, f"{name}.{key}" if name else key)
    elif isinstance(content, list) and any(isinstance(each, dict) for each in content):
        for each in content:
            yield from _leaves(each, name)
    else:
        yield name


def _columns(path: Path) -> Iterator[tuple[str, str]]:
    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        for column in pq.read_schema(path):
            kind = getattr(column.type, "value_type", column.type)
            yield column.name, str(kind)
        return
    with path.open() as file:
        rows = csv.DictReader(file)
        first = next(rows, dict.fromkeys(rows.fieldnames or (), ""))
        for name, value in first.items():
            yield name, _kind(name, value)


def _kind(name: str, value: str) -> str:
    if value in ("True", "False"):
        return "bool"
    if value.isdecimal() or (not value and name.endswith("_ns")):
        return "int"
    return "float" if re.fullmatch(r"[0-9.e-]+", value) else "str"
