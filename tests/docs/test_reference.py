"""The reference is what the code says, and the code says what is in files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from docs.reference import added, cli, files
from docs.reference.records import fields_of
from documentation import DOCS, undescribed, undocumented

from tailscope.registry import additions

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tailscope

RECORDS = [(file, DOCS / "reference") for file in files.RECORDS] + [
    (file, DOCS / "extra" / name)
    for name in additions()
    for file in added.files_of(name)
    if isinstance(file, files.RecordFile)
]
every_record = pytest.mark.parametrize(
    ("file", "folder"), RECORDS, ids=[file.name for file, _ in RECORDS]
)


def test_a_generated_page_is_what_the_code_says() -> None:
    assert (DOCS / "reference" / "cli.md").read_text() == cli.page()


def test_only_a_page_that_was_edited_is_named_with_what_renews_it(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    page = tmp_path / "docs" / "reference" / "cli.md"
    page.write_text(page.read_text() + "by hand\n")
    checked = subprocess.run(
        [sys.executable, "-m", "docs.reference", "--check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 1
    error, hint = checked.stderr.splitlines()
    assert error == "error: docs/reference/cli.md is not what the code says"
    assert hint.startswith("hint: `make docs`")


def test_files_of_an_analysis_are_described(tailscope: Tailscope, tmp_path: Path) -> None:
    assert tailscope("simulate", tmp_path / "pair", "--seed", 1, "--packets", 500).returncode == 0
    done = tailscope("analyze", tmp_path / "pair", "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert not undescribed(run, files.RUN)


def test_what_is_not_described_is_found() -> None:
    assert not undocumented(["latency_ns_p50", "post_gap_ns_max", "reasons", "phases", "watts"])
    assert undocumented(["latency_ns_median", "nothing"]) == ["latency_ns_median", "nothing"]


@every_record
def test_every_field_is_described(file: files.RecordFile, folder: Path) -> None:
    names = {name for name, _ in fields_of(file.kind, elsewhere=files.ELSEWHERE)}
    assert set(file.kind.__struct_fields__) <= names
    schema = json.loads((folder / "schemas" / files.schema_name(file)).read_text())
    for part in schema["$defs"].values():
        if part["title"] in {each.__name__ for each in files.ELSEWHERE}:
            continue
        described = [name for name, field in part["properties"].items() if "description" in field]
        if part["title"].endswith(("Counts", "Traffic", "Pairs", "Count", "Truth")):
            continue
        assert described == list(part["properties"]), part["title"]


@every_record
def test_every_record_has_its_format_first(file: files.RecordFile, folder: Path) -> None:
    schema = json.loads((folder / "schemas" / files.schema_name(file)).read_text())
    record = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert "format" in record["required"]
    assert record["properties"]["format"]["enum"]
    assert record["additionalProperties"] is False
