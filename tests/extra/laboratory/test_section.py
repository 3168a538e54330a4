"""The section `hosts` of an experiment, and the errors in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from errors import raises

from tailscope.exceptions import UsageError
from tailscope.experiment.campaign.matrix import cells_of
from tailscope.experiment.campaign.spec import load_experiment, schema

if TYPE_CHECKING:
    from tailscope.experiment.campaign.cell import Cell

SCHEMA = Path(__file__).parents[3] / "experiments" / "schema.json"


def cells(path: Path, text: str) -> list[Cell]:
    file = path / "x.yaml"
    file.write_text(text)
    return cells_of(*load_experiment(file))


def test_the_section_is_in_the_schema_that_is_kept() -> None:
    committed = json.loads(SCHEMA.read_text())
    assert committed == schema(), "tailscope schema > experiments/schema.json"
    assert "hosts" in committed["properties"]


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("hosts:\n  loadgen: {cards: [a, b]}\n", "missing-field", "hosts.dut: "),
        (
            "hosts:\n  loadgen: {cards: [a]}\n",
            "field-value",
            "x.yaml:4: hosts.loadgen.cards: got ['a']",
        ),
        (
            "hosts:\n  loadgn: {cards: [a, b]}\n",
            "unknown-field",
            "did you mean loadgen?",
        ),
        (
            "hosts:\n  loadgen: {cards: [a, b], port: 0}\n",
            "field-value",
            "x.yaml:4: hosts.loadgen.port: got 0",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, text: str, code: str, expected: str
) -> None:
    with raises(UsageError, code) as error:
        cells(tmp_path, f"name: t\nfixed: {{dut: l2fwd}}\n{text}")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    "field", ["dut: loop", "direction: both", "replay: x.pcap", "stages: auto"]
)
def test_what_hosts_cannot_do_is_said_beforehand(tmp_path: Path, field: str) -> None:
    fixed = ", ".join({"dut": "dut: l2fwd", **{field.split(":")[0]: field}}.values())
    hosts = "\n".join(f"  {role}: {{cards: [a, b]}}" for role in ("loadgen", "dut", "timestamper"))
    with raises(UsageError, "single-machine") as error:
        cells(tmp_path, f"name: t\nfixed: {{{fixed}}}\nhosts:\n{hosts}\n")
    what = field.replace(": x.pcap", "").replace(": auto", "")
    assert f"hosts: {what} " in str(error.value)


LABORATORY = """\
name: t
fixed: {{{fixed}}}
hosts:
  loadgen: {{cards: [a, b]{loadgen}}}
  dut: {{cards: [a, b]{dut}}}
  timestamper: {{cards: [a, b]}}
"""
TWO_CPUS = "dut: l3fwd, dut_options: {config: '(0,0,0),(1,0,1)'}"


def laboratory(fixed: str = "dut: l2fwd", *, loadgen: str = "", dut: str = "") -> str:
    more = {"loadgen": loadgen, "dut": dut}
    return LABORATORY.format(
        fixed=fixed, **{role: text and f", {text}" for role, text in more.items()}
    )


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (
            laboratory(TWO_CPUS, dut="cpus: 3"),
            "too-few-cpus",
            "x.yaml:5: hosts.dut.cpus: got 3, expected 2 CPUs: l3fwd ",
        ),
        (laboratory(TWO_CPUS, dut="cpus: '3,3'"), "too-few-cpus", "got '3,3', expected 2"),
        (
            laboratory("dut: suricata", dut="cpus: 3"),
            "too-few-cpus",
            "got 3, expected 2 CPUs: suricata",
        ),
        (
            laboratory("dut: suricata, dut_options: {ports: 1}"),
            "single-port",
            "x.yaml:2: fixed.dut_options: ",
        ),
        (
            laboratory(dut="cpus: two"),
            "cpu-list",
            "x.yaml:5: hosts.dut.cpus: got 'two', ",
        ),
        (
            laboratory(loadgen="cpus: generator=1"),
            "cpu-list",
            "x.yaml:4: hosts.loadgen.cpus: got 'generator=1', ",
        ),
        (
            laboratory(loadgen="cpus: 1,0"),
            "unknown-field",
            "hosts.loadgen.0: got 0, ",
        ),
        (
            laboratory("dut: l2fwd, cpus: '2,3'"),
            "cpus-without-roles",
            "x.yaml:2: fixed.cpus: cpus: got '2,3', ",
        ),
        (
            laboratory("dut: l2fwd, platform: vm"),
            "links-for-a-guest",
            "x.yaml:5: hosts.dut.cards: got links (a and b), ",
        ),
        (
            laboratory("dut: l2fwd, platform: vm", dut="vfs: kernel"),
            "links-for-a-guest",
            "got links (vfs: kernel)",
        ),
        (
            laboratory("dut: l2fwd, platform: vm", dut="vfs: {bare: vfio-pci}"),
            "links-for-a-guest",
            "got links (a and b)",
        ),
    ],
)
def test_machines_that_cannot_do_a_run_are_refused_beforehand(
    tmp_path: Path, text: str, code: str, expected: str
) -> None:
    with raises(UsageError, code) as error:
        cells(tmp_path, text)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        laboratory(TWO_CPUS, dut="cpus: '3,1'", loadgen="cpus: 0"),
        laboratory(f"{TWO_CPUS}, cpus: 'dut=1,3'", dut="cpus: 2"),
        laboratory("dut: l2fwd, platform: vm", dut="vfs: vfio-pci"),
        laboratory("dut: l2fwd, platform: vm", dut="vfs: {vm: vfio-pci}"),
        laboratory("dut: l2fwd", dut="vfs: {vm: vfio-pci}"),
        laboratory("dut: suricata, dut_options: {mode: af-packet}", dut="cpus: 3"),
    ],
)
def test_machines_that_can_are_not(tmp_path: Path, text: str) -> None:
    assert len(cells(tmp_path, text)) == 1
