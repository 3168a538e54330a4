"""``tailscope recommend``: runs in, what to choose out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import pytest
from documentation import undocumented
from errors import code_of
from runs import AS_ROOT, needed, write_mark
from synthetic import latencies, write_campaign, write_run
from wording import assert_wording

from tailscope.cli.view import View
from tailscope.exceptions import RunCorruptError, RunError
from tailscope.extra.recommend.evidence import read_evidence, runs_in

if TYPE_CHECKING:
    from pathlib import Path

    from measurements import Place

Run = Callable[..., Any]

HOSTILE = "\x1b[31mred\u202e"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels, three runs of each; two rates, a container; a cell that failed, one left out."""
    path = tmp_path_factory.mktemp("campaign")
    rt = {"host": {"kernel_flavour": "rt"}}
    kernels: dict[str, dict[str, Any]] = {
        f"{name} {at}": how
        for name, how in (("vanilla", {"tail_ns": 500_000}), ("rt", {"tail_ns": 5_000, **rt}))
        for at in (1, 2, 3)
    }
    runs = {
        **{name: dict(how) for name, how in kernels.items()},
        "fast": {"base_ns": 50_000, "rate_pps": 40_000, "lost": 300},
        f"lxc {HOSTILE}": {"tail_ns": 5_000_000, "platform_name": "lxc", "dut": "suricata"},
        "bare": {"tail_ns": 5_000, "dut": "suricata"},
    }
    for seed, (name, how) in enumerate(runs.items()):
        law = {each: how.pop(each) for each in ("base_ns", "tail_ns") if each in how}
        write_run(path / name, latencies(seed, **law), **{"rate_pps": 20_000, **how})
    cells = [{"name": name, "runs": [name]} for name in runs]
    cells += [
        {"name": "broken", "state": "failed", "reason": f"no {HOSTILE}"},
        {"name": "nohz", "state": "waiting", "reason": "kernel: expected nohz"},
    ]
    return write_campaign(path, cells)


def recommended(tailscope: Run, *runs: Path, expected: int = 0) -> dict[str, Any]:
    done = tailscope("recommend", *runs, "--json", "-")
    assert done.returncode == expected, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def names(content: Any) -> set[str]:
    """Every name in JSON, of objects within objects too."""
    if isinstance(content, list):
        return set().union(*map(names, content))
    if not isinstance(content, dict):
        return set()
    own = {name for name in content if name not in ("device_options", "co_runners")}
    return own.union(*(names(content[name]) for name in own))


def test_a_campaign(tailscope: Run, campaign: Path) -> None:
    found = recommended(tailscope, campaign)
    spoken = {each["id"]: each for each in found["recommendations"]}
    assert list(spoken) == ["I", "II", "III"]
    assert [each["id"] for each in found["unsaid"]] == ["II", "III", "IV", "V", "cache"]
    runs = {each["number"]: each["name"] for each in found["runs"]}
    (kernel,) = spoken["III"]["findings"]
    slower, faster = ([f"{name} {at}" for at in (1, 2, 3)] for name in ("vanilla", "rt"))
    assert [runs[number] for number in kernel["runs"]] == faster + slower
    (rate,) = spoken["II"]["findings"]
    assert [runs[number] for number in rate["runs"]] == ["fast", *slower]
    assert {each["name"]: each["reason"].partition(": ")[::2] for each in found["left_out"]} == {
        "broken": ("failed", f"no {HOSTILE}"),
        "nohz": ("waiting", "kernel: expected nohz"),
    }
    cited = [
        number for table in found["tables"] for row in table["tails"] for number in row["runs"]
    ]
    assert sorted(cited) == sorted(runs)


def test_every_field_is_documented(tailscope: Run, campaign: Path) -> None:
    assert not undocumented(
        names(recommended(tailscope, campaign)), "extra/recommend/recommendation.md"
    )


def unwrapped(text: str) -> list[str]:
    """Lines as they were before they were broken to fit."""
    return text.replace("\n    ", " ").splitlines()


def shortened(text: str) -> str:
    """Figures as a terminal shows them."""
    return View().text(text)


def test_words_say_the_same(tailscope: Run, campaign: Path, tmp_path: Path) -> None:
    done = tailscope("recommend", campaign, "--json", tmp_path / "said.json")
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "said.json").read_text())
    lines = unwrapped(done.stdout)
    for each in said["recommendations"]:
        assert f"{each['id']}. {each['title']} ({each['source']}): {each['advice']}" in lines
        for finding in each["findings"]:
            assert f"  - {shortened(finding['text'])}" in lines
    no_card = next(line for line in lines if line.startswith("no evidence: IV."))
    table_6 = next(line for line in lines if line.startswith("Table 6: "))
    left_out = next(line for line in lines if line.startswith("left out: nohz: "))
    assert_wording("recommend/command", "\n".join((no_card, table_6, left_out)))
    assert "not measured here" in " ".join(done.stdout.split())


def test_names_are_escaped(tailscope: Run, campaign: Path) -> None:
    done = tailscope("recommend", campaign)
    assert "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert r"] lxc \x1b[31mred\u202e" in done.stdout
    assert r"failed: no \x1b[31mred\u202e" in done.stdout


def test_runs_alone_say_as_much(tailscope: Run, campaign: Path) -> None:
    names = [f"{name} {at}" for name in ("vanilla", "rt") for at in (1, 2, 3)]
    found = recommended(tailscope, *(campaign / name for name in names))
    assert [each["id"] for each in found["recommendations"]] == ["I", "III"]
    assert [each["name"] for each in found["runs"]] == names
    mixed = recommended(tailscope, campaign, write_run(campaign.parent / "more", latencies(9)))
    assert len(mixed["runs"]) == 10
    twice = tailscope("recommend", campaign, campaign / "rt 1")
    assert (twice.returncode, code_of(twice)) == (1, "run-named-twice")


def test_without_evidence_it_says_so(tailscope: Run, tmp_path: Path) -> None:
    pair = captures.pair(tmp_path / "pair", [1_000] * 100)
    done = tailscope("analyze", *pair, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    partial = write_run(tmp_path / "partial", latencies(1), info={"partial": ["it died"]})
    emulated = write_run(
        tmp_path / "emulated",
        latencies(1),
        platform_name="vm",
        platform={"representative": False, "parameters": ""},
    )
    found = recommended(tailscope, tmp_path / "run", partial, emulated, expected=3)
    assert found["recommendations"] == found["runs"] == found["tables"] == []
    assert [each["id"] for each in found["unsaid"]] == ["I", "II", "III", "IV", "V", "cache"]
    reasons = {each["name"]: each["reason"] for each in found["left_out"]}
    for name in ("run", "partial", "emulated"):
        assert_wording(f"recommend/left-out-{name}", reasons[name])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("plain") / "run", latencies(1))


def edited(run: Path, **changes: Any) -> Path:
    """A run whose ``run.json`` somebody has changed."""
    info = json.loads((run / "run.json").read_text())
    for name, value in changes.items():
        whole, _, part = name.partition("__")
        if part:
            info[whole][part] = value
        else:
            info[whole] = value
    return write_mark(run, info)


@pytest.mark.parametrize(
    "changes",
    [
        {"instrument": None},
        {"instrument__lost_in_dut": -1},
        {"instrument__lost_in_dut": 10**9},
        {"instrument__cpus": {"DuT": "one"}},
        {"instrument__stalls": {}},
        {"plan": None},
        {"plan__rate_pps": 0},
        {"plan__dut_options": ["a"]},
        {"plan__co_runners": {"cache": "many"}},
        {"plan__co_runner_cpus": 1.5, "plan__co_runners": {"cache": 1}},
        {"host": 1},
        {"host__last_level_caches": "x"},
        {"floor": {"latency_ns_p50": 1}},
        {"clock": {}},
        {"platform": "bare"},
        {"tuning": [1]},
        {"partial": 1},
    ],
)
def test_a_run_that_was_changed_is_refused(
    plain: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    run = edited(shutil.copytree(plain, tmp_path / "run"), **changes)
    with pytest.raises(RunCorruptError) as raised:
        read_evidence({"run": run})
    assert str(raised.value).startswith(str(run))


def test_damaged_figures_are_refused(tailscope: Run, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", latencies(1))
    (run / "summary.json").write_text((run / "summary.json").read_text().replace("1", "2"))
    done = tailscope("recommend", run)
    assert done.returncode == 1 and f"error: {run}/summary.json: sha256: " in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected JSON"),
        ("[]", "expected an object, got a list"),
        ('{"format": 1}', "cells: missing"),
        ('{"format": 2, "cells": []}', "format: expected 1, got 2"),
        ('{"format": 1, "cells": [1]}', "cells[0]: expected an object"),
        (
            '{"format": 1, "cells": [{"name": "a", "state": "done", "reason": null, "runs": [1]}]}',
            "cells[0].runs[0]: expected text",
        ),
    ],
)
def test_damaged_campaigns_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "campaign.json").write_text(text)
    with pytest.raises(RunError) as raised:
        runs_in(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}/campaign.json: {said}")


@pytest.mark.parametrize("run", ["../elsewhere", "/etc", "", ".."])
def test_a_campaign_has_its_runs_within(tmp_path: Path, run: str) -> None:
    write_campaign(tmp_path, [{"runs": [run]}])
    with pytest.raises(RunCorruptError) as raised:
        runs_in(tmp_path)
    assert "campaign.json: runs: " in str(raised.value)


def test_what_is_neither_is_refused(tailscope: Run, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        done = tailscope("recommend", path)
        assert (done.returncode, code_of(done)) == (1, "not-a-run")
        assert f"error: {path}: " in done.stderr
    gone = write_campaign(tmp_path, [{"runs": ["gone"]}])
    done = tailscope("recommend", gone)
    assert done.returncode == 1 and "gone: " in done.stderr
    assert tailscope("recommend").returncode == 1
    empty = write_campaign(tmp_path, [])
    assert code_of(tailscope("recommend", empty)) == "no-runs"


MEASURED = """\
name: small
fixed: {dut: l2fwd, duration: 500ms, warm_up: 100ms}
vary:
  rate: [5k, 20k]
"""


@pytest.mark.usefixtures("dataplane")
@pytest.mark.long
def test_a_measured_campaign(tailscope: Run, place: Place) -> None:
    (place.path / "small.yaml").write_text(MEASURED)
    out = place.path / "out"
    done = tailscope("run", place.path / "small.yaml", "--out", out, env=place.environment)
    assert done.returncode == 0, done.stderr
    found = recommended(tailscope, out)
    assert found["recommendations"][0]["id"] == "I"
    assert {each["rate_pps"] for each in found["runs"]} == {5_000, 20_000}
    assert {each["technology"] for each in found["runs"]} == {"bare"}
    assert len(found["tables"]) == 2 and found["left_out"] == []
    assert not undocumented(names(found), "extra/recommend/recommendation.md")


@pytest.mark.long
@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_a_measured_container(tailscope: Run, place: Place) -> None:
    needed("lxc-execute")
    text = MEASURED.replace("rate: [5k, 20k]", "platform: [bare, lxc]")
    (place.path / "small.yaml").write_text(text)
    out = place.path / "out"
    done = tailscope("run", place.path / "small.yaml", "--out", out, env=place.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = recommended(tailscope, out)
    assert {each["technology"] for each in found["runs"]} == {"bare", "lxc"}
    said = [*found["recommendations"], *found["unsaid"]]
    texts = json.dumps([each for each in said if each["id"] == "V"])
    assert "lxc" in texts and "no comparable runs" not in texts
