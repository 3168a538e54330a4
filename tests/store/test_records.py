"""Records on disk: strict, with the path of what is wrong; other formats are refused."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of, raises
from runs import write_mark
from shelves import edited
from synthetic import latencies, write_run
from wording import assert_wording

from tailscope.exceptions import RunCorruptError, RunError
from tailscope.noise.taken import taken_by
from tailscope.store.notes import read_notes
from tailscope.store.reader import read_figures, read_info, read_run
from tailscope.store.records.base import as_content, decode, encode
from tailscope.store.records.notes import Note, NotesRecord
from tailscope.store.records.run import RunInfo
from tailscope.store.run import check_conservation

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT_1 = Path(__file__).parent / "golden" / "format-1.tar.xz"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A measurement, an analysis, a campaign and a recording of noise of format 1."""
    with tarfile.open(FORMAT_1) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", latencies(1)[:2_000])


def changed(run: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    content = json.loads((run / "run.json").read_text())
    change(content)
    return write_mark(run, content)


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "show", "measured"),
        ("explain", "measured"),
        ("report", "measured", "--out", "page.html"),
        ("verify", "analysed", "--slo", "p99<1ms"),
        ("compare", "analysed", "measured"),
        ("runs", "finish", "measured"),
    ],
    ids=" ".join,
)
def test_an_older_format_is_refused_by_every_command(
    tailscope: Callable[..., Any], old: Path, words: tuple[str, ...]
) -> None:
    done = tailscope(*words, cwd=old)
    assert (done.returncode, code_of(done)) == (1, "format-older")
    assert all(text in done.stderr for text in ("run.json: ", "expected 3", "got 1"))


def test_a_run_of_an_older_format_is_listed_as_foreign(
    tailscope: Callable[..., Any], old: Path
) -> None:
    done = tailscope("runs", "list", ".", "--json", "-", cwd=old)
    states = {run["run"]: (run["state"], run["problem"]) for run in json.loads(done.stdout)["runs"]}
    for name in ("measured", "analysed"):
        state, problem = states[name]
        assert state == "foreign"
        assert_wording("list/an-older-format", problem)


def test_a_recording_of_an_older_format_is_refused(old: Path) -> None:
    with raises(RunError, "format-older") as refused:
        taken_by(old / "noise")
    assert all(text in str(refused.value) for text in ("noise.json: ", "expected 2", "got 1"))


def test_a_newer_format_is_refused(run: Path) -> None:
    edited(run, format=4)
    for read in (read_run, read_figures, read_info):
        with raises(RunError, "format-newer") as refused:
            read(run)
        assert all(text in str(refused.value) for text in ("expected 3", "got 4"))


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        (
            lambda info: info["instrument"]["stalls"]["generator"].update(count="1"),
            "field-value",
            "instrument.stalls.generator.count: expected a whole number, got text",
        ),
        (
            lambda info: info["plan"].update(rate_pps=None),
            "field-value",
            "plan.rate_pps: expected a whole number",
        ),
        (lambda info: info["plan"].update(command="fly"), "field-value", "plan.command: "),
        (lambda info: info["plan"].update(colour=1), "field-unknown", "plan.colour: "),
        (lambda info: info["plan"].pop("dut"), "field-missing", "plan.dut: "),
        (lambda info: info.pop("files"), "field-missing", "run.json: files: "),
        (lambda info: info["files"]["rate.csv"].pop("sha256"), "field-missing", "files.*.sha256: "),
        (
            lambda info: info["clock"].update(source=5),
            "field-value",
            "clock.source: expected text, got a whole number",
        ),
        (
            lambda info: info.update(written_unix_ns=-1),
            "field-value",
            "written_unix_ns: expected a whole number >= 0",
        ),
    ],
)
def test_the_wrong_field_is_named(
    run: Path, change: Callable[[dict[str, Any]], object], code: str, place: str
) -> None:
    changed(run, change)
    with raises(RunCorruptError, code) as refused:
        read_run(run)
    assert place in str(refused.value)


def test_a_file_that_the_run_does_not_list_is_damage(run: Path) -> None:
    changed(run, lambda info: info["files"].pop("summary.json"))
    with raises(RunCorruptError, "file-not-listed") as refused:
        read_run(run)
    assert all(text in str(refused.value) for text in ("run.json: files: ", "summary.json"))


@pytest.mark.parametrize("name", ["untimed", "post_untimed", "post_corrupt"])
def test_what_earlier_versions_did_not_count_is_none(run: Path, name: str) -> None:
    figures = dict(read_run(run).summary)
    assert figures.pop(name) == 0
    check_conservation(figures, "summary.json")
    figures["sent"] += 1
    with raises(RunCorruptError, "sum-of-parts"):
        check_conservation(figures, "summary.json")


def test_a_mistake_of_ours_is_no_damage(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object, **_named: object) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr("tailscope.store.reader.check_conservation", mistaken)
    with pytest.raises(KeyError) as raised:
        read_run(run)
    assert raised.value.args == ("a mistake",)


def test_what_is_written_is_what_is_read(run: Path) -> None:
    info = read_info(run)
    assert decode(encode(info).encode(), RunInfo, "run.json") == info
    assert next(iter(as_content(info))) == "format"


def test_a_record_that_could_not_be_read_back_is_not_written() -> None:
    wrong = NotesRecord(tags=(), notes=(Note(written_unix_ns=-1, text=""),))
    with pytest.raises(AssertionError) as raised:
        encode(wrong)
    assert "notes[0].written_unix_ns" in str(raised.value)


def test_every_file_says_its_format(run: Path) -> None:
    names = [path.name for path in run.glob("*.json")]
    assert {"run.json", "summary.json"} <= set(names)
    for name in names:
        expected = {"summary.json": 4, "run.json": 3}.get(name, 2)
        assert json.loads((run / name).read_text())["format"] == expected, name


def test_notes_of_a_newer_format_are_refused(run: Path) -> None:
    (run / "notes.json").write_text('{"format": 2, "tags": [], "notes": []}')
    with raises(RunError, "format-newer") as refused:
        read_notes(run)
    assert all(text in str(refused.value) for text in ("notes.json: ", "expected 1", "got 2"))
