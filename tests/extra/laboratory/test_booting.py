"""Campaigns that reboot the device's machine, which is simulated by an sshd and files."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from laboratory import Laboratory, laboratory, run, start
from measurements import wait_until
from runs import AS_ROOT, needed, records, sound

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [AS_ROOT, pytest.mark.usefixtures("dataplane")]

BOOT_ID = "/proc/sys/kernel/random/boot_id"
TRAFFIC = {"rate": "2k", "duration": "300ms", "warm_up": "100ms", "dut": "bridge"}
BOOTS = {"usual": {}, "quiet": {"boot": "idle=poll quiet"}, "isolated": {"boot": "isolcpus={cpus}"}}
CONTROLLER = """\
#!{python} -I
import os, sys, time, uuid
here = {here!r}
with open(here + "/asked", "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if os.path.exists(here + "/broken"):
    sys.exit("the power strip is on fire")
# The machine is up for a moment longer, as one that shuts down.
if os.fork() == 0:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 2)
    time.sleep({down_s})
    words = sys.argv[2:] if not os.path.exists(here + "/stubborn") else []
    for name, text in (("cmdline", " ".join(["ro", "root=/dev/vda1", *words])),
                       ("boot_id", str(uuid.uuid4()))):
        with open(here + "/" + name, "w") as file:
            file.write(text + "\\n")
"""


class Machine:
    """A simulation of the device's machine, with its command line and its controller."""

    def __init__(self, path: Path, down_s: float = 1.0) -> None:
        self.path = path
        path.mkdir()
        self.command_line("ro root=/dev/vda1")
        (path / "boot_id").write_text("first\n")
        self.controller = path / "boot it"
        text = CONTROLLER.format(
            python=Path(sys.executable).resolve(), here=str(path), down_s=down_s
        )
        self.controller.write_text(text)
        self.controller.chmod(stat.S_IRWXU)

    def command_line(self, text: str) -> None:
        (self.path / "cmdline").write_text(f"{text}\n")

    @property
    def disguise(self) -> dict[str, dict[Path, str]]:
        covered = {self.path / "cmdline": "/proc/cmdline", self.path / "boot_id": BOOT_ID}
        return {"dut": covered}

    @property
    def asked(self) -> list[list[str]]:
        """Return the arguments of each call of the controller."""
        path = self.path / "asked"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Laboratory, Machine]]:
    needed("sshd", "ssh-keygen", "tcpdump")
    path = tmp_path_factory.mktemp("laboratory")
    machine = Machine(path / "machine")
    with laboratory(path, machine.disguise) as lab:
        yield lab, machine


@pytest.fixture
def lab(built: tuple[Laboratory, Machine]) -> Laboratory:
    return built[0]


@pytest.fixture
def machine(built: tuple[Laboratory, Machine]) -> Machine:
    """Return the machine in its state after power-on."""
    machine = built[1]
    machine.command_line("ro root=/dev/vda1")
    for name in ("asked", "broken", "stubborn"):
        (machine.path / name).unlink(missing_ok=True)
    return machine


def experiment(lab: Laboratory, machine: Machine, **content: Any) -> Path:
    boot = {"how": "command", "command": [str(machine.controller)], "wait": "30s"}
    boot |= content.pop("boot", {})
    dut = {**lab.hosts["dut"], "cpus": "0-1", "boot": boot}
    hosts = {**lab.hosts, "dut": dut}
    content = {"fixed": TRAFFIC, "vary": {"system": BOOTS}} | content
    return lab.experiment(hosts=hosts, **content)


def state_of(out: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((out / "campaign.json").read_text())
    return state


@pytest.mark.long
def test_cells_are_sorted_by_boots_and_a_killed_campaign_goes_on(
    lab: Laboratory, machine: Machine, tmp_path: Path
) -> None:
    """Six cells need three boots, and the campaign is killed during the second."""
    path, out = experiment(lab, machine, repeats=2, seed=3), tmp_path / "out"
    planned = run(lab, "run", path, "--dry-run", "--json", "-")
    plan = json.loads(planned.stdout)
    assert [len(boot["cells"]) for boot in plan["boots"]] == [2, 2, 2]
    assert machine.asked == [], "a plan reboots nothing"

    process = start(lab, "run", path, "--out", out)
    wait_until(lambda: bool(machine.asked), process)
    process.kill()
    process.communicate()
    before = state_of(out)
    assert [boot["lasted_s"] for boot in before["boots"]] == [None]
    finished = {cell["name"]: cell for cell in before["cells"] if cell["state"] == "done"}
    assert len(finished) == 2, "those of the boot that the machine had"

    done = run(lab, "run", path, "--out", out, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    after = state_of(out)
    assert after["complete"]
    cells = records(out)
    for cell in cells:
        if cell["name"] in finished:
            assert cell == finished[cell["name"]], "it was measured once"
        words = sound(out / cell["runs"][0])["hosts"]["dut"]["kernel_command_line"].split()
        wanted = {"usual": [], "quiet": ["idle=poll", "quiet"], "isolated": ["isolcpus=0-1"]}
        own = [word for word in words[2:] if not word.startswith("tailscope.boot=")]
        assert own == wanted[cell["values"]["system"]]
    # The machine completed the second boot by itself, so it is not rebooted.
    assert len(machine.asked) == len(after["boots"]) == 2
    assert "2 boots of" in done.stdout
    print(f"boots {len(after['boots'])}, cells measured {len(cells)}, none twice")


def test_a_machine_that_comes_back_otherwise_is_described(
    lab: Laboratory, machine: Machine, tmp_path: Path
) -> None:
    (machine.path / "stubborn").touch()
    fixed = {**TRAFFIC, "boot": "idle=poll"}
    path = experiment(lab, machine, fixed=fixed, vary={"size": [64, 128]})
    done = run(lab, "run", path, "--out", tmp_path / "out")
    assert done.returncode == 1
    for cell in records(tmp_path / "out"):
        assert cell["state"] == "waiting"
        assert cell["reason"].startswith("dut (dut): ")
        assert "parameters idle=poll" in cell["reason"]
        assert "ro root=/dev/vda1" in cell["reason"]
    assert len(machine.asked) == 1, "it is not tried again for the next cell"


def test_a_command_that_fails_says_why(lab: Laboratory, machine: Machine, tmp_path: Path) -> None:
    (machine.path / "broken").touch()
    path = experiment(lab, machine, fixed={**TRAFFIC, "boot": "idle=poll"}, vary={})
    done = run(lab, "run", path, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert all(text in done.stdout for text in ("boot it: ", "status 1: ", "the power strip"))


@pytest.mark.long
def test_a_machine_that_stays_away_is_switched_off_and_on(
    lab: Laboratory, machine: Machine, tmp_path: Path
) -> None:
    """The command does nothing, so that only the power cycle boots the machine."""
    cycle = [str(machine.controller), "cycle", "idle=poll"]
    boot = {"command": ["/bin/true"], "wait": "5s", "power_cycle": cycle}
    path = experiment(lab, machine, boot=boot, fixed={**TRAFFIC, "boot": "idle=poll"}, vary={})
    done = run(lab, "run", path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.asked == [["cycle", "idle=poll"]]
    assert "not back: " in done.stderr


def test_what_does_not_come_back_ends_within_the_limit(
    lab: Laboratory, machine: Machine, tmp_path: Path
) -> None:
    boot = {"command": ["/bin/true"], "wait": "2s"}
    path = experiment(lab, machine, boot=boot, fixed={**TRAFFIC, "boot": "idle=poll"}, vary={})
    done = run(lab, "run", path, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "dut (dut): " in done.stdout and "within 2.0 s" in done.stdout


def test_an_interrupt_says_that_the_machine_reboots(
    lab: Laboratory, machine: Machine, tmp_path: Path
) -> None:
    boot = {"command": ["/bin/true"], "wait": "100s"}
    path = experiment(lab, machine, boot=boot, fixed={**TRAFFIC, "boot": "idle=poll"}, vary={})
    out = tmp_path / "out"
    process = start(lab, "run", path, "--out", out)

    def is_rebooting() -> bool:
        return (out / "campaign.json").exists() and bool(state_of(out)["boots"])

    wait_until(is_rebooting, process)
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted: dut (dut)" in err and "default kernel idle=poll" in err
    assert "Traceback" not in err
    [cell] = records(out)
    assert (cell["state"], cell["reason"]) == ("pending", "interrupted")


ENTERED = """
import sys
from tailscope.exceptions import HostError
from tailscope.extra.laboratory.remote import SshMachine
machine = SshMachine("dut", "dut", None)
folder = sys.argv[1]
path = f"{folder}/it's $(here)"
word = "a'b; $(touch broken) | *"
assert machine.run(["printf", "%s", word], ["echo"]) == [word, "\\n"]
assert machine.read(path) is None and machine.names(f"{folder}/none") == []
machine.write(path, "first")
machine.write(path, "second")
assert machine.read(path) == "second" and machine.names(folder) == ["it's $(here)"]
machine.remove(path)
machine.remove(path)
assert machine.names(folder) == []
assert machine.contents("/proc/sys/kernel/ostype", "/proc/none") == ["Linux\\n", ""]
machine.run_last(["sh", "-c", "kill -9 $PPID"])
for call in (machine.run, machine.run_last):
    try:
        call(["sh", "-c", "echo not tonight >&2; exit 3"])
    except HostError as error:
        assert error.code == "command-failed", error
        assert "dut (dut): sh -c" in str(error) and "not tonight" in str(error), error
    else:
        raise AssertionError("it failed, and nobody heard of it")
"""


@pytest.mark.usefixtures("machine")
def test_words_and_files_arrive_as_they_are(lab: Laboratory, tmp_path: Path) -> None:
    in_hub = ["ip", "netns", "exec", lab.names["hub"], sys.executable, "-c", ENTERED]
    done = subprocess.run(
        [*in_hub, str(tmp_path)], capture_output=True, text=True, env=lab.environment, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_permission_nothing_is_rebooted(
    lab: Laboratory, machine: Machine, tmp_path: Path
) -> None:
    path = lab.experiment(fixed={**TRAFFIC, "boot": "idle=poll"})
    done = run(lab, "run", path, "--out", tmp_path / "out")
    assert done.returncode == 1 and machine.asked == []
    [cell] = records(tmp_path / "out")
    assert cell["state"] == "waiting"
