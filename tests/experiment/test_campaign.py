"""Whole experiments: carried out, interrupted, killed, resumed."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import COMMAND
from errors import code_of, unwrapped
from measurements import SMALL, polling, wait_until
from runs import left_behind, needed, records, sound
from wording import assert_wording

from tailscope.exceptions import TailscopeError
from tailscope.experiment.campaign.campaign import Campaign
from tailscope.experiment.campaign.matrix import cells_of
from tailscope.experiment.campaign.spec import load_experiment
from tailscope.host.kernel import running_kernel
from tailscope.plan.fields import KERNELS
from tailscope.store.owner import LOCK

if TYPE_CHECKING:
    from measurements import Place

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def complete(out: Path, *, of_them: int | None = None) -> None:
    """Every cell, or so many, is done once, with sound runs, and nothing else is there."""
    cells = records(out)
    if of_them is not None:
        cells = [cell for cell in cells if cell["state"] != "pending"]
        assert len(cells) == of_them
    assert {cell["state"] for cell in cells} == {"done"}, [cell["reason"] for cell in cells]
    runs = [run for cell in cells for run in cell["runs"]]
    assert len(runs) == len(set(runs)) == len(cells)
    for run in runs:
        sound(out / run)
    assert {path.name for path in out.iterdir()} == {"campaign.json", *runs}
    assert json.loads((out / "campaign.json").read_text())["complete"] == (of_them is None)


def counted(said: str) -> dict[str, int]:
    """How many cells there are, and how many in each state."""
    (counts,) = (line for line in said.splitlines() if re.match(r"\d+ cells: ", line))
    return {what: int(count) for count, what in re.findall(r"(\d+) (\w+)", counts)}


@pytest.mark.usefixtures("dataplane")
def test_an_experiment_is_carried_out(tailscope: Any, place: Place) -> None:
    out = place.path / "out"
    done = tailscope("run", place.experiment(SMALL), "--out", out, env=place.environment)
    assert done.returncode == 0, done.stderr
    complete(out)
    cells = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("[")]
    assert cells == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert counted(done.stdout) == {"cells": 4, "done": 4}
    again = tailscope("run", place.experiment(SMALL), "--out", out, env=place.environment)
    assert again.returncode == 1 and code_of(again) == "run-exists"
    resumed = tailscope(
        "run", place.experiment(SMALL), "--out", out, "--resume", env=place.environment
    )
    assert resumed.returncode == 0 and "[" not in resumed.stdout.splitlines()[0]
    other = tailscope(
        *("run", place.experiment(SMALL.replace("5k", "6k")), "--out", out, "--resume"),
        env=place.environment,
    )
    assert other.returncode == 1 and code_of(other) == "other-experiment"
    assert ": fixed " in other.stderr


def test_a_dry_run_says_what_is_missing(tailscope: Any, place: Place) -> None:
    text = SMALL.replace("[l2fwd, l3fwd]", "[l2fwd, snort]")
    environment = {**place.environment, "PATH": "/usr/bin:/bin"}
    done = tailscope("run", place.experiment(text), "--dry-run", env=environment, cwd=place.path)
    assert done.returncode == 0, done.stderr
    lines = unwrapped(done.stdout).splitlines()
    [takes] = [line for line in lines if line.startswith("takes ")]
    assert re.search(r"about \d", takes)
    stable = ("cells ", "missing for ")
    assert_wording("campaign/dry-run", "\n".join(line for line in lines if line.startswith(stable)))
    told = tailscope("run", place.experiment(text), "--dry-run", "--json", "-", env=environment)
    cells = json.loads(told.stdout)["cells"]
    assert [bool(cell["missing"]) for cell in cells] == [
        cell["values"]["dut"] == "snort" for cell in cells
    ]
    assert not (place.path / "runs").exists()


@pytest.mark.usefixtures("dataplane")
def test_a_failing_cell_is_marked_and_the_rest_goes_on(tailscope: Any, place: Place) -> None:
    out = place.path / "out"
    path = place.experiment(SMALL.replace("[l2fwd, l3fwd]", "[l2fwd, snort]"))
    done = tailscope("run", path, "--out", out, env={**place.environment, "PATH": "/usr/bin:/bin"})
    assert done.returncode == 1
    states = {cell["values"]["dut"]: cell for cell in records(out)}
    assert states["l2fwd"]["state"] == "done"
    assert states["snort"]["state"] == "failed" and "snort" in states["snort"]["reason"]
    assert counted(done.stdout) == {"cells": 4, "done": 2, "failed": 2}
    assert done.stdout.count("no program snort") == 1 and "failed: as dut=snort" in done.stdout
    assert "--resume" in done.stdout


@pytest.mark.usefixtures("dataplane")
def test_only_some_cells(tailscope: Any, place: Place) -> None:
    out = place.path / "out"
    only = ("--only", "dut=l3fwd")
    path = place.experiment(SMALL.replace("repeats: 2", "repeats: 1"))
    done = tailscope("run", path, *only, "--out", out, env=place.environment)
    assert done.returncode == 0, done.stderr
    assert {cell["state"] for cell in records(out) if cell["values"]["dut"] == "l3fwd"} == {"done"}
    assert {cell["state"] for cell in records(out) if cell["values"]["dut"] == "l2fwd"} == {
        "pending"
    }
    rest = tailscope("run", path, "--out", out, "--resume", env=place.environment)
    assert rest.returncode == 0
    complete(out)


def test_cells_of_another_kernel_wait_for_it(tailscope: Any, place: Place, dataplane: Path) -> None:
    running = running_kernel().flavour
    other = next(name for name in KERNELS if name != running)
    text = f"name: k\nfixed: {{dut: l2fwd, duration: 200ms, warm_up: 100ms, kernel: {other}}}\n"
    out = place.path / "out"
    stopped = tailscope("run", place.experiment(text), "--out", out, env=place.environment)
    assert stopped.returncode == 1
    assert code_of(stopped) == "kernel-flavour"
    assert f"expected {other}, got {running}" in stopped.stderr
    assert "hint: boot" in stopped.stderr
    shutil.rmtree(out)
    both = text.replace(f", kernel: {other}", "") + f"vary: {{kernel: [{running}, {other}]}}\n"
    done = tailscope("run", place.experiment(both), "--out", out, env=place.environment)
    assert done.returncode == 1
    states = {cell["values"]["kernel"]: cell["state"] for cell in records(out)}
    assert states == {running: "done", other: "waiting"}
    assert "then --resume" in done.stdout


def started(place: Place, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=place.environment,
    )


def wait_for_cell(process: subprocess.Popen[str], out: Path, number: int) -> None:
    """Wait until so many cells are done and another one runs."""

    def is_so() -> bool:
        if not (out / "campaign.json").exists():
            return False
        states = [cell["state"] for cell in records(out)]
        return states.count("done") >= number and "running" in states

    wait_until(is_so, process)


@pytest.mark.usefixtures("dataplane")
def test_ctrl_c_ends_an_experiment_that_can_be_resumed(tailscope: Any, place: Place) -> None:
    out = place.path / "out"
    path = place.experiment(SMALL.replace("200ms", "1s").replace("repeats: 2", "repeats: 1"))
    process = started(place, "run", path, "--out", out)
    wait_for_cell(process, out, 1)
    wait_until(lambda: polling(process) == 2, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert {cell["state"] for cell in records(out)} <= {"done", "partial", "pending"}
    done = tailscope("run", path, "--out", out, "--resume", env=place.environment)
    assert done.returncode == 0, done.stderr
    complete(out)


@pytest.mark.usefixtures("dataplane")
def test_two_processes_do_not_share_a_campaign(tailscope: Any, place: Place) -> None:
    out = place.path / "out"
    path = place.experiment(SMALL.replace("200ms", "2s"))
    process = started(place, "run", path, "--out", out)
    wait_for_cell(process, out, 0)
    second = tailscope("run", path, "--out", out, "--resume", env=place.environment)
    assert second.returncode == 1 and code_of(second) == "run-in-use"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_a_lock_of_a_campaign_that_leads_elsewhere_is_refused(tailscope: Any, place: Place) -> None:
    out = place.path / "out"
    out.mkdir()
    (out / "campaign.json").touch()
    (out / LOCK).symlink_to(place.path / "elsewhere")
    done = tailscope(
        "run", place.experiment(SMALL), "--out", out, "--resume", env=place.environment
    )
    assert done.returncode == 1
    assert str(out / LOCK) in done.stderr
    assert not (place.path / "elsewhere").exists()


@pytest.mark.long
@pytest.mark.usefixtures("dataplane")
def test_a_part_of_the_quickstart_finishes(tailscope: Any, place: Place) -> None:
    """As it is written, but for a shorter time."""
    out = place.path / "out"
    text = (EXPERIMENTS / "quickstart.yaml").read_text()
    short = text.replace("duration: 3s", "duration: 200ms").replace("500ms", "100ms")
    assert short != text
    only = ("--only", "rate=100k", "--only", "dut=l3fwd")
    arguments = ("run", place.experiment(short), *only, "--out", out)
    done = tailscope(*arguments, env=place.environment)
    assert done.returncode == 0, done.stderr
    assert [cell["state"] for cell in records(out)].count("done") == 3


def test_a_cell_lasts_as_long_as_it_does_though_the_clock_is_set(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns

    def fail(*_: object) -> list[Any]:
        monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
        raise TailscopeError("for the test")

    experiment, profile = load_experiment(place.experiment(SMALL), None)
    campaign = Campaign(place.path / "out", experiment, cells_of(experiment, profile))
    with campaign.opened(resume=False):
        record = campaign.run_cell(campaign.cells[0], fail)
    assert record.lasted_s is not None and 0 <= record.lasted_s < 60


def test_what_was_recorded_of_a_killed_cell_goes_aside(place: Place) -> None:
    def fail(*_: object) -> list[Any]:
        raise TailscopeError("for the test")

    experiment, profile = load_experiment(place.experiment(SMALL), None)
    out = place.path / "out"
    campaign = Campaign(out, experiment, cells_of(experiment, profile))
    recorded, cut_short = (out / cell.name for cell in campaign.cells[:2])
    with campaign.opened(resume=False):
        for folder, name in ((recorded, "recording/recorded.json"), (cut_short, "run.json")):
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text("{}")
        for cell in campaign.cells[:2]:
            campaign.run_cell(cell, fail)
    [aside] = [path for path in out.iterdir() if path.is_dir()]
    assert aside.name.startswith(f"{recorded.name}-kept-")
    assert (aside / "recording/recorded.json").read_text() == "{}"


def killed_and_resumed(
    tailscope: Any, place: Place, arguments: list[Any], after: tuple[int, ...]
) -> str:
    """SIGKILL during the cell that follows so many; then to the end, no cell twice."""
    out = place.path / "out"
    for at, number in enumerate(after):
        process = started(place, *arguments, "--out", out, *(["--resume"] if at else []))
        wait_for_cell(process, out, number)
        wait_until(lambda: bool(place.processes()), process)
        process.kill()
        process.communicate(timeout=60)
    done_before = {cell["name"] for cell in records(out) if cell["state"] == "done"}
    stamps = {name: (out / name / "run.json").stat().st_mtime_ns for name in done_before}
    resumed = ("--out", out, "--resume")
    done = tailscope(*arguments, *resumed, env=place.environment, timeout=1200)
    assert done.returncode == 0, done.stderr + done.stdout
    assert stamps == {name: (out / name / "run.json").stat().st_mtime_ns for name in done_before}
    return str(done.stdout)


@pytest.mark.usefixtures("dataplane", "alone")
def test_a_killed_campaign_is_resumed_to_its_end(tailscope: Any, place: Place) -> None:
    path = place.experiment(SMALL.replace("200ms", "1s").replace("repeats: 2", "repeats: 1"))
    killed_and_resumed(tailscope, place, ["run", path], (0, 1))
    complete(place.path / "out")
    assert not left_behind()


@pytest.mark.long
@pytest.mark.usefixtures("dataplane", "alone")
def test_a_killed_campaign_with_guests_is_resumed_to_its_end(tailscope: Any, place: Place) -> None:
    needed("suricata", "qemu-system-x86_64")
    out = place.path / "out"
    low = ("--only", "rate=10k", "--only", "traffic=CBR")
    arguments = ["run", EXPERIMENTS / "noms2020.yaml", "--profile", "reduced", *low]
    said = killed_and_resumed(tailscope, place, arguments, (1, 4))
    complete(out, of_them=6)
    of_all = [cell for cell in records(out) if cell["state"] == "done"]
    emulated = [cell for cell in of_all if not cell["figures"][0]["representative"]]
    # Lines are broken where they are too wide; what goes on is indented.
    lines = said.replace("\n    ", " ").splitlines()
    assert all("EMULATED" in line for line in lines if "mode=VM" in line) or not emulated
    assert not left_behind()


@pytest.mark.parametrize("by_option", [True, False])
def test_cpus_that_are_not_there_are_named_alike_by_every_way_to_run(
    tailscope: Any, place: Place, by_option: bool
) -> None:
    option = ("--cpus", "4095") if by_option else ()
    text = SMALL if by_option else SMALL.replace("{duration", "{cpus: 4095, duration")
    path, out = place.experiment(text), place.path / "out"
    how = {"env": place.environment, "cwd": place.path}
    planned = tailscope("run", path, *option, "--dry-run", **how)
    assert planned.returncode == 0
    done = tailscope("run", path, *option, "--out", out, **how)
    assert done.returncode == 1
    reasons = {cell["reason"] for cell in records(out)}
    assert len(reasons) == 1
    reason = reasons.pop()
    assert reason.startswith("--cpus: ") and " 4095, " in reason
    assert f" 4 of 4 cells: {reason}" in planned.stdout
    for more in ([], ["--dry-run"]):
        single = tailscope("run", "--dut", "l2fwd", "--cpus", "4095", *more, **how)
        assert single.returncode == 1 and single.stderr.startswith(f"error: {reason} [")


def test_a_dry_run_refuses_to_overwrite_as_the_run_does(tailscope: Any, place: Place) -> None:
    out = place.path / "out"
    out.mkdir()
    (out / "mine").write_text("")
    for words in (["--dut", "l2fwd"], [place.experiment(SMALL)]):
        said = {
            (done.returncode, done.stderr)
            for more in ([], ["--dry-run"])
            for done in [tailscope("run", *words, "--out", out, *more, env=place.environment)]
        }
        assert len(said) == 1
        status, error = said.pop()
        assert status == 1 and error.partition("\n")[0].endswith(" [run-exists]")
    none = ("--resume", "--out", place.path / "none", "--dry-run")
    done = tailscope("run", place.experiment(SMALL), *none, env=place.environment)
    assert done.returncode == 1 and code_of(done) == "nothing-to-resume"


def test_co_runners_where_no_cpu_is_are_missing(tailscope: Any, place: Place) -> None:
    options = ("--dut", "l2fwd", "--co-runner", "cpu=1", "--co-runner-cpus", "4095")
    done = tailscope("run", *options, "--dry-run", env=place.environment)
    assert done.returncode == 0
    assert re.search(r"--co-runner-cpus: .* 4095\b", done.stdout)
