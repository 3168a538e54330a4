"""An experiment file says what it means, or where it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import raises

from tailscope.exceptions import UsageError
from tailscope.experiment.campaign import spec
from tailscope.experiment.campaign.matrix import cells_of, only_cells
from tailscope.experiment.campaign.spec import load_experiment, schema

if TYPE_CHECKING:
    from tailscope.experiment.campaign.cell import Cell

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def cells(path: Path, text: str, profile: str | None = None) -> list[Cell]:
    file = path / "x.yaml"
    file.write_text(text)
    return cells_of(*load_experiment(file, profile))


TWO_BY_TWO = """\
name: trial
fixed: {duration: 1s}
vary:
  software:
    plain: {dut: l2fwd}
    batch: {dut: l2fwd, dut_options: {batch: 4}}
  rate: [10k, 20000]
repeats: 3
"""


def test_all_combinations_are_run_in_rounds(tmp_path: Path) -> None:
    found = cells(tmp_path, TWO_BY_TWO)
    assert len(found) == len({cell.name for cell in found}) == 12
    rounds = [{cell.name.split(",repeat")[0] for cell in found[at : at + 4]} for at in (0, 4, 8)]
    assert rounds[0] == rounds[1] == rounds[2] and len(rounds[0]) == 4
    batch = next(cell for cell in found if cell.values["software"] == "batch")
    assert batch.plan.dut_options == {"batch": "4"}
    assert {cell.plan.rate_pps for cell in found} == {10_000, 20_000}


def test_order_is_shuffled_by_the_seed(tmp_path: Path) -> None:
    names = lambda text: [cell.name for cell in cells(tmp_path, text)]  # noqa: E731
    assert names(TWO_BY_TWO) == names(TWO_BY_TWO)
    assert names(TWO_BY_TWO) != names(TWO_BY_TWO + "seed: 2\n")
    written = names(TWO_BY_TWO + "order: as-written\n")
    assert written[:2] == [
        "software=plain,rate=10k,repeat=1",
        "software=plain,rate=20000,repeat=1",
    ]
    assert set(written) == set(names(TWO_BY_TWO))


def test_combinations_are_left_out(tmp_path: Path) -> None:
    found = cells(tmp_path, TWO_BY_TWO + "exclude: [{software: batch, rate: [20000]}]\n")
    left = {(cell.values["software"], cell.values["rate"]) for cell in found}
    assert left == {("plain", "10k"), ("plain", "20000"), ("batch", "10k")}


def test_options_vary_by_name(tmp_path: Path) -> None:
    text = "name: t\nfixed: {dut: l2fwd, dut_options: {tx-drain: 10us}}\n"
    found = cells(tmp_path, text + "vary: {dut_options.batch: [4, 32]}\n")
    assert [cell.plan.dut_options for cell in sorted(found, key=lambda cell: cell.name)] == [
        {"tx-drain": "10us", "batch": "32"},
        {"tx-drain": "10us", "batch": "4"},
    ]


@pytest.mark.parametrize("values", ["[on, off]", '["on", "off"]'])
def test_yaml_may_take_on_and_off_for_true_and_false(tmp_path: Path, values: str) -> None:
    text = f"name: t\nfixed: {{dut: bridge}}\nvary: {{stages: {values}}}\n"
    found = cells(tmp_path, text)
    assert sorted(cell.name for cell in found) == ["stages=off", "stages=on"]
    assert sorted(cell.plan.stages for cell in found) == ["off", "on"]


def test_a_profile_replaces_what_it_names(tmp_path: Path) -> None:
    text = TWO_BY_TWO + "profiles: {small: {fixed: {duration: 2s}, vary: {rate: null}, repeats: 1}}"
    found = cells(tmp_path, text, "small")
    assert [cell.name for cell in found] and len(found) == 2
    assert all(cell.plan.duration_ns == 2_000_000_000 for cell in found)
    assert all(set(cell.values) == {"software"} for cell in found)


def test_cells_are_chosen_by_values(tmp_path: Path) -> None:
    found = cells(tmp_path, TWO_BY_TWO)
    assert len(only_cells(found, {"software": "batch", "rate": "10k,20000"})) == 6
    for only, code, named in (
        ({"colour": "red"}, "no-such-variable", "'colour', expected software or rate"),
        ({"rate": "1M"}, "no-such-value", "rate: got '1M'"),
    ):
        with raises(UsageError, code) as refused:
            only_cells(found, only)
        assert named in str(refused.value)


@pytest.mark.parametrize(
    ("text", "named", "code"),
    [
        (
            "name: t\nfixed:\n  dut: l4fwd\n",
            "x.yaml:3: fixed.dut: got 'l4fwd', expected one of loop",
            "field-value",
        ),
        ("name: t\nfixed:\n  dutt: l2fwd\n", "x.yaml:3: fixed.dutt: ", "unknown-field"),
        ("name: t\nfixed:\n  dutt: l2fwd\n", " dut?", "unknown-field"),
        ("name: t\nfixd: {}\n", "x.yaml:2: fixd: ", "unknown-field"),
        ("fixed: {dut: l2fwd}\n", "x.yaml:1: name: ", "missing-field"),
        (
            "name: t\nfixed: {dut: l2fwd, burst: many}\n",
            "x.yaml:2: fixed.burst: got 'many'",
            "field-value",
        ),
        (
            "name: t\nfixed: {dut: l2fwd, size: 12}\n",
            "x.yaml:2: fixed.size: got 12",
            "out-of-range",
        ),
        ("name: t\nfixed: {dut: l2fwd}\nrepeats: 0\n", "x.yaml:3: repeats: got 0", "field-value"),
        ("name: t\nname: u\n", "x.yaml:2: name: ", "yaml-key-twice"),
        ("name: [\n", "x.yaml:", "yaml"),
        ("- l2fwd\n", "x.yaml: got a list", "not-an-experiment"),
        ("name: t\nfixed: {}\n", "x.yaml:2: fixed: dut: got none", "no-dut"),
        ("name: t\nfixed: {dut: l2fwd, rate: fast}\n", "x.yaml:2: fixed.rate: rate: ", "rate"),
        ("", "x.yaml: got an empty file", "not-an-experiment"),
        ("name: a b\n", "x.yaml:1: name: got 'a b'", "field-value"),
        (
            "name: t\nfixed: {dut: l2fwd, duration: 5}\n",
            "x.yaml:2: fixed.duration: got 5, expected a time",
            "field-value",
        ),
        (
            "name: t\nfixed: {dut: l2fwd, rate: 1.5}\n",
            "x.yaml:2: fixed.rate: got 1.5, expected a rate",
            "field-value",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary: {rate: [true]}\n",
            "x.yaml:3: vary.rate.0: got True, expected a rate",
            "field-value",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary:\n  burst: [1, 900]\n",
            "x.yaml:4: vary.burst.1: got 900, expected 1 to 512",
            "field-value",
        ),
        (
            "name: t\nvary:\n  kind:\n    a: {dut: l2fwd, burst: 900}\n",
            "vary.kind.a.burst: got 900, expected 1 to 512",
            "field-value",
        ),
        (
            "name: t\nprofiles: {small: {fixed: {captures: 1}}}\n",
            "profiles.small.fixed.captures: got 1, expected true",
            "field-value",
        ),
        (
            "name: t\nfixed: {dut: l2fwd, co_runners: {gpu: 1}}\n",
            "fixed.co_runners.gpu: got 'gpu', expected one of cpu, cache",
            "field-value",
        ),
        (
            "name: t\nfixed: {dut: l2fwd, co_runners: {cpu: x}}\n",
            "fixed.co_runners.cpu: got 'x', expected at least 1",
            "field-value",
        ),
        (
            "name: t\nfixed: {dut: l2fwd, cpus: 'a,b'}\n",
            "x.yaml:2: fixed.cpus: cpus: got 'a,b'",
            "cpu-list",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nservice_levels: [p99 is fine]\n",
            "x.yaml:3: service_levels.0: got 'p99 is fine'",
            "service-level",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary:\n  rate: [1k, quick]\n",
            "x.yaml:4: vary.rate.1: rate: ",
            "rate",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary:\n  colour: [red]\n",
            "x.yaml:4: vary.colour: ",
            "not-a-field",
        ),
        (
            "name: t\nfixed: {dut: l2fwd, rate: 1k}\nvary:\n  rate: [1k]\n",
            "x.yaml:4: vary.rate: ",
            "field-twice",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary:\n  rate: []\n",
            "x.yaml:4: vary.rate: ",
            "no-value",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary:\n  rate: [1k, 1k]\n",
            "x.yaml:4: vary.rate.1: got '1k'",
            "value-twice",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary:\n  rate: [1k, 1000]\n",
            "x.yaml:3: vary: rate=1k and rate=1000",
            "same-run",
        ),
        (
            "name: t\nvary:\n  dut: [l2fwd, mirred]\n  wire: [memif]\n",
            "x.yaml:4: vary.wire.0: wire: got 'memif', expected one of veth, ",
            "dut-wire",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary: {rate: [1k]}\nexclude:\n  - {rate: 2k}\n",
            "x.yaml:5: exclude.0.rate: got '2k', expected one of 1k",
            "no-such-value",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary: {rate: [1k]}\nexclude:\n  - {colour: red}\n",
            "x.yaml:5: exclude.0.colour: ",
            "not-varied",
        ),
        (
            "name: t\nfixed: {dut: l2fwd}\nvary: {rate: [1k]}\nexclude:\n  - {rate: 1k}\n",
            "x.yaml:4: exclude: ",
            "excludes-everything",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, text: str, named: str, code: str
) -> None:
    with raises(UsageError, code) as refused:
        cells(tmp_path, text)
    assert named in str(refused.value)


def test_the_schema_is_the_one_that_is_kept() -> None:
    kept, ours = json.loads((EXPERIMENTS / "schema.json").read_text()), schema()
    # A folder that adds a section may not be there.
    for part in ("properties", "$defs"):
        kept[part] = {name: each for name, each in kept[part].items() if name in ours[part]}
    assert kept == ours, "tailscope schema > experiments/schema.json"


def test_a_section_of_a_folder_that_is_not_there_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec, "_with_sections", lambda: spec.Experiment)
    with raises(UsageError, "unknown-field") as refused:
        cells(tmp_path, "name: t\nfixed: {dut: l2fwd}\nhosts:\n  dut: {cards: [a, b]}\n")
    assert "x.yaml:3: hosts: " in str(refused.value)


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_experiments_of_the_papers_are_whole(path: Path) -> None:
    experiment, document = load_experiment(path)
    found: dict[str | None, Any] = {None: cells_of(experiment, document)}
    for profile in experiment.profiles:
        found[profile] = cells_of(*load_experiment(path, profile))
    assert all(found.values())
    expected = {
        "quickstart": 2 * 3 * 3,
        # Table II: 3 functions, 2 modes, 12 rates; Figure 5: 6 bursts, 2 batches; Table I.
        "noms2020": 3 * (3 * 2 * 12 + 6 * 2 + 1),
        # Table III: 3 functions, saving or not.
        "energy": 3 * 3 * 2,
        # 3 functions, 3 kernels, 6 rates; l2fwd as VM on each kernel; Suricata untuned.
        "limbo2022": 3 * (3 * 3 * 6 + 3 + 2),
        # 4 cards, 6 rates.
        "limbo2022-cards": 3 * 4 * 6,
        # l2fwd: 3 platforms, 3 kernels, optimised or not, 12 rates; four others at one rate.
        "containers2024": 3 * (3 * 3 * 2 * 12 + 4 * 3 * 2),
        "microsecond2017": 5 * 4,
    }
    assert len(found[None]) == expected[path.stem]


def test_fields_with_names_are_not_offered_for_lists_of_values(tmp_path: Path) -> None:
    with raises(UsageError, "not-a-field") as refused:
        cells(tmp_path, "name: t\nfixed: {dut: l2fwd}\nvary: {foo: [1]}\n")
    offered = str(refused.value).partition("expected one of ")[2].split(", ")
    assert "dut_options.NAME" in offered and "co_runner_cpus" in offered
    assert "co_runners" not in offered
