"""A laboratory records its machines as a local run does, and explains the tail by that."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from laboratory import Laboratory, run, start
from measurements import polls, wait_until
from runs import AS_ROOT, sound
from wording import assert_wording

from tailscope.testbed.tasks import comm_of, threads_of

pytestmark = [AS_ROOT, pytest.mark.usefixtures("dataplane")]

TRAFFIC = {"rate": "2k", "duration": "2s", "warm_up": "200ms"}
DISTURBED = {
    "dut": "delay",
    "dut_options": {
        "law": "fixed:5us",
        "disturb": "busy",
        "disturb-period": "100ms",
        "disturb-duration": "6ms",
    },
}
CPUS = sorted(os.sched_getaffinity(0))


def apart(lab: Laboratory) -> dict[str, Any]:
    """Put the device on the last CPU of this machine, and the load generator on the first."""
    return {
        **lab.hosts,
        "dut": {**lab.hosts["dut"], "cpus": str(CPUS[-1])},
        "loadgen": {**lab.hosts["loadgen"], "cpus": str(CPUS[0])},
    }


def measured(lab: Laboratory, out: Path, **fields: object) -> dict[str, Any]:
    path = lab.experiment(fixed={**TRAFFIC, **fields}, hosts=apart(lab))
    done = run(lab, "run", path, "--out", out)
    assert done.returncode == 0, done.stderr + done.stdout
    return sound(out / "run")


@pytest.mark.usefixtures("alone")
@pytest.mark.skipif(len(CPUS) < 2, reason="device and load generator would share a CPU")
def test_a_disturbance_on_the_device_is_named(
    lab: Laboratory, tailscope: Any, tmp_path: Path
) -> None:
    info = measured(
        lab,
        tmp_path / "out",
        **DISTURBED,
        noise="events",
        counter_interval="200ms",
        power="command:echo 42.5",
        power_phase="300ms",
    )
    out = tmp_path / "out/run"
    clock = info["machines"]["dut"]["clock"]
    assert clock["times_by"] == "tsc" and clock["method"] in ("packets", "answers")
    bounds = {mapping["method"]: mapping["bounds"] for mapping in clock["mappings"]}
    # The device sees few packets while others have its CPU.
    assert bounds == {"packets": bounds["packets"], "answers": 64} and bounds["packets"] > 0
    assert all(mapping["error_ns"] > 0 for mapping in clock["mappings"])
    # All machines have the clock of this kernel, so the true offset is 0.
    for role in ("dut", "loadgen"):
        for mapping in info["machines"][role]["clock"]["mappings"]:
            assert abs(mapping["offset_ns"]) <= mapping["error_ns"] + 50_000, (role, mapping)
    tail = json.loads((out / "explanation.json").read_text())
    error_ns = tail["clock_error_ns"]
    assert error_ns == clock["error_ns"] + info["noise"]["events"]["clock_error_ns"]
    # On a busy machine, a single stall may cause the whole default tail. The disturbance takes a
    # twentieth of the time.
    tenth = ("explain", out, "--quantile", "0.9")
    tail_causes = json.loads(tailscope(*tenth, "--json", "-").stdout)["tail"]["causes"]
    causes = {(cause["part"], cause["cause"]): cause for cause in tail_causes}
    assert causes["dut", "task disturb"]["packets"] > 0
    table = tailscope(*tenth).stdout
    assert "DuT: task disturb" in table
    assert f"±{error_ns:,} ns" in table
    assert "dut       packets" in table and "loadgen   answers" in table
    page = (out / "report.html").read_text()
    assert f"±{error_ns:,} ns" in page


def test_what_was_recorded_is_that_of_a_local_run(
    lab: Laboratory, tailscope: Any, tmp_path: Path
) -> None:
    info = measured(
        lab,
        tmp_path / "out",
        dut="mirred",
        noise="events",
        counter_interval="200ms",
        power="command:echo 42.5",
        power_phase="300ms",
    )
    out = tmp_path / "out/run"
    assert not any("one machine" in text for text in info["warnings"])
    assert info["machines"]["dut"]["clock"]["times_by"] == "unix"
    assert info["noise"]["events"]["clock"] == "mono"
    assert info["noise"]["counter_samples"] > 5
    assert any("interrupt counters" in text for text in info["warnings"])
    assert set(info["machines"]) == {"dut", "timestamper", "loadgen"}
    for machine in info["machines"].values():
        assert machine["knobs"].keys() == info["knobs"].keys() != set()
    assert info["machines"]["loadgen"]["noise"]["events"]["lost"] is not None
    assert info["power"]["source"] == "command:echo 42.5"
    assert set(info["power"]["phases"]) == {"idle", "running", "processing"}
    assert info["power"]["figures"]["power_w_processing"] == pytest.approx(42.5)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["power_w_processing"] == pytest.approx(42.5)
    rows = pq.read_table(out / "noise.parquet").to_pylist()
    assert {row["source"] for row in rows} == {"dut", "loadgen"}
    kinds = {row["kind"] for row in rows if row["source"] == "loadgen"}
    assert kinds == {"stall", "cause"}
    first_ns = pq.read_table(out / "latency.parquet")["pre_ns"][0].as_py()
    assert all(abs(row["start_ns"] - first_ns) < 60_000_000_000 for row in rows)
    counters = pq.read_table(out / "interrupts.parquet")["unix_ns"].to_pylist()
    assert max(counters) - min(counters) > 1_000_000_000
    assert abs(counters[0] - first_ns) < 60_000_000_000
    page = ("--out", tmp_path / "page.html")
    for command in (("explain",), ("runs", "show"), ("report", *page)):
        assert tailscope(*command, out).returncode == 0
    # The listed errors add up to the stated one.
    table = tailscope("explain", out).stdout
    listed = re.findall(r"^dut .*±([\d,]+) ns +(?:used|added)$", table, re.MULTILINE)
    assert len(listed) == 2
    [whole] = re.findall(r"known to within ±([\d,]+) ns", table)
    assert sum(int(error.replace(",", "")) for error in listed) == int(whole.replace(",", ""))
    verified = tailscope("runs", "show", out, "--verify")
    assert verified.returncode == 0, verified.stderr


AHEAD = """#!/bin/sh
exec env {variable} {python} -c '
import sys, time
unix_ns = time.time_ns
time.time_ns = lambda: unix_ns() + 20_000_000
from tailscope.cli import main
sys.exit(main())' "$@"
"""
"""Script of tailscope with Unix time 20 ms ahead of the kernel's timestamps."""


@pytest.mark.long
def test_a_device_whose_clocks_contradict_each_other_explains_nothing(
    lab: Laboratory, tailscope: Any, tmp_path: Path
) -> None:
    command = tmp_path / "tailscope"
    variable = f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
    command.write_text(AHEAD.format(variable=variable, python=shlex.quote(sys.executable)))
    command.chmod(0o755)
    hosts = apart(lab)
    hosts["dut"] = {**hosts["dut"], "command": str(command)}
    fields = {**TRAFFIC, "duration": "1s", "dut": "mirred", "noise": "events"}
    done = run(lab, "run", lab.experiment(fixed=fields, hosts=hosts), "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr + done.stdout
    out = tmp_path / "out/run"
    info = sound(out)
    clock = info["machines"]["dut"]["clock"]
    assert "method" not in clock and "error_ns" not in clock
    by_packets, by_answers = clock["mappings"]
    assert by_packets["offset_ns"] - by_answers["offset_ns"] == pytest.approx(2e7, abs=1e7)
    assert clock["contradiction"] is not None
    assert len([text for text in info["warnings"] if clock["contradiction"] in text]) == 1
    # Both methods agree on the clock of the load generator's machine.
    assert info["machines"]["loadgen"]["clock"]["error_ns"] > 0
    sources = pq.read_table(out / "noise.parquet")["source"].to_pylist()
    assert "own clock" in sources and "dut" not in sources
    assert not (out / "explanation.json").exists()
    refused = tailscope("explain", out)
    assert refused.returncode == 1
    assert clock["contradiction"] in refused.stderr
    again = tailscope("runs", "finish", out)
    assert_wording("finish/nothing", again.stdout.replace(str(out), "RUN").rstrip())
    assert tailscope("runs", "show", out, "--verify").returncode == 0


@pytest.mark.usefixtures("alone")
def test_the_devices_machine_is_tuned_and_as_it_was(lab: Laboratory, tmp_path: Path) -> None:
    knob = Path("/proc/sys/vm/compaction_proactiveness")
    before = knob.read_text()
    knob.write_text("7")
    try:
        info = measured(lab, tmp_path / "out", dut="mirred", tune=True, duration="300ms")
        assert knob.read_text() == "7\n"
    finally:
        knob.write_text(before)
    [ahead] = [setting for setting in info["tuning"] if setting["knob"] == "compaction"]
    assert (ahead["original"], ahead["wanted"], ahead["refused"]) == ("7\n", "0", None)
    assert info["knobs"]["compaction"] == "0"
    assert "stat-interval" not in {each["knob"] for each in info["tuning"]}


@pytest.mark.usefixtures("alone")
def test_a_machine_that_was_tuned_is_as_it_was_when_the_connection_ends(
    lab: Laboratory, tmp_path: Path
) -> None:
    knob = Path("/proc/sys/vm/compaction_proactiveness")
    before = knob.read_text()
    fields = {**TRAFFIC, "duration": "60s", "dut": "mirred", "tune": True}
    path = lab.experiment(fixed=fields, hosts=apart(lab))
    process = start(lab, "run", path, "--out", tmp_path / "out")
    try:
        wait_until(lambda: knob.read_text() == "0\n", process)
        process.kill()
        process.communicate(timeout=60)
        deadline_s = time.monotonic() + 30
        while knob.read_text() != before and time.monotonic() < deadline_s:
            time.sleep(0.1)
        assert knob.read_text() == before
    finally:
        process.kill()
        knob.write_text(before)
    deadline_s = time.monotonic() + 20
    while agents(lab) and time.monotonic() < deadline_s:
        time.sleep(0.1)


def test_what_the_devices_machine_lacks_is_said_before_anything_starts(
    lab: Laboratory, tmp_path: Path
) -> None:
    fields = {**TRAFFIC, "dut": "mirred", "power": "command:/no/such/meter"}
    path = lab.experiment(fixed=fields)
    planned = run(lab, "run", path, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert re.search("not known yet .* power: command:/no/such/meter", planned.stdout)
    done = run(lab, "run", path, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert re.search(r"failed: dut \(dut\): power: .*/no/such/meter", done.stdout)
    local = lab.experiment(fixed=fields, hosts={**lab.hosts, "dut": {"cards": ["in1", "out1"]}})
    planned = run(lab, "run", local, "--dry-run", at="dut")
    assert re.search("missing for 1 of 1 cells: power: .*/no/such/meter", planned.stdout)


INTERRUPTED = """
import sys
import tailscope.experiment.run.evaluate as evaluate
def interrupted(*_arguments, **_options):
    raise KeyboardInterrupt
evaluate.analyze = interrupted
from tailscope.cli import main
sys.argv = ["tailscope", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.long
@pytest.mark.parametrize("captures", [False, True])
def test_captures_that_are_here_are_kept_and_finished_later(
    lab: Laboratory, tailscope: Any, tmp_path: Path, captures: bool
) -> None:
    fields = {**TRAFFIC, "duration": "1s", "dut": "mirred", "captures": captures}
    path = lab.experiment(fixed=fields, hosts=apart(lab))
    command = ["ip", "netns", "exec", lab.names["hub"], sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(
        [*command, "run", str(path), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env=lab.environment,
        timeout=120,
    )
    out = tmp_path / "out/run"
    assert done.returncode == 130, done.stdout + done.stderr
    assert (out / "recording/recorded.json").exists()
    finished = tailscope("runs", "finish", out)
    assert finished.returncode == 0, finished.stderr
    info = sound(out)
    assert not (out / "recording").exists() and (out / "captures").exists() == captures
    summary = json.loads((out / "summary.json").read_text())
    assert summary["sent"] == info["instrument"]["generator"]["gen"]["sent"] > 0
    assert summary["count"] == summary["sent"]
    clock = info["machines"]["dut"]["clock"]
    tail = json.loads((out / "explanation.json").read_text())
    assert tail["clock_error_ns"] >= clock["error_ns"] > 0
    assert tailscope("runs", "show", out, "--verify").returncode == 0


def agents(lab: Laboratory, role: str = "") -> list[int]:
    """Return the agents on the machines of the laboratory, or on one of them."""
    home = f"{lab.path}/{role}.run" if role else str(lab.path)
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(home) not in (path / "environ").read_bytes():
                continue
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[-2:-1] == [b"agent"]:
            pids.append(int(path.name))
    return pids


@pytest.mark.long
@pytest.mark.skipif(len(CPUS) < 2, reason="nothing is left but the CPU that polls")
def test_nothing_of_ours_may_run_where_packets_are_polled(lab: Laboratory, tmp_path: Path) -> None:
    """This holds for agents, their programs, and the connections to them."""
    polled = CPUS[-1]
    hosts = {
        role: {**host, "cpus": str(polled)} if role != "timestamper" else host
        for role, host in lab.hosts.items()
    }
    recording = {"noise": "events", "counter_interval": "200ms", "power": "command:echo 1"}
    fields = {**TRAFFIC, **recording, "duration": "8s", "dut": "mirred", "power_phase": "100ms"}
    path = lab.experiment(fixed=fields, hosts=hosts)
    process = start(lab, "run", path, "--out", tmp_path / "out")
    cpus_by_thread: dict[tuple[int, str], set[int]] = {}

    def is_sent() -> bool:
        words = [Path(f"/proc/{pid}/cmdline") for pid in family(agents(lab))]
        return any(b"--record=" in path.read_bytes() for path in words if path.exists())

    wait_until(is_sent, process)
    wait_until(lambda: any(map(polls, family(agents(lab)))), process)
    roles = [*agents(lab, "dut"), *agents(lab, "loadgen")]
    for pid in family(roles):
        for tid in threads_of(pid):
            try:
                cpus_by_thread[tid, comm_of(tid)] = set(os.sched_getaffinity(tid))
            except OSError:
                continue
    connections = {pid: os.sched_getaffinity(pid) for pid in sessions(agents(lab))}
    process.communicate(timeout=60)
    assert process.returncode == 0
    on_polled = [name for (_, name), cpus in cpus_by_thread.items() if polled in cpus]
    # This is the loop of the generator; the timestamper has chosen another CPU.
    assert on_polled == ["tailscope-dp"], cpus_by_thread
    # These are both agents, with threads that listen, trace, count and read power, and programs.
    assert len(cpus_by_thread) > 10, cpus_by_thread
    assert len(connections) >= 2
    assert sum(polled in cpus for cpus in connections.values()) == 0, connections


def family(pids: list[int]) -> list[int]:
    """Return processes and their descendants."""
    members = list(pids)
    for pid in members:
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                members += map(int, path.read_text().split())
            except OSError:
                continue
    return members


def commands_of(pids: list[int]) -> bytes:
    """Return the command lines of processes."""
    paths = [Path(f"/proc/{pid}/cmdline") for pid in pids]
    return b"".join(path.read_bytes() for path in paths if path.exists())


def sessions(pids: list[int]) -> list[int]:
    """Return the processes of sshd between agents and the listening sshd."""
    ancestors = []
    for pid in pids:
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if pid > 1 and b"@" in commands_of([pid]) and b"sshd" in commands_of([pid]):
                ancestors.append(pid)
    return ancestors
