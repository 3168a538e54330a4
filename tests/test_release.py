"""The parts of a release that need no build: notes, checksums, the bill of materials."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from runs import needed

import tailscope

ROOT = Path(__file__).parents[1]


def script(name: str, *words: object) -> str:
    command = [ROOT / "scripts" / name, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_notes_are_the_versions_section_of_the_changelog() -> None:
    notes = script("release", "notes")
    _, heading, rest = (
        (ROOT / "CHANGELOG.md").read_text().partition(f"\n## {tailscope.__version__}")
    )
    assert heading
    section = rest.partition("\n## ")[0].partition("\n")[2]
    assert notes.strip() == section.strip() != ""


def test_sums_are_of_all_files(tmp_path: Path) -> None:
    for name in ("a wheel.whl", "b.tar", "SHA256SUMS"):
        (tmp_path / name).write_text(name)
    for _ in range(2):
        script("release", "sums", tmp_path)
        expected = [
            f"{hashlib.sha256(name.encode()).hexdigest()}  {name}"
            for name in ("a wheel.whl", "b.tar")
        ]
        assert (tmp_path / "SHA256SUMS").read_text().splitlines() == expected


@pytest.fixture(scope="module")
def bom() -> dict[str, Any]:
    needed("cargo")
    found: dict[str, Any] = json.loads(script("sbom"))
    return found


def test_a_bill_of_materials_is_well_formed(bom: dict[str, Any]) -> None:
    assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.6", 1)
    product = bom["metadata"]["component"]
    assert (product["name"], product["version"]) == ("tailscope", tailscope.__version__)
    references = [product["bom-ref"], *(each["bom-ref"] for each in bom["components"])]
    assert len(references) == len({*references})
    assert {each["ref"] for each in bom["dependencies"]} == {*references}
    for each in bom["dependencies"]:
        assert {*each["dependsOn"]} <= {*references} - {each["ref"]}
    assert all(each["name"] and each["version"] and each["licenses"] for each in bom["components"])


def test_everything_in_a_bill_of_materials_is_reached_from_the_product(bom: dict[str, Any]) -> None:
    needs = {each["ref"]: each["dependsOn"] for each in bom["dependencies"]}
    left = [bom["metadata"]["component"]["bom-ref"]]
    for reference in left:
        left += (each for each in needs[reference] if each not in left)
    assert {*left} == {*needs}
    names = {each["name"] for each in bom["components"]}
    assert {"numpy", "pyo3", "clap", "tailscope-analysis", "@bokeh/bokehjs"} <= names
    assert not {"pytest", "proptest", "criterion"} & names
    optional = {each["name"] for each in bom["components"] if each.get("scope") == "optional"}
    assert {"dask", "asyncssh"} <= optional and not {"numpy", "pyo3"} & optional


def test_a_bill_of_materials_names_no_place(bom: dict[str, Any]) -> None:
    assert str(ROOT) not in json.dumps(bom)
    assert str(Path.home()) not in json.dumps(bom)
