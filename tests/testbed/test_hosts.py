"""Three machines in network namespaces, each with its own sshd: experiments over ssh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from laboratory import Laboratory, laboratory
from runs import AS_ROOT, needed, records, sound

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [AS_ROOT, pytest.mark.usefixtures("dataplane")]

TRAFFIC = {"rate": "2k", "duration": "1s", "warm_up": "300ms"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    needed("sshd", "ssh-keygen", "tcpdump")
    before = namespaces()
    with laboratory(tmp_path) as built:
        yield built
        left = [path for role in built.hosts for path in (tmp_path / f"{role}.run").iterdir()]
        assert not left
    assert namespaces() == before


def namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}


def start(lab: Laboratory, *arguments: object, at: str = "hub") -> subprocess.Popen[str]:
    """Start tailscope: the hub is a machine that only sees the management network."""
    there = ["ip", "netns", "exec", lab.names[at]]
    return subprocess.Popen(
        [*there, sys.executable, "-m", "tailscope", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=lab.environment,
    )


def run(lab: Laboratory, *arguments: object, at: str = "hub") -> subprocess.CompletedProcess[str]:
    process = start(lab, *arguments, at=at)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_an_experiment_runs_over_ssh(lab: Laboratory, tailscope: Any) -> None:
    """From a function of the kernel to one of DPDK in a container, stamped by tcpdump."""
    needed("lxc-execute")
    software = {
        "kernel": {"dut": "mirred"},
        "forwarder": {"dut": "l2fwd"},
        "container": {"dut": "l2fwd", "platform": "lxc"},
    }
    path = lab.experiment(fixed={**TRAFFIC, "captures": True}, vary={"software": software})
    out = lab.path / "out"
    done = run(lab, "run", path, "--out", out)
    assert done.returncode == 0, done.stderr + done.stdout
    for cell in records(out):
        folder = out / cell["runs"][0]
        info = sound(folder)
        assert info["clock"] == {"source": "kernel-software", "timestamp_type": "host"}
        assert set(info["hosts"]) == {"loadgen", "dut", "timestamper"}
        generator = info["instrument"]["generator"]["gen"]
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["sent"] == summary["pre_packets"] == generator["sent"] > 0
        assert summary["post_packets"] == summary["count"] == generator["matched"]
        captures = [folder / "captures" / f"{side}.pcap" for side in ("pre", "post")]
        again = tailscope("analyze", *captures, "--json", "-")
        figures = json.loads(again.stdout)
        assert figures["count"] == summary["count"]
        assert figures["latency_ns_p99"] == summary["latency_ns_p99"]


def test_the_load_generator_can_be_this_machine(lab: Laboratory) -> None:
    hosts = {**lab.hosts, "loadgen": {"cards": ["out0", "in0"]}}
    path = lab.experiment(fixed={**TRAFFIC, "dut": "router"}, hosts=hosts)
    out = lab.path / "out"
    done = run(lab, "run", path, "--out", out, at="loadgen")
    assert done.returncode == 0, done.stderr + done.stdout
    info = sound(out / "run")
    assert info["instrument"]["generator"]["gen"]["sent"] > 0


def test_a_machine_with_another_kernel_is_waited_for(lab: Laboratory) -> None:
    path = lab.experiment(fixed={**TRAFFIC, "dut": "l2fwd", "boot": "no_such=1"})
    out = lab.path / "out"
    done = run(lab, "run", path, "--out", out)
    assert done.returncode == 1
    [cell] = records(out)
    assert cell["state"] == "waiting", cell["reason"]
    assert "dut (dut): kernel: expected the parameters no_such=1" in cell["reason"]
    assert "boot with no_such=1" in done.stdout


def test_an_unknown_host_key_is_refused(lab: Laboratory) -> None:
    (lab.home / ".ssh" / "known_hosts").write_text("")
    done = run(
        lab, "run", lab.experiment(fixed={**TRAFFIC, "dut": "l2fwd"}), "--out", lab.path / "o"
    )
    assert done.returncode == 1
    assert "failed: dut (dut): ssh: Host key is not trusted" in done.stdout
    assert "shows its key, and asks whether to trust it" in done.stdout


def test_a_host_that_refuses_is_named(lab: Laboratory) -> None:
    (lab.path / "authorized").write_text("")
    done = run(
        lab, "run", lab.experiment(fixed={**TRAFFIC, "dut": "l2fwd"}), "--out", lab.path / "o"
    )
    assert done.returncode == 1
    assert "failed: dut (dut): ssh: Permission denied" in done.stdout
    assert "has to work without a password" in done.stdout


def test_a_host_that_is_not_there_is_named(lab: Laboratory) -> None:
    config = lab.home / ".ssh" / "config"
    config.write_text(config.read_text().replace("10.98.0.3", "10.98.0.2").replace("2222", "2223"))
    done = run(
        lab, "run", lab.experiment(fixed={**TRAFFIC, "dut": "l2fwd"}), "--out", lab.path / "o"
    )
    assert done.returncode == 1
    assert "failed: dut (dut): ssh: " in done.stdout and "refused" in done.stdout


def test_what_a_host_lacks_is_said_with_its_name(lab: Laboratory) -> None:
    path = lab.experiment(
        fixed={**TRAFFIC, "dut": "l2fwd"},
        hosts={**lab.hosts, "dut": {**lab.hosts["dut"], "cards": ["in1", "nothing7"]}},
    )
    done = run(lab, "run", path, "--out", lab.path / "o")
    assert done.returncode == 1
    assert "failed: dut (dut): dut: no link nothing7" in done.stdout


def test_another_version_is_refused(lab: Laboratory) -> None:
    other = lab.home / "tail scope"
    other.write_text('#!/bin/sh\necho \'{"event": "hello", "version": "0.0.1"}\'\ncat >/dev/null\n')
    done = run(
        lab, "run", lab.experiment(fixed={**TRAFFIC, "dut": "l2fwd"}), "--out", lab.path / "o"
    )
    assert done.returncode == 1
    assert "expected tailscope" in done.stdout and "got 0.0.1" in done.stdout


def agents() -> dict[int, str]:
    """Agents that run, and their first words."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[-2:-1] == [b"agent"]:
            found[int(path.parent.name)] = words[0].decode()
    return found


@pytest.mark.parametrize("dies", ["agent", "user"])
def test_a_machine_that_dies_releases_the_others(lab: Laboratory, dies: str) -> None:
    path = lab.experiment(fixed={**TRAFFIC, "duration": "20s"}, vary={"dut": ["mirred", "l2fwd"]})
    out = lab.path / "out"
    process = start(lab, "run", path, "--only", "dut=l2fwd", "--out", out)
    deadline_s = time.monotonic() + 30
    while len(list((lab.path / "loadgen.run").glob("*/*.log"))) == 0:
        assert time.monotonic() < deadline_s and process.poll() is None
        time.sleep(0.1)
    time.sleep(2)
    if dies == "agent":
        forwarder = subprocess.run(
            ["pgrep", "-f", "tailscope-dp l2fwd"], capture_output=True, text=True, check=True
        )
        dut = int(forwarder.stdout.split()[0])
        # Its agent, by who is told to end with it.
        os.kill(_agent_of(dut), signal.SIGKILL)
        text, _ = process.communicate(timeout=60)
        assert "failed: dut (dut): the connection ended" in text
        assert process.returncode == 1
    else:
        process.kill()
        process.communicate(timeout=60)
    deadline_s = time.monotonic() + 20
    while agents() and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert not agents()
    for role in lab.hosts:
        environment = {**lab.environment, "XDG_RUNTIME_DIR": str(lab.path / f"{role}.run")}
        clean = [sys.executable, "-m", "tailscope", "clean"]
        command = ["ip", "netns", "exec", lab.names[role], *clean]
        subprocess.run(command, env=environment, check=True, capture_output=True)


def _agent_of(pid: int) -> int:
    """The nearest ancestor that is an agent."""
    running = agents()
    while pid not in running:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, "it has no agent"
    return pid
