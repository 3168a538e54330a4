"""The platform ``lxc`` with real containers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of, raises
from measurements import children, quick, started, wait_until
from runs import AS_ROOT, left_behind, needed, sound

from tailscope.exceptions import UsageError
from tailscope.experiment.fields import plan_of
from tailscope.host.cpus import parse_cpus
from tailscope.testbed.containers import cgroup_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measurements import Place

    Measure = Callable[..., dict[str, Any]]

pytestmark = AS_ROOT

RATE = ("--rate", "2k")


@pytest.fixture(autouse=True)
def lxc() -> None:
    needed("lxc-execute")


@pytest.mark.parametrize(
    "dut", ["l2fwd", *(pytest.param(dut, marks=pytest.mark.long) for dut in ("mirred", "l3fwd"))]
)
def test_a_device_lives_in_a_container(measure_hidden: Measure, dut: str) -> None:
    figures = measure_hidden("--dut", dut, "--platform", "lxc", *RATE, "--noise", "auto")
    info = sound(figures["out"])
    assert figures["count"] == figures["sent"]
    assert info["platform"]["container"].startswith("tailscope-")
    assert info["platform"]["version"].startswith("LXC ")
    assert not left_behind()


def received_by(links: Path) -> int:
    """Return the number of packets that have reached the generator's links."""
    lines = [line.split() for line in links.read_text().splitlines()]
    return sum(int(words[2]) for words in lines if words[0].startswith("gen"))


@pytest.mark.long
def test_a_container_that_dies_costs_no_measurement(place: Place) -> None:
    """The kernel forwarded in the container, and its counters vanished with it."""
    out = place.path / "out"
    options = (
        "--dut",
        "bridge",
        "--platform",
        "lxc",
        "--rate",
        "20k",
        "--duration",
        "4s",
        "--warm-up",
        "0s",
    )
    process = started(place, "run", *options, "--out", str(out), processes=1)
    links = Path(f"/proc/{children(process.pid)['gen']}/net/dev")
    wait_until(lambda: received_by(links) > 1000, process)
    [container] = (
        int(pid)
        for path in Path(f"/proc/{process.pid}/task").glob("*/children")
        for pid in path.read_text().split()
        if b"lxc-execute" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    os.kill(container, signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    [reason] = sound(out)["partial"]
    assert reason.startswith("dut: ") and reason in output, errors
    assert not left_behind()


def test_the_container_has_a_namespace_and_cpus_of_its_own(
    measure: Measure, tmp_path: Path
) -> None:
    """A device in the container lists what it sees."""
    seen = tmp_path / "seen"
    script = tmp_path / "look"
    script.write_text(
        f"#!/bin/sh\nexec 3>{seen}\nhostname >&3\nip -br link >&3\n"
        "grep Cpus_allowed_list /proc/self/status >&3\necho up\nexec sleep 60\n"
    )
    script.chmod(0o755)
    given = ("--dut-option", f"run={script} {{cpus}}", "--dut-option", "ready=^up$")
    options = ("--platform", "lxc", "--platform-option", "name=seen", "--wire", "veth")
    figures = measure("--dut", "command", *given, *options, *RATE, "--cpus", "0,1", expected=1)
    info = sound(figures["out"])
    assert figures["lost"] == figures["sent"]
    assert info["platform"]["container"] == "seen"
    name, *links, cpus = seen.read_text().splitlines()
    assert name == "seen"
    assert {link.split("@")[0].split()[0] for link in links} == {"lo", "dut0", "dut1"}
    allowed = os.sched_getaffinity(0)
    # The device may use all CPUs but the generator's, if there is another one for all else.
    assert set(parse_cpus(cpus.split()[1])) == (allowed - {0} if len(allowed) > 2 else allowed)
    assert not left_behind("seen")


def test_memory_is_limited_and_recorded(measure: Measure) -> None:
    option = ("--platform-option", "memory=1024")
    figures = measure("--dut", "l2fwd", "--platform", "lxc", *option, *RATE)
    platform = sound(figures["out"])["platform"]
    assert platform["cgroup_version"] == cgroup_version()
    assert "lxc.cgroup2.memory.max = 1024M\n" in platform["configuration"]
    assert not left_behind()


def test_a_device_for_which_the_memory_is_not_enough_is_named(tailscope: Any, place: Place) -> None:
    options = ("--dut", "l2fwd", "--platform", "lxc", "--platform-option", "memory=4", *quick())
    done = tailscope("run", *options, "--out", place.path / "out", env=place.environment)
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert not (place.path / "out").exists() and not left_behind()


def test_a_partition_is_one_or_an_error(tailscope: Any, place: Place) -> None:
    """Control groups of version 1 have no partitions for LXC, and the kernel may refuse one."""
    isolated = ("--platform", "lxc", "--platform-option", "partition=isolated")
    out = place.path / "out"
    options = ("--dut", "l2fwd", *isolated, *quick(*RATE))
    done = tailscope("run", *options, "--out", out, env=place.environment)
    if cgroup_version() == 1:
        assert done.returncode == 1
        assert code_of(done) == "cgroup-version"
    elif done.returncode == 0:
        configuration = sound(out)["platform"]["configuration"]
        assert "lxc.cgroup2.cpuset.cpus.partition = isolated\n" in configuration
    else:
        assert code_of(done) == "partition-refused" and "isolated" in done.stderr
    assert not left_behind()


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("partition=mine", ["partition", "'mine'", "member, root or isolated"]),
        ("memory=0", ["memory", "'0'", "16,777,216 MiB"]),
        ("memory=4GiB", ["memory", "'4GiB'", "16,777,216 MiB"]),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tailscope: Any, place: Place, option: str, named: list[str]
) -> None:
    options = ("--dut", "l2fwd", "--platform", "lxc", "--platform-option", option, "--dry-run")
    done = tailscope("run", *options, env=place.environment)
    assert done.returncode == 1 and code_of(done) == "platform-option"
    assert all(text in done.stderr for text in named)


def test_two_containers_at_once(tailscope: Any, place: Place) -> None:
    """Four polling loops share the CPUs, and each container has a run of its own."""
    options = ("--platform", "lxc", "--instances", "2", *quick("--rate", "500"), "--json", "-")
    out = place.path / "out"
    done = tailscope("run", "--dut", "l2fwd", *options, "--out", out, env=place.environment)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    infos = [sound(out / f"instance-{number}") for number in (1, 2)]
    assert [info["dut"]["instance"] for info in infos] == [1, 2]
    assert len({info["platform"]["container"] for info in infos}) == 2
    assert all(instance["count"] > 0 for instance in figures)
    assert not left_behind()


def test_one_of_two_is_loaded_beside_co_runners(measure: Measure) -> None:
    needed("stress-ng")
    side_by_side = ("--platform", "lxc", "--instances", "2", "--load", "one", "--rate", "500")
    busy = ("--co-runner", "cpu=1", "--co-runner", "io=1", "--co-runner-cpus", "0")
    figures = measure("--dut", "l2fwd", *side_by_side, *busy)
    info = sound(figures["out"])
    assert info["plan"]["co_runners"] == {"cpu": 1, "io": 1}
    assert not info["partial"]
    assert not left_behind()


@contextmanager
def container(name: str, folder: Path) -> Iterator[None]:
    """Run a container of another program."""
    configuration = folder / "config"
    configuration.write_text("lxc.rootfs.path = dir:/\nlxc.net.0.type = empty\n")
    command = ["lxc-execute", "-P", str(folder), "-n", name, "-f", str(configuration)]
    process = subprocess.Popen([*command, "--", "sleep", "60"], stderr=subprocess.DEVNULL)
    try:
        wait = ["lxc-wait", "-P", str(folder), "-n", name, "-s", "RUNNING", "-t", "10"]
        subprocess.run(wait, check=True)
        yield
    finally:
        subprocess.run(["lxc-stop", "-k", "-P", str(folder), "-n", name], check=False)
        process.wait(10)


def test_a_name_in_use_is_refused(tailscope: Any, place: Place, tmp_path: Path) -> None:
    options = ("--dut", "l2fwd", "--platform", "lxc", "--platform-option", "name=taken")
    with container("taken", tmp_path):
        out = place.path / "out"
        done = tailscope("run", *options, "--out", out, env=place.environment)
        assert done.returncode == 1
        assert code_of(done) == "container-exists" and "taken" in done.stderr
        assert "name=NAME" in done.stderr
        assert not out.exists()
        seen = subprocess.run(["pgrep", "-f", "n taken"], capture_output=True, check=False)
        assert seen.returncode == 0, "it was not ours to end"


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 60])
def test_a_name_is_a_name(name: str) -> None:
    with raises(UsageError, "container-name"):
        plan_of({"dut": "l2fwd", "platform": "lxc", "platform_options": {"name": name}})


def test_a_container_that_does_not_start_says_why(
    tailscope: Any, place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusing = tmp_path / "lxc-execute"
    refusing.write_text("#!/bin/sh\necho cgroups are not for you >&2; exit 7\n")
    refusing.chmod(0o755)
    environment = {**place.environment, "PATH": f"{tmp_path}:{place.environment['PATH']}"}
    options = ("--dut", "l2fwd", "--platform", "lxc", "--out", place.path / "out")
    done = tailscope("run", *options, env=environment)
    assert done.returncode == 1
    assert code_of(done) == "container-start"
    assert "status 7" in done.stderr and "cgroups are not for you" in done.stderr
    assert not left_behind()
