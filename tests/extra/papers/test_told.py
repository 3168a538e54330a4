"""What dry runs of the papers' experiments tell, and whether every cell and figure is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailscope.experiment.campaign.matrix import cells_of
from tailscope.experiment.campaign.spec import load_experiment
from tailscope.extra.papers.papers import PAPERS
from tailscope.extra.papers.told import told

if TYPE_CHECKING:
    from conftest import Tailscope

    from tailscope.experiment.campaign.cell import Cell

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
FILES = {
    "noms2020": 0,
    "limbo2022": 45,
    "limbo2022-cards": 0,
    "energy": 0,
    "containers2024": 0,
    "microsecond2017": 0,
}
"""Experiments, and how many of their cells no figure shows: l2fwd at rates that the paper omits."""
OF_PROFILES = ("Table IV", "Section IX", "Recommendation III")
"""Parts that only cells of a profile stand for."""


def cells(name: str) -> list[Cell]:
    return cells_of(*load_experiment(EXPERIMENTS / f"{name}.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_every_part_has_cells_and_every_cell_a_part(name: str) -> None:
    made = cells(name)
    content, lines = told(name, made, {})
    shown = content["shows"]
    assert isinstance(shown, list)
    assert all(
        each["cells"] == each["ready"] > 0 for each in shown if each["part"] not in OF_PROFILES
    )
    assert dict(lines).get("beside papers", "0 cells") == f"{FILES[name]} cells"


def test_cells_that_wait_are_counted_with_their_reasons() -> None:
    made = cells("limbo2022")
    untuned = [cell for cell in made if cell.values["mode"] == "untuned"]
    missing = {cell.name: ["no suricata", "busy"] for cell in untuned[:4]}
    content, lines = told("limbo2022", made, missing)
    shown = content["shows"]
    assert isinstance(shown, list)
    [first] = [each for each in shown if each["part"] == "Figure 1"]
    assert first["waiting"] == {"no suricata": 4, "busy": 4}
    assert (first["cells"], first["ready"]) == (6, 2)
    assert lines[0][1].startswith("Figure 1: 6 cells, 2 run here, 4 wait")


def test_an_experiment_of_nobody_shows_nothing(tailscope: Tailscope) -> None:
    assert told("quickstart", cells("quickstart"), {}) == ({}, [])
    done = tailscope("run", EXPERIMENTS / "quickstart.yaml", "--dry-run", "--json", "-")
    assert "shows" not in json.loads(done.stdout)


def test_a_dry_run_tells_what_it_stands_for(tailscope: Tailscope) -> None:
    given = ("run", EXPERIMENTS / "limbo2022-cards.yaml", "--dry-run")
    said = tailscope(*given)
    assert said.returncode == 0, said.stderr
    assert re.search(r"^limbo2022 +Figure 10: 72 cells, 0 run here, 72 wait", said.stdout, re.M)
    [shown] = json.loads(tailscope(*given, "--json", "-").stdout)["shows"]
    assert shown["paper"] == "limbo2022" and set(shown["waiting"].values()) == {72}


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_commands_name_what_there_is(paper: object) -> None:
    [found] = [each for each in PAPERS if each is paper]
    for part in found.parts:
        assert part.command or part.needs, part.name
        for file in re.findall(r"experiments/\S+\.yaml", part.command):
            experiment, document = load_experiment(EXPERIMENTS.parent / file)
            assert experiment.name == part.experiment
            made = cells_of(experiment, document)
            chosen = {
                variable: values.split(",")
                for variable, values in re.findall(r"--only ([\w]+)=(\S+)", part.command)
            }
            for variable, values in chosen.items():
                assert {*values} <= {cell.values[variable] for cell in made}
            if "--profile" not in part.command:
                assert [cell.name for cell in made if part.has(cell.values)] == [
                    cell.name
                    for cell in made
                    if all(cell.values[variable] in values for variable, values in chosen.items())
                ], part.name
