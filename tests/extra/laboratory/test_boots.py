"""The boots of an experiment, and their order."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from errors import code_of
from hypothesis import given
from hypothesis import strategies as st
from wording import assert_wording

from tailscope.exceptions import UsageError
from tailscope.experiment.campaign.cell import Cell
from tailscope.experiment.plan import RunPlan
from tailscope.extra.laboratory.boot.boots import grouped, runs_of
from tailscope.host.boot_line import Booted, boot_line

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = {"vanilla": "6.1.0-13-amd64", "rt": "6.1.0-13-rt-amd64"}
CARDS = {"cards": ["a", "b"]}
PARAMETER = st.from_regex(r"[a-z][a-z_.]{0,8}(=[a-z0-9,:/-]{1,8})?", fullmatch=True)
LINES = [
    boot_line(kernel, release, parameters)
    for kernel, release in ((None, None), ("vanilla", "6.1"), ("rt", "6.1-rt"))
    for parameters in ("", "nosmt", "isolcpus=2,3 nosmt")
]


def experiment(boot: dict[str, Any] | None = None, **content: Any) -> dict[str, Any]:
    boot = {"how": "grub", "kernels": KERNELS} | (boot or {})
    dut = {"ssh": "lab2", "cpus": "2,3", "boot": boot, **CARDS} | content.pop("dut", {})
    hosts = {"loadgen": {**CARDS}, "timestamper": {**CARDS}, "dut": dut}
    fixed = {"dut": "l2fwd", "duration": "1s"}
    vary = {"kernel": ["vanilla", "rt", "nohz"], "rate": [1000, 2000]}
    return {"name": "lab", "hosts": hosts, "fixed": fixed, "vary": vary} | content


@given(
    st.lists(st.sampled_from(LINES), min_size=1, max_size=30),
    st.none() | st.sampled_from(LINES),
)
def test_each_boot_is_made_once_and_the_order_stays_else(wanted: list[Any], first: Any) -> None:
    plan = RunPlan(dut="l2fwd")
    cells = [Cell(str(number), {}, 1, plan) for number in range(len(wanted))]
    lines = dict(zip([cell.name for cell in cells], wanted, strict=True))
    ordered = grouped(cells, lines, first)
    boots = runs_of(ordered, lines)
    assert len(boots) == len(set(wanted))
    assert sorted(ordered, key=cells.index) == cells
    for line, run in boots:
        assert run == [cell for cell in cells if lines[cell.name] == line]
    if first in wanted:
        assert boots[0][0] == first
    rest = [line for line, _ in boots if line != first]
    assert rest == [line for line in dict.fromkeys(wanted) if line != first]


@given(st.lists(PARAMETER, max_size=5), st.lists(PARAMETER, max_size=5))
def test_a_boot_is_right_for_its_own_line_alone(ours: list[str], others: list[str]) -> None:
    """A boot for one line runs no cell of another line, whatever they share."""
    booted, wanted = (boot_line("vanilla", "6.1", " ".join(words)) for words in (ours, others))
    line = " ".join(["BOOT_IMAGE=/vmlinuz", "ro", *booted.words])
    running = Booted("id", "6.1", "Linux version 6.1", line, "", "")
    assert running.lacks(booted) == []
    assert (running.lacks(wanted) == []) == (wanted == booted)
    assert running.base == ["ro"]
    assert running.lacks(boot_line(None, None, "")), "it is not its default boot"


def test_a_machine_that_was_booted_by_hand_is_right_too() -> None:
    running = Booted("id", "6.1", "Linux", "ro nosmt isolcpus=2,3 quiet", "", "")
    assert running.lacks(boot_line("vanilla", None, "isolcpus=2,3")) == []
    assert running.lacks(boot_line(None, None, "")) == []
    [lack] = running.lacks(boot_line("rt", None, ""))
    assert_wording("laboratory/another-kernel", lack)


@pytest.mark.parametrize(
    "word", ["a;b", "a=$(reboot)", "a='b", 'a="b', "a=`b`", "a=$x", "-e", "a=b\\", "a={x}", "a=b|c"]
)
def test_what_a_shell_or_a_boot_loader_would_read_is_refused(word: str) -> None:
    with pytest.raises(UsageError) as error:
        boot_line(None, "6.1", f"quiet {word}")
    assert repr(word) in str(error.value)


def planned(tailscope: Any, path: Path, content: dict[str, Any], *more: str) -> Any:
    file = path / "lab.yaml"
    file.write_text(yaml.safe_dump(content))
    return tailscope("run", file, "--dry-run", *more)


def test_a_plan_says_its_boots_in_order(tailscope: Any, tmp_path: Path) -> None:
    done = planned(tailscope, tmp_path, experiment(order="as-written", repeats=2))
    assert done.returncode == 0, done.stderr
    assert "boots           3 of" in done.stdout and "10.0 min each" in done.stdout
    boots = re.findall(r"\d\. .*: 4 cells$", done.stdout, re.M)
    assert_wording("laboratory/boots-in-order", "\n".join(boots))
    as_json = json.loads(planned(tailscope, tmp_path, experiment(repeats=2), "--json", "-").stdout)
    listed = [name for boot in as_json["boots"] for name in boot["cells"]]
    assert listed == [cell["name"] for cell in as_json["cells"]] and len(listed) == 12


def test_a_guest_runs_on_the_default_boot_of_its_host(tailscope: Any, tmp_path: Path) -> None:
    content = experiment(vary={"kernel": ["vanilla", "rt"]})
    content["fixed"]["platform"] = "vm"
    content["hosts"]["dut"]["cards"] = ["0000:01:00.0", "0000:01:00.1"]
    done = planned(tailscope, tmp_path, content)
    assert "boots           1 of" in done.stdout
    assert "1. the default" in done.stdout


def test_the_host_of_a_guest_boots_as_its_guest_does(tailscope: Any, tmp_path: Path) -> None:
    content = experiment(vary={"kernel": ["vanilla", "rt"]})
    content["fixed"] |= {"platform": "vm", "platform_options": {"host": "same"}}
    content["fixed"]["boot"] = "isolcpus={cpus} nosmt"
    content["hosts"]["dut"]["cards"] = ["0000:01:00.0", "0000:01:00.1"]
    found = json.loads(planned(tailscope, tmp_path, content, "--json", "-").stdout)
    cpus = content["hosts"]["dut"]["cpus"]
    assert {boot["kernel"] for boot in found["boots"]} == {"vanilla", "rt"}
    for boot in found["boots"]:
        assert boot["parameters"].split()[-2:] == [f"isolcpus={cpus}", "nosmt"]


def test_releases_of_one_kernel_are_an_axis(tailscope: Any, tmp_path: Path) -> None:
    releases = {"vanilla-4.19": "4.19.0-27-amd64", "vanilla-5.10": "5.10.0-10-amd64"}
    content = experiment({"kernels": releases}, vary={"kernel": [*releases, "nohz-5.10"]})
    found = json.loads(planned(tailscope, tmp_path, content, "--json", "-").stdout)
    boots = {boot["kernel"]: boot for boot in found["boots"]}
    expected = {**releases, "nohz-5.10": releases["vanilla-5.10"]}
    assert {name: boot["release"] for name, boot in boots.items()} == expected
    assert "nohz_full=2,3" in boots["nohz-5.10"]["parameters"]
    booted = Booted("id", "5.10.0-10-amd64", "Linux", "ro", "(null)", "")
    old, new = (boot_line(kernel, None, "") for kernel in releases)
    assert booted.lacks(new) == []
    assert booted.lacks(old) == ["expected vanilla-4.19, got vanilla (5.10.0-10-amd64)"]


@pytest.mark.parametrize(
    ("content", "code", "named"),
    [
        (experiment({"kernels": {"lilo": "6.1"}}), "field-value", ["hosts.dut.boot.kernels"]),
        (experiment(vary={"kernel": ["old-4.19"]}), "field-value", ["vary.kernel"]),
        (experiment(vary={"kernel": ["rt-6.12"]}), "boot-lacks-field", ["no rt-6.12 in it"]),
        (experiment(dut={"cpus": None}), "boot-lacks-field", ["hosts.dut.cpus: ", "{cpus}"]),
        (experiment(dut={"ssh": None}), "boot-without-ssh", ["hosts.dut.boot: ", "ssh"]),
        (experiment({"kernels": {"rt": "6"}}), "boot-lacks-field", ["hosts.dut.boot.kernels: no "]),
        (experiment({"how": "command"}), "field-value", ["hosts.dut.boot: ", "no command"]),
        (experiment({"command": ["x"]}), "field-value", ["hosts.dut.boot: ", "how: grub"]),
        (experiment({"how": "lilo"}), "field-value", ["hosts.dut.boot.how: got 'lilo'", "'grub'"]),
        (experiment({"wait": "soon"}), "field-value", ["hosts.dut.boot.wait: got 'soon'"]),
        (experiment({"wiat": "1s"}), "unknown-field", ["wiat", "mean wait?"]),
        (
            experiment({"kernels": {"rt": "../x"}}),
            "field-value",
            ["hosts.dut.boot.kernels.rt: ", "'../x'"],
        ),
    ],
)
def test_a_block_that_says_too_little_is_refused(
    tailscope: Any, tmp_path: Path, content: dict[str, Any], code: str, named: list[str]
) -> None:
    done = planned(tailscope, tmp_path, content)
    assert done.returncode == 1 and code_of(done) == code
    assert all(text in done.stderr for text in ["lab.yaml:", *named]), done.stderr
