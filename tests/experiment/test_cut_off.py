"""Measurements that end before their time: what was recorded till then becomes a partial run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import advice_of, code_of, unwrapped
from measurements import children, has_measured, quick, started, wait_until
from runs import sound

from tailscope.experiment.run.cut_off import recorded_packets
from tailscope.store.reader import read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measurements import Place

pytestmark = pytest.mark.usefixtures("dataplane")

LONG = ("--duration", "60s")
SMALL_MIB = 24


def run(out: Path, *options: str) -> tuple[str, ...]:
    long = () if "--duration" in options else LONG
    return ("run", "--dut", "l2fwd", *quick(*long, *options, "--out", str(out)))


def begun(place: Place, out: Path, *options: str) -> subprocess.Popen[str]:
    """Start a long run, and wait until some of its packets are on the disk."""
    process = started(place, *run(out, *options))
    record = out / "recording"
    wait_until(lambda: recorded_packets(record) > 5000, process)
    return process


def partial(path: Path) -> dict[str, Any]:
    """Check that a run is partial, and has the packets that were recorded; its ``run.json``."""
    run = read_run(path)
    assert not (path / "recording").exists()
    assert run.info.partial
    sent, fates = run.summary["sent"], ("count", "lost", "late", "corrupt", "outside")
    assert sent > 5000
    # What was on its way is not lost.
    assert sent == sum(run.summary[fate] or 0 for fate in fates)
    assert run.summary["count"] > 0.9 * sent
    found: dict[str, Any] = json.loads((path / "run.json").read_text())
    return found


def test_a_killed_generator_costs_no_packets(place: Place) -> None:
    out = place.path / "out"
    process = begun(place, out)
    os.kill(children(process.pid)["gen"], signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    assert "partial" in output
    found = partial(out)
    assert any(each.startswith("generator: ") for each in found["partial"])
    assert found["noise"] is not None and found["dut"]["result"] is not None


def test_a_killed_supervisor_costs_no_packets(place: Place, tailscope: Callable[..., Any]) -> None:
    out = place.path / "out"
    process = begun(place, out)
    copied = shutil.copytree(out, place.path / "copied")
    process.kill()
    process.communicate(timeout=60)
    refused = tailscope(*run(out))
    assert code_of(refused) == "run-recorded"
    for each in (out, copied):
        done = tailscope("runs", "finish", each)
        assert done.returncode == 0, done.stderr
        partial(each)
    assert tailscope("runs", "finish", out).stdout == f"{out}: lacks nothing\n"
    assert tailscope("runs", "show", out, "--verify").returncode == 0
    assert tailscope("runs", "clean", env=place.environment).returncode == 0


def test_a_run_without_a_name_is_kept_until_the_user_decides(
    place: Place, tailscope: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.path)
    process = started(place, "run", "--dut", "l2fwd", *quick(*LONG))
    [out] = Path("runs").iterdir()
    wait_until(lambda: recorded_packets(out / "recording") > 5000, process)
    living = tailscope("runs", "clean", "--yes", env=place.environment)
    assert str(out) not in living.stdout
    process.kill()
    process.communicate(timeout=60)
    [row] = json.loads(tailscope("runs", "list", "--json", "-").stdout)["runs"]
    assert (row["state"], "`tailscope runs finish`" in row["problem"]) == ("incomplete", True)
    copied = shutil.copytree(out, Path("others") / "copied")
    cleaned = tailscope("runs", "clean", env=place.environment)
    assert (cleaned.returncode, cleaned.stdout.count(f"left {out}: ")) == (0, 1)
    assert tailscope("runs", "finish", out).returncode == 0
    partial(out)
    removed = tailscope("runs", "clean", "others", "--yes", env=place.environment)
    assert f"removed {copied}\n" in removed.stdout
    assert not copied.exists()
    assert "nothing was left" in tailscope("runs", "clean", env=place.environment).stdout


def test_both_directions_are_kept(place: Place, tailscope: Callable[..., Any]) -> None:
    out = place.path / "out"
    process = started(place, *run(out, "--direction", "both"))
    records = [out / way / "recording" for way in ("forth", "back")]
    wait_until(lambda: all(recorded_packets(each) > 5000 for each in records), process)
    process.kill()
    process.communicate(timeout=60)
    for way in ("forth", "back"):
        assert tailscope("runs", "finish", out / way).returncode == 0
        assert partial(out / way)["instrument"]["direction"] == way
    assert tailscope("runs", "clean", env=place.environment).returncode == 0


@pytest.mark.long
def test_ctrl_c_three_times_keeps_what_was_recorded(
    place: Place, tailscope: Callable[..., Any]
) -> None:
    out = place.path / "out"
    process = begun(place, out)
    os.kill(children(process.pid)["gen"], signal.SIGSTOP)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(1)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"`tailscope runs finish {out}`" in errors
    assert tailscope("runs", "finish", out).returncode == 0
    partial(out)


@pytest.fixture
def disk(place: Place) -> Iterator[Path]:
    """A small disk."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    path = place.path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_MIB}m", "none", path], check=True)
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def test_a_disk_that_fills_up_keeps_what_was_recorded(
    place: Place, disk: Path, tailscope: Callable[..., Any]
) -> None:
    """Room for the packets is taken beforehand: what follows does not fit."""
    out, other = disk / "out", disk / "other"
    process = started(place, *run(out, "--duration", "3s", "--rate", "50k"))
    wait_until(lambda: recorded_packets(out / "recording") > 5000, process)
    with other.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    assert "[not-analysed]" in errors
    assert f"hint: `tailscope runs finish {out}` " in errors
    other.unlink()
    done = tailscope("runs", "finish", out)
    assert done.returncode == 0, done.stderr
    partial(out)


def test_nothing_is_kept_of_a_measurement_without_packets(
    place: Place, tailscope: Callable[..., Any]
) -> None:
    out = place.path / "out"
    process = started(place, *run(out, "--warm-up", "30s"))
    wait_until((out / "recording/recorded.json").exists, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    refused = tailscope("runs", "finish", out)
    assert refused.returncode == 1 and code_of(refused) == "no-packets"
    assert "ended before a packet was recorded" in unwrapped(refused.stderr)
    assert advice_of(refused) == [f"tailscope run ... --out {out}"]
    assert tailscope("runs", "clean", env=place.environment).returncode == 0
    short = ("run", "--dut", "l2fwd", *quick("--out", out))
    assert has_measured(tailscope(*short, env=place.environment))
    sound(out)
