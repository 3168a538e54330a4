"""What a process inherits does not reach its measurement, and what root lends it is given back."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import COMMAND
from errors import code_of
from measurements import Place, children, quick, started, told_nobody
from runs import AS_ROOT, needed, sound

from tailscope.testbed.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RESET = """
from tailscope.inherited import reset
reset()
import os, sys
os.execvp("cat", ["cat", *sys.argv[1:]])
"""
"""A child of a process that has reset what it inherited: it shows what came to it."""

SIGCHLD_BIT = 1 << signal.SIGCHLD - 1
ALL_SIGNALS = signal.valid_signals()


def fields(text: str) -> dict[str, str]:
    """The lines of /proc/PID/status."""
    lines = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in lines}


def after_reset(inherited: Callable[[], object], *files: str) -> str:
    command = [sys.executable, "-c", RESET, *files]
    return subprocess.run(
        command, preexec_fn=inherited, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("inherited", "name", "expected"),
    [
        (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS), "SigBlk", f"{0:016x}"),
        (lambda: os.umask(0o777), "Umask", "0077"),
        (lambda: os.umask(0o027), "Umask", "0027"),
    ],
    ids=["signals", "umask", "own-umask"],
)
def test_a_child_inherits_no_obstacle(
    inherited: Callable[[], object], name: str, expected: str
) -> None:
    assert fields(after_reset(inherited, "/proc/self/status"))[name] == expected


def test_libraries_start_no_threads_that_nobody_asked_for() -> None:
    code = "from tailscope.inherited import reset; reset(); import numpy, os"
    threads = "print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {threads}"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 1


def test_children_are_waited_for() -> None:
    shown = after_reset(lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), "/proc/self/status")
    assert not int(fields(shown)["SigIgn"], 16) & SIGCHLD_BIT


def test_processes_may_be_as_many_as_the_hard_limit_allows() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    shown = after_reset(
        lambda: resource.setrlimit(resource.RLIMIT_NPROC, (64, most)), "/proc/self/limits"
    )
    (line,) = (line for line in shown.splitlines() if line.startswith("Max processes"))
    soft, hard = line.split()[2:4]
    assert soft == hard


@AS_ROOT
@pytest.mark.usefixtures("dataplane", "alone")  # Each process of nobody's counts.
@pytest.mark.parametrize("processes", [1, 2])
def test_a_limit_that_cannot_be_raised_is_named(place: Place, processes: int) -> None:
    needed("setpriv", "prlimit")
    place.prefix = ("prlimit", f"--nproc={processes}:{processes}")
    place.environment["OPENBLAS_NUM_THREADS"] = "1"
    done = told_nobody(place, "run", *quick("--dut", "l2fwd", "--out", "out"))
    assert (done.returncode, code_of(done)) == (1, "process-limit")


def closed(*numbers: int) -> Callable[[], None]:
    return lambda: [os.close(number) for number in numbers] and None


@pytest.mark.parametrize(
    ("words", "numbers", "status"),
    [
        (["--version"], [0], 0),
        (["--version"], [1], 1),
        (["--version"], [2], 0),
        (["--version"], [0, 1, 2], 1),
        (["runs", "list", "nowhere"], [2], 1),
    ],
)
def test_closed_streams_leave_a_status(words: list[str], numbers: list[int], status: int) -> None:
    done = subprocess.run(
        [COMMAND, *words], preexec_fn=closed(*numbers), capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    error, _, hint = done.stderr.partition("\nhint: ")
    is_said = numbers == [1]
    assert error == ("error: standard output: Bad file descriptor [system]" if is_said else "")
    assert bool(hint) is is_said and "ls -l" not in hint


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["run", "--help"]])
def test_output_to_a_full_disk_is_an_error_that_names_it(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    error, _, hint = done.stderr.partition("\nhint: ")
    assert (done.returncode, error) == (
        1,
        "error: standard output: No space left on device [system]",
    )
    assert hint


def test_messages_that_nobody_can_read_change_no_result() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [COMMAND, "runs", "list", "nowhere"], stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("name", ["a,b", "a=b", "a[b"])
def test_a_folder_that_dpdk_cannot_name_is_not_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / name))
    assert RunFolder().path.parent != tmp_path / name


@AS_ROOT
def test_root_takes_no_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, 65534, 65534)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert RunFolder().path.parent != tmp_path


def hostile() -> None:
    """Leave a child all that a careless parent could."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o777)
    closed(0)()


@pytest.mark.usefixtures("dataplane")
def test_a_measurement_minds_nothing_that_it_inherits(place: Place) -> None:
    """With SIGTERM blocked, no device ended before its deadlines were over."""
    home = place.path / "run,"
    home.mkdir(mode=0o700)
    out = place.path / "out"
    environment = {**place.environment, "XDG_RUNTIME_DIR": str(home), "TMPDIR": f"{place.path}/run"}
    done = subprocess.run(
        [COMMAND, "run", *quick("--dut", "l2fwd", "--out", out)],
        preexec_fn=hostile,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sound(out)["partial"] == []


def gone(pids: Iterable[int]) -> bool:
    """Whether processes have ended, within a moment."""
    deadline_s = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


# A killed command leaves its namespaces until they are cleaned: tests beside it would see them.
@pytest.mark.parametrize(
    "wire", ["memif", pytest.param("veth", marks=[AS_ROOT, pytest.mark.alone])]
)
@pytest.mark.usefixtures("dataplane")
def test_nothing_of_root_is_kept_while_packets_fly(wire: str, place: Place) -> None:
    """And the processes are killed with the command, whatever they are doing."""
    needed("setpriv")
    words = ("run", "--dut", "l2fwd", "--wire", wire, "--duration", "60s", "--noise", "stalls")
    process = started(place, *words, "--out", str(place.path / "out"))
    try:
        programs = children(process.pid)
        assert set(programs) == {"gen", "l2fwd"}
        for pid in programs.values():
            for status in Path(f"/proc/{pid}/task").glob("*/status"):
                found = fields(status.read_text())
                sets = [int(found[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")]
                assert (found["NoNewPrivs"], found["SigBlk"]) == ("1", f"{0:016x}")
                assert sets == [0, 0, 0, 0], found["Name"]
        for pid in programs.values():
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.communicate()
        assert gone(programs.values())
    finally:
        process.kill()
        process.wait()
        subprocess.run([COMMAND, "runs", "clean"], env=place.environment, check=True)
