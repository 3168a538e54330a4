"""Experiments over ssh on three machines in network namespaces, each with its own sshd."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from laboratory import Laboratory, laboratory, run, start
from measurements import polls, wait_until
from runs import AS_ROOT, needed, records, sound
from wording import assert_wording

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [AS_ROOT, pytest.mark.usefixtures("dataplane")]

TRAFFIC = {"rate": "2k", "duration": "300ms", "warm_up": "200ms"}


@contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """Change a file of the laboratory within a block."""
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


SOFTWARE = {
    "kernel": {"dut": "mirred"},
    "forwarder": {"dut": "l2fwd"},
    "container": {"dut": "l2fwd", "platform": "lxc"},
}


@pytest.mark.parametrize(
    "names", [("container",), pytest.param(("kernel", "forwarder"), marks=pytest.mark.long)]
)
def test_an_experiment_runs_over_ssh(
    lab: Laboratory, tailscope: Any, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Devices of the kernel and of DPDK are measured with timestamps of the kernel."""
    needed("lxc-execute")
    software = {name: SOFTWARE[name] for name in names}
    path = lab.experiment(fixed={**TRAFFIC, "captures": True}, vary={"software": software})
    out = tmp_path / "out"
    done = run(lab, "run", path, "--out", out)
    assert done.returncode == 0, done.stderr + done.stdout
    for cell in records(out):
        folder = out / cell["runs"][0]
        info = sound(folder)
        assert info["clock"] == {"source": "kernel-software", "timestamp_type": "software"}
        assert info["instrument"]["timestamper"]["method"] == "socket"
        assert set(info["hosts"]) == {"loadgen", "dut", "timestamper"}
        generator = info["instrument"]["generator"]["gen"]
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["sent"] == summary["pre_packets"] == generator["sent"] > 0
        assert summary["post_packets"] == summary["count"] == generator["matched"]
        captures = [folder / "captures" / f"{side}.pcapng.zst" for side in ("pre", "post")]
        again = tailscope("analyze", *captures, "--json", "-")
        figures = json.loads(again.stdout)
        assert figures["count"] == summary["count"]
        assert figures["latency_ns_p99"] == summary["latency_ns_p99"]


@pytest.mark.long
def test_times_of_the_kernel_are_warned_of(lab: Laboratory, tailscope: Any, tmp_path: Path) -> None:
    """Every program warns of them in table, report and record."""
    counts = {}
    for method in ("auto", "tcpdump"):
        watching = {**lab.hosts["timestamper"], "method": method}
        hosts = {**lab.hosts, "timestamper": watching}
        path = lab.experiment(fixed={**TRAFFIC, "dut": "mirred"}, hosts=hosts)
        out = tmp_path / method
        done = run(lab, "run", path, "--out", out)
        assert done.returncode == 0, done.stderr + done.stdout
        info = sound(out / "run")
        warning = info["warnings"][0]
        assert_wording(f"hosts/times-of-{method}", warning)
        assert f"warning   {warning}\n" in done.stdout
        assert f"warning   {warning}" in tailscope("runs", "show", out / "run").stdout
        assert (
            warning.partition(";")[0].replace("'", "&#39;")
            in (out / "run" / "report.html").read_text()
        )
        counts[method] = info["instrument"]["timestamper"]["dropped"]
    assert counts["auto"] == counts["tcpdump"] == {"pre": 0, "post": 0}


@pytest.mark.long
def test_the_load_generator_can_be_this_machine(lab: Laboratory, tmp_path: Path) -> None:
    shared = min(os.sched_getaffinity(0))
    hosts = {
        **lab.hosts,
        "dut": {**lab.hosts["dut"], "cpus": shared},
        "loadgen": {"cards": ["out0", "in0"], "cpus": shared},
    }
    path = lab.experiment(fixed={**TRAFFIC, "dut": "router"}, hosts=hosts)
    out = tmp_path / "out"
    done = run(lab, "run", path, "--out", out, at="loadgen")
    assert done.returncode == 0, done.stderr + done.stdout
    info = sound(out / "run")
    assert info["instrument"]["generator"]["gen"]["sent"] > 0
    [warning] = [text for text in info["warnings"] if "one machine" in text]
    assert "dut and loadgen" in warning and f"CPU {shared}" in warning


@pytest.mark.long
def test_a_machine_with_another_kernel_is_waited_for(lab: Laboratory, tmp_path: Path) -> None:
    path = lab.experiment(fixed={**TRAFFIC, "dut": "l2fwd", "boot": "no_such=1"})
    out = tmp_path / "out"
    done = run(lab, "run", path, "--out", out)
    assert done.returncode == 1
    [cell] = records(out)
    assert cell["state"] == "waiting", cell["reason"]
    assert cell["reason"].startswith("dut (dut): kernel: ") and "no_such=1" in cell["reason"]
    assert "no_such=1" in done.stdout


def refused(lab: Laboratory, out: Path, **more: Any) -> str:
    """Run an experiment that fails, and return its output."""
    path = lab.experiment(**{"fixed": {**TRAFFIC, "dut": "l2fwd"}, **more})
    done = run(lab, "run", path, "--out", out)
    assert done.returncode == 1, done.stdout
    return done.stdout


def test_an_unknown_host_key_is_refused(lab: Laboratory, tmp_path: Path) -> None:
    with changed(lab.home / ".ssh" / "known_hosts", ""):
        output = refused(lab, tmp_path / "out")
    assert "failed: dut (dut): ssh: Host key" in output
    assert "shows its key" in output


def test_a_host_that_refuses_is_named(lab: Laboratory, tmp_path: Path) -> None:
    with changed(lab.path / "authorized", ""):
        output = refused(lab, tmp_path / "out")
    assert "failed: dut (dut): ssh: Permission denied" in output
    assert "without a password" in " ".join(output.split())


def test_a_host_that_is_not_there_is_named(lab: Laboratory, tmp_path: Path) -> None:
    config = lab.home / ".ssh" / "config"
    elsewhere = config.read_text().replace("10.98.0.3", "10.98.0.2").replace("2222", "2223")
    with changed(config, elsewhere):
        output = refused(lab, tmp_path / "out")
    assert "failed: dut (dut): ssh: " in output and "refused" in output


@pytest.mark.long
def test_packets_that_nobody_hands_on_are_counted(lab: Laboratory, tmp_path: Path) -> None:
    device = {"dut": "command", "dut_options": {"run": "sleep 60", "ready-command": "true"}}
    out = tmp_path / "out"
    output = refused(lab, out, fixed={**TRAFFIC, **device, "captures": True, "noise": "events"})
    info = sound(out / "run")
    summary = json.loads((out / "run/summary.json").read_text())
    assert summary["lost"] == summary["sent"] == info["instrument"]["generator"]["gen"]["sent"] > 0
    assert summary["count"] == summary["post_packets"] == 0
    assert {"noise.parquet", "interrupts.parquet", "captures/pre.pcapng.zst"} < set(info["files"])
    [partial] = info["partial"]
    assert f"{summary['sent']:,}" in partial and "`cards`" in partial
    assert " ".join(partial.split()) in " ".join(output.split())


def test_swapped_taps_are_named_and_what_they_saw_is_kept(
    lab: Laboratory, tailscope: Any, tmp_path: Path
) -> None:
    swapped = {**lab.hosts["timestamper"], "cards": ["post", "pre"]}
    out = tmp_path / "out"
    hosts = {**lab.hosts, "timestamper": swapped}
    output = refused(lab, out, fixed={**TRAFFIC, "dut": "mirred"}, hosts=hosts)
    assert "failed: pre.pcapng.zst and post.pcapng.zst: " in output
    advice = "`hosts.timestamper.cards` seem swapped"
    assert advice in output and "--clocks" not in output
    again = tailscope("runs", "finish", out / "run")
    assert again.returncode == 1 and f"hint: {advice}" in again.stderr
    assert f"{out / 'run'} keeps" in output.replace("\n", " ")
    post, pre = (out / f"run/recording/{side}.pcapng.zst" for side in ("pre", "post"))
    assert (out / "run/noise.parquet").exists()
    done = tailscope("analyze", pre, post, "--json", "-")
    assert json.loads(done.stdout)["count"] > 0


def test_what_a_host_lacks_is_said_with_its_name(lab: Laboratory, tmp_path: Path) -> None:
    hosts = {**lab.hosts, "dut": {**lab.hosts["dut"], "cards": ["in1", "nothing7"]}}
    output = refused(lab, tmp_path / "out", hosts=hosts)
    assert "failed: dut (dut): " in output and "nothing7" in output


def test_a_program_that_is_not_there_is_named_with_where_it_was_looked_for(
    lab: Laboratory, tmp_path: Path
) -> None:
    hosts = {**lab.hosts, "dut": {**lab.hosts["dut"], "command": "no such scope"}}
    output = " ".join(refused(lab, tmp_path / "out", hosts=hosts).split())
    assert "failed: dut (dut): " in output and "it said: bash" in output
    assert "hosts.dut.command: 'no such scope'" in output
    assert re.search(r"looks for programs in \S*/s?bin", output)


def test_another_version_is_refused(lab: Laboratory, tmp_path: Path) -> None:
    other = '#!/bin/sh\necho \'{"event": "hello", "version": "0.0.1"}\'\ncat >/dev/null\n'
    with changed(lab.home / "tail scope", other):
        output = refused(lab, tmp_path / "out")
    assert "expected tailscope" in output and "got 0.0.1" in output


KILLED = """
import os, signal
from tailscope.testbed.folder import RunFolder
print(RunFolder().__enter__().path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Script that leaves a folder behind, as a killed agent does."""


@pytest.mark.long
def test_a_resumed_campaign_cleans_its_machines(lab: Laboratory, tmp_path: Path) -> None:
    hosts = {**lab.hosts, "dut": {**lab.hosts["dut"], "cards": ["in1", "nothing7"]}}
    out = tmp_path / "out"
    refused(lab, out, hosts=hosts)
    path = lab.experiment(fixed={**TRAFFIC, "dut": "l2fwd"}, hosts=hosts)
    environment = {**lab.environment, "XDG_RUNTIME_DIR": str(lab.path / "dut.run")}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False
    )
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    config = lab.home / ".ssh" / "config"
    # The timestamper, which is the last one, gets a closed port.
    before, _, behind = config.read_text().rpartition("2222")
    with changed(config, f"{before}2223{behind}"):
        done = run(lab, "run", path, "--resume", "--out", out)
    assert f"cleaned dut (dut): {left}\n" in done.stderr
    assert not left.exists()
    assert re.search(r"not cleaned: timestamper \(timestamper\): ssh: .*refused", done.stderr)


def processes(lab: Laboratory) -> dict[int, list[bytes]]:
    """Return the processes on the laboratory's machines, with their words."""
    words = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(lab.path) in (path / "environ").read_bytes():
                words[int(path.name)] = (path / "cmdline").read_bytes().split(b"\0")
    return words


def agents(lab: Laboratory) -> list[int]:
    return [pid for pid, words in processes(lab).items() if words[-2:-1] == [b"agent"]]


def sending(lab: Laboratory, out: Path, **fields: object) -> subprocess.Popen[str]:
    """Start a run, and wait until it sends packets."""
    path = lab.experiment(fixed={**TRAFFIC, "duration": "60s", "dut": "mirred", **fields})
    process = start(lab, "run", path, "--out", out)

    def is_sending() -> bool:
        # Warm-ups are not recorded.
        records = [b"--record=" in b" ".join(words) for words in processes(lab).values()]
        return any(records) and any(map(polls, _data_plane(lab, b"gen")))

    wait_until(is_sending, process)
    return process


def test_ctrl_c_ends_the_traffic_and_keeps_the_rest(lab: Laboratory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = sending(lab, out)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    text, errors = process.communicate(timeout=60)
    assert process.returncode == 130, text + errors
    [cell] = records(out)
    assert cell["state"] == "partial" and "ended after" in cell["reason"], cell
    assert re.search(r"^\[1/1\] run  partial +p50 .*ended after", text, re.MULTILINE)
    info = sound(out / "run")
    assert info["partial"] == [cell["reason"]]
    summary = json.loads((out / "run/summary.json").read_text())
    assert summary["sent"] == info["instrument"]["generator"]["gen"]["sent"] > 0
    assert summary["count"] == summary["sent"]
    assert not agents(lab)


@pytest.mark.long
def test_the_second_ctrl_c_gives_up(lab: Laboratory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = sending(lab, out)
    [generator] = _data_plane(lab, b"gen")
    deaf = _agent_of(generator, agents(lab))
    os.kill(deaf, signal.SIGSTOP)
    try:
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(1)
    finally:
        os.kill(deaf, signal.SIGCONT)
    text, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "pending  interrupted" in text and "error: interrupted" in errors
    [cell] = records(out)
    assert cell["state"] == "pending" and not (out / "run").exists()
    assert not agents(lab)


@pytest.mark.long
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("dies", ["agent", "user"])
def test_a_machine_that_dies_releases_the_others(dies: str, tmp_path: Path) -> None:
    with laboratory(tmp_path) as lab:
        dying(lab, dies, tmp_path / "out")


def dying(lab: Laboratory, dies: str, out: Path) -> None:
    """Kill an agent or the user's command on private machines, which may lose their links."""
    path = lab.experiment(fixed={**TRAFFIC, "duration": "20s"}, vary={"dut": ["mirred", "l2fwd"]})
    process = start(lab, "run", path, "--only", "dut=l2fwd", "--out", out)
    wait_until(lambda: any(map(polls, _data_plane(lab, b"gen"))), process)
    if dies == "agent":
        [dut] = _data_plane(lab, b"l2fwd")
        # Its agent is an ancestor of the data plane.
        os.kill(_agent_of(dut, agents(lab)), signal.SIGKILL)
        text, _ = process.communicate(timeout=60)
        assert "failed: dut (dut): " in text
        assert process.returncode == 1
    else:
        process.kill()
        process.communicate(timeout=60)
    deadline_s = time.monotonic() + 20
    while agents(lab) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert not agents(lab)
    for role in lab.hosts:
        environment = {**lab.environment, "XDG_RUNTIME_DIR": str(lab.path / f"{role}.run")}
        clean = [sys.executable, "-m", "tailscope", "runs", "clean"]
        command = ["ip", "netns", "exec", lab.names[role], *clean]
        subprocess.run(command, env=environment, check=True, capture_output=True)


def _data_plane(lab: Laboratory, program: bytes) -> list[int]:
    """Return the processes of the data plane that run a program."""
    return [
        pid
        for pid, words in processes(lab).items()
        if words[0].endswith(b"tailscope-dp") and words[1:2] == [program]
    ]


def _agent_of(pid: int, running: list[int]) -> int:
    """Return the nearest ancestor that is an agent."""
    while pid not in running:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, "it has no agent"
    return pid
