"""Exports of lasting settings can be read by the tools that keep them."""

from __future__ import annotations

import configparser
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from documentation import DOCS
from errors import code_of, raises
from trees import CPUS, LIMBO, MACHINES, tree
from wording import assert_wording

from tailscope.exceptions import UsageError
from tailscope.host.export import FORMATS, export
from tailscope.host.knobs.catalogue import KNOBS
from tailscope.host.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def exported(root: Path, name: str, machine: str = "stock-intel") -> str:
    files, cpus = MACHINES[machine]
    return export(Machine(tree(root, files())), cpus, name)


def test_a_command_line_has_the_tables_of_the_papers(tmp_path: Path) -> None:
    words = exported(tmp_path, "cmdline").split()
    expected = LIMBO.format("2-3").replace("irqaffinity=0", "irqaffinity=0-1,4-7").split()[1:]
    assert set(expected) <= set(words)
    assert len(words) == len(set(words))
    assert not {"rcu_nocbs_poll", "nosoftlookup"} & set(words)


def test_intels_parameters_are_not_for_others(tmp_path: Path) -> None:
    assert "intel" not in exported(tmp_path, "cmdline", "stock-amd")


def test_siblings_that_are_to_be_kept_forbid_nosmt(tmp_path: Path) -> None:
    machine = Machine(tree(tmp_path, MACHINES["stock-intel"][0]()))
    assert "nosmt" in export(machine, (2, 3), "cmdline").split()
    assert "nosmt" not in export(machine, (2, 6), "cmdline").split()


def test_grub_takes_it(tmp_path: Path) -> None:
    (setting,) = shlex.split(exported(tmp_path / "a", "grub"), comments=True)
    name, _, value = setting.partition("=")
    assert name == "GRUB_CMDLINE_LINUX_DEFAULT"
    assert value == f"${name} {exported(tmp_path / 'b', 'cmdline').strip()}"


def test_tuned_takes_it(tmp_path: Path) -> None:
    profile = configparser.RawConfigParser(delimiters="=", comment_prefixes="#")
    profile.optionxform = str  # type: ignore[assignment, method-assign]
    profile.read_string(exported(tmp_path, "tuned"))
    assert profile.sections() == ["main", "bootloader", "sysctl", "sysfs", "cpu"]
    assert profile["bootloader"]["cmdline_tailscope"].startswith("+isolcpus=2-3 ")
    assert profile["sysctl"]["vm.stat_interval"] == "3600"
    assert profile["sysfs"]["/sys/devices/virtual/workqueue/cpumask"] == "f3"
    assert profile["cpu"]["governor"] == "performance"
    assert profile["cpu"]["devices"] == "cpu2,cpu3"
    assert not [path for path in profile["sysfs"] if path.endswith("scaling_governor")]


def test_ansible_takes_it(tmp_path: Path) -> None:
    (play,) = yaml.safe_load(exported(tmp_path, "ansible"))
    files = {
        task["ansible.builtin.copy"]["dest"]: task["ansible.builtin.copy"]["content"]
        for task in play["tasks"]
    }
    assert sorted(files) == [
        "/etc/default/grub.d/tailscope.cfg",
        "/etc/sysctl.d/90-tailscope.conf",
        "/etc/tmpfiles.d/tailscope.conf",
    ]
    assert "vm.stat_interval = 3600\n" in files["/etc/sysctl.d/90-tailscope.conf"]
    governor = f"w {CPUS}/cpu2/cpufreq/scaling_governor - - - - performance\n"
    assert governor in files["/etc/tmpfiles.d/tailscope.conf"]
    assert {task["notify"] for task in play["tasks"]} == {each["name"] for each in play["handlers"]}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_can_be_exported(name: str, machine: str, tmp_path: Path) -> None:
    text = exported(tmp_path, name, machine)
    assert text.endswith("\n") and "None" not in text


def test_what_is_to_be_done_by_hand_is_said(tmp_path: Path) -> None:
    text = exported(tmp_path, "grub")
    assert_wording("host/export-by-hand", "\n".join(re.findall("^# by hand: .*", text, re.M)))


def test_formats_that_there_are_not(tmp_path: Path, tailscope: Callable[..., Any]) -> None:
    with raises(UsageError, "export-format") as error:
        exported(tmp_path, "puppet")
    assert all(name in str(error.value) for name in ("'puppet'", *FORMATS))
    done = tailscope("host", "export", "--cpus", "0", "--format", "puppet")
    assert done.returncode == 1 and code_of(done) == "export-format"
    done = tailscope("host", "export", "--cpus", "0", "--format", "ansible")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)[0]["name"].endswith("CPUs 0")


def test_every_knob_is_documented() -> None:
    page = (DOCS / "host.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| .*; (\w+)(.*) \| (.*) \|$", page, re.MULTILINE)
    assert [(name, kind, bool(asked), source) for name, kind, asked, source in rows] == [
        (knob.name, knob.kind, bool(knob.asked), knob.source) for knob in KNOBS
    ]
