"""`tailscope runs clean` removes what dead measurements left behind, and nothing else."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import COMMAND, run
from errors import unwrapped
from measurements import NOBODY, children, started
from runs import AS_ROOT, left_behind, needed
from test_removal import deepen

from tailscope.exceptions import TestbedError
from tailscope.store.atomic import SUFFIX
from tailscope.testbed import clean as cleaning
from tailscope.testbed.folder import LOCK, RunFolder, owner_of
from tailscope.testbed.places import FOLDER, MARK
from tailscope.testbed.tracefs import instances, remove_instance, tracefs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measurements import Place

Clean = "Callable[..., str]"


@pytest.fixture
def clean(
    alone: None, tailscope: Callable[..., Any], place: Place, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Return a function that runs the command beside measurements of this process."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, place.environment[name])

    def clean(*options: str) -> str:
        done = tailscope("runs", "clean", *options)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    return clean


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("tailscope-0-0123abcd", "tailscope-0-0123abcd"),
        ("tailscope-1000-0123abcd-gen0", "tailscope-1000-0123abcd"),
        ("tailscope-0-0123abcde", None),
        ("tailscope-results-2026", None),
        ("mine-tailscope-0-0123abcd", None),
    ],
)
def test_names_tell_who_owns_a_thing(name: str, owner: str | None) -> None:
    assert owner_of(name) == owner


def test_what_only_has_a_similar_name_is_left_alone(clean: Clean, place: Place) -> None:
    notes = place.path / "run" / "tailscope-results-2026"
    notes.mkdir()
    (notes / "mine").touch()
    clean()
    assert (notes / "mine").exists()
    (notes / "mine").unlink()
    notes.rmdir()


@pytest.fixture
def namespace() -> Iterator[Callable[[str], int]]:
    """Return a function that makes a network namespace, and returns a process in it."""
    with ExitStack() as stack:

        def make(name: str) -> int:
            subprocess.run(["ip", "netns", "add", name], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True)
            process = subprocess.Popen(["ip", "netns", "exec", name, "sleep", "60"])
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process.pid

        yield make


def namespaces() -> str:
    return subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout


@AS_ROOT
def test_namespaces_of_the_living_are_left_alone(
    clean: Clean, namespace: Callable[[str], int]
) -> None:
    with RunFolder() as folder:
        link = f"{folder.name}-gen0"
        pid = namespace(link)
        assert link not in clean()
        assert link in namespaces()
        # A crash releases the lock in the same way.
        os.close(folder._lock)
        found = clean("--dry-run").splitlines()
        assert any({str(pid), link} <= {*line.split()} for line in found)
        assert link in namespaces()
        assert f"network namespace {link}" in clean()
        assert link not in namespaces()
        assert not folder.path.exists()
        folder._lock = os.open(os.devnull, os.O_RDONLY)


@AS_ROOT
def test_a_namespace_in_use_is_left_alone_wherever_its_folder_is(
    clean: Clean, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds while no process is in it yet."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_RUNTIME_DIR", str(scratch))
        folder = RunFolder()
    with folder:
        name = f"{folder.name}-gen"
        subprocess.run(["ip", "netns", "add", name], check=True)
        assert name not in clean()
        assert name in namespaces()
    assert f"network namespace {name}" in clean()
    assert name not in namespaces()


@AS_ROOT
def test_what_sigkill_left_of_a_container_goes(clean: Clean, place: Place, scratch: Path) -> None:
    needed("lxc-execute")
    options = ["--dut", "l2fwd", "--platform", "lxc", "--platform-option", "name=orphan"]
    arguments = ["run", *options, "--duration", "60s", "--out", str(scratch / "out")]
    process = started(place, *arguments, processes=1)
    process.kill()
    process.communicate(timeout=30)
    # Children have ended with the command; the others carry its mark.
    output = clean()
    assert not left_behind("orphan"), output
    again = run(
        *["run", *options, "--duration", "200ms", "--out", scratch / "two"], env=place.environment
    )
    assert again.returncode == 0, again.stderr


def test_processes_of_dead_measurements_end(clean: Clean, place: Place) -> None:
    """The environment of a process tells its measurement."""
    with RunFolder() as folder:
        environment = {**os.environ, MARK: f"{folder.name}-1", FOLDER: str(folder.path / "1")}
        process = subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True)
        try:
            assert f"process {process.pid}" not in clean()
            os.close(folder._lock)
            assert f"process {process.pid}: sleep" in clean("--dry-run")
            assert process.poll() is None
            assert f"process {process.pid}: sleep" in clean()
            assert process.wait(10) == -9
        finally:
            process.kill()
            process.wait()
            folder._lock = os.open(os.devnull, os.O_RDONLY)


DEAD = f"tailscope-{os.getuid()}-0123abcd"


@pytest.fixture
def base(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder for folders of measurements, into which anybody may write."""
    scratch.chmod(0o1777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(scratch))
    return scratch


def dead(base: Path, name: str = DEAD) -> Path:
    """Make a folder as a crash leaves it, with a free lock."""
    path = base / name
    path.mkdir(mode=0o700)
    (path / LOCK).touch(mode=0o600)
    return path


@AS_ROOT
def test_a_measurement_whose_folder_only_it_sees_goes_on(
    clean: Clean, place: Place, scratch: Path, dataplane: Path
) -> None:
    """This happens to a service with a private /tmp: the lock counts, not the path."""
    mount = 'mount -t tmpfs tmpfs "$XDG_RUNTIME_DIR" && exec "$0" "$@"'
    place.prefix = ("unshare", "--mount", "sh", "-c", mount)
    process = started(place, "run", "--dut", "l2fwd", "--out", str(scratch / "o"), "--duration=60s")
    before = children(process.pid)
    assert len(before) == 2
    output = clean()
    assert children(process.pid) == before, output
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "SIGKILL" not in errors
    assert "tailscope-dp" not in output


@AS_ROOT
def test_measurements_whose_processes_are_out_of_sight_are_left_alone(
    clean: Clean,
    namespace: Callable[[str], int],
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This happens within a container, whether the lock is visible or not."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_RUNTIME_DIR", str(scratch))
        unseen = RunFolder()
    with unseen, RunFolder() as folder:
        names = [f"{run.name}-gen" for run in (unseen, folder)]
        pids = [namespace(name) for name in names]
        sight = ["unshare", "--pid", "--fork", "--mount-proc"]
        done = subprocess.run([*sight, COMMAND, "runs", "clean"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for name, pid in zip(names, pids, strict=True):
            assert name not in done.stdout
            assert name in namespaces()
            os.kill(pid, 0)


STARTING = """
import sys
import tempfile
from itertools import count
from tailscope.testbed.clean import clean
from tailscope.testbed.folder import LOCK, RunFolder

steps = {"os.mkdir", "open", "fcntl.flock", "os.rename"}
clean_at = seen = 0

def before(event, arguments):
    global seen, clean_at
    if event in steps and clean_at:
        seen += 1
        if seen == clean_at:
            clean_at = 0
            list(clean())

# The first look for it holds a lock, and cleaning looks, too.
tempfile.gettempdir()
sys.addaudithook(before)
for number in count(1):
    seen, clean_at = 0, number
    with RunFolder() as folder:
        finished, clean_at = clean_at != 0, 0
        assert not [left for left in clean() if folder.name in str(left)], number
        assert (folder.path / LOCK).exists(), number
    assert not folder.path.exists()
    if finished:
        break
print(number - 1)
"""
"""Script that cleans before each step of making a folder, and prints the number of steps."""


def test_a_measurement_that_begins_while_others_clean_keeps_its_folder(
    clean: Clean, place: Place
) -> None:
    done = subprocess.run([sys.executable, "-c", STARTING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3


@AS_ROOT
def test_namespaces_of_what_begins_while_they_are_listed_are_left_alone(
    clean: Clean, namespace: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyroute2 import netns

    listed = netns.listnetns
    with ExitStack() as stack:
        begun = []

        def begin_and_list() -> list[str]:
            begun.append(stack.enter_context(RunFolder()).name)
            namespace(f"{begun[-1]}-gen")
            return listed()

        monkeypatch.setattr(netns, "listnetns", begin_and_list)
        leftovers = str(list(cleaning.clean()))
        [name] = begun
        assert name not in leftovers
        assert f"{name}-gen" in namespaces()


@pytest.fixture
def tracers() -> Iterator[Path]:
    """Return the tracing file system, or skip the test if the kernel has none."""
    try:
        with tracefs() as root:
            yield root
    except TestbedError as error:
        pytest.skip(str(error))


@AS_ROOT
def test_tracers_of_what_begins_while_they_are_listed_are_left_alone(
    clean: Clean, tracers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        begun = []

        def begin_and_list(root: Path) -> list[str]:
            begun.append(stack.enter_context(RunFolder()).name)
            name = f"{begun[-1]}-events"
            (tracers / "instances" / name).mkdir()
            stack.callback(remove_instance, tracers, name)
            return instances(root)

        monkeypatch.setattr(cleaning, "instances", begin_and_list)
        leftovers = str(list(cleaning.clean()))
        [name] = begun
        assert name not in leftovers
        assert f"{name}-events" in instances(tracers)


@AS_ROOT
def test_a_tracer_that_others_look_at_is_removed(tracers: Path) -> None:
    name = "tailscope-0-0123abcd-events"
    (tracers / "instances" / name).mkdir()
    seen = (tracers / "instances" / name / "current_tracer").open()
    look = threading.Timer(0.1, seen.close)
    look.start()
    remove_instance(tracers, name)
    assert name not in instances(tracers)
    look.join()


@AS_ROOT
def test_cleans_at_the_same_time_all_succeed(
    clean: Clean, base: Path, tracers: Path, namespace: Callable[[str], int]
) -> None:
    names = [f"tailscope-0-{number:08x}" for number in range(8)]
    for name in names:
        inner = dead(base, name)
        for _ in range(50):
            inner /= "deep"
            inner.mkdir()
            (inner / "file").touch()
        namespace(f"{name}-gen")
        (tracers / "instances" / f"{name}-events").mkdir()
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([COMMAND, "runs", "clean"], **pipes) for _ in range(6)]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in processes]
    assert [errors for _, errors, status in ended if status] == []
    folders = [path.name for path in base.iterdir()]
    left = [*folders, *namespaces().split(), *instances(tracers)]
    assert not [name for name in left if owner_of(name) in names]
    output = "".join(output for output, _, _ in ended)
    for name in names:
        assert output.count(f"removed {base / name}\n") == 1
        assert output.count(f"removed network namespace {name}-gen\n") <= 1


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Path]:
    """Make a pipe that must not be opened for writing."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    hung_up = select.poll()
    hung_up.register(reader, select.POLLIN)
    yield pipe
    assert not hung_up.poll(0), "somebody had it open for writing"
    os.close(reader)


@AS_ROOT
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_lock_that_leads_elsewhere_is_not_opened(
    clean: Clean, base: Path, opened: Path, options: tuple[str, ...]
) -> None:
    path = base / f"tailscope-{NOBODY}-0123abcd"
    path.mkdir(mode=0o700)
    os.chown(path, NOBODY, NOBODY)
    (path / LOCK).symlink_to(opened)
    assert str(path) not in clean(*options)
    assert (path / LOCK).is_symlink()


@AS_ROOT
@pytest.mark.parametrize("whose", ["folder", LOCK])
def test_what_is_not_of_the_user_that_its_name_says_is_left_alone(
    clean: Clean, base: Path, whose: str
) -> None:
    path = dead(base)
    os.chown(path if whose == "folder" else path / LOCK, NOBODY, NOBODY)
    assert str(path) not in clean()
    assert path.exists()


@AS_ROOT
def test_root_removes_what_dead_measurements_of_others_left(clean: Clean, base: Path) -> None:
    path = dead(base, f"tailscope-{NOBODY}-0123abcd")
    for owned in (path, path / LOCK):
        os.chown(owned, NOBODY, NOBODY)
    assert f"removed {path}" in clean()
    assert not path.exists()


def test_what_was_killed_while_it_began_goes(clean: Clean, base: Path) -> None:
    names = [f".{DEAD}.{token}{SUFFIX}" for token in ("0123abcd", "4567abcd")]
    paths = [base / names[0], dead(base, names[1])]
    paths[0].mkdir()
    output = clean()
    for path in paths:
        assert f"removed {path}" in output
        assert not path.exists()


def test_what_is_about_to_measure_looks_for_dead_folders_first(
    place: Place, dataplane: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else a dead one left is looked for only if its folder is there."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", place.environment["XDG_RUNTIME_DIR"])
    monkeypatch.setattr(cleaning, "bases", lambda: pytest.fail("there was none"))
    with RunFolder():
        assert not [*cleaning.clean_if_dead()]
    path = dead(place.path / "run")
    ends = ("--dut", "command", "--dut-option", "run=false {eal}", "--dut-option", "ready=never")
    done = run("run", *ends, "--out", place.path / "one", env=place.environment)
    assert done.returncode == 1
    assert f"left by a measurement that was killed: {path}: removed" in unwrapped(done.stderr)
    assert not path.exists()


def test_what_was_being_written_goes_too(clean: Clean, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "first"
    run.mkdir(parents=True)
    left, whole = run / f".run.json.0123abcd{SUFFIX}", run / "run.json"
    for path in (left, whole):
        path.touch()
    assert f"would remove {left}" in unwrapped(clean("--dry-run", str(tmp_path)))
    assert left.exists()
    assert f"removed {left}" in clean(str(tmp_path))
    assert [*run.iterdir()] == [whole]


def test_a_folder_too_deep_for_recursion_goes_with_all_else(clean: Clean, base: Path) -> None:
    paths = [dead(base, f"{DEAD[:-1]}{number}") for number in range(2)]
    deepen(paths[0])
    output = clean()
    for path in paths:
        assert f"removed {path}" in output
        assert not path.exists()


def test_a_measurement_removes_a_folder_too_deep_for_recursion() -> None:
    with RunFolder() as folder:
        deepen(folder.path)
    assert not folder.path.exists()


@AS_ROOT
def test_what_cannot_be_removed_is_named_and_the_rest_goes(
    clean: Clean, base: Path, tmp_path: Path
) -> None:
    """A file system that is mounted in a folder is no leftover."""
    paths = [dead(base, f"{DEAD[:-1]}{number}") for number in range(2)]
    (tmp_path / "precious").touch()
    mount = paths[0] / "mount"
    mount.mkdir()
    subprocess.run(["mount", "--bind", tmp_path, mount], check=True)
    try:
        done = run("runs", "clean")
        assert done.returncode == 1
        assert f"removed {paths[1]}\n" in done.stdout
        assert done.stderr.startswith(f"error: {paths[0]}: ") and "mount: " in done.stderr
        assert "hint: " in done.stderr
        assert (tmp_path / "precious").exists()
    finally:
        subprocess.run(["umount", mount], check=True)
    assert f"removed {paths[0]}" in clean()


@AS_ROOT
def test_locks_that_lxc_left_go(clean: Clean, base: Path) -> None:
    locks = Path(f"/run/lxc/lock{base}")
    with RunFolder() as folder:
        inner = [locks / name / "platform" for name in (DEAD, folder.name)]
        for path in inner:
            path.mkdir(parents=True)
            (path / ".name").touch()
        output = clean()
        assert str(locks / DEAD) in output
        assert folder.name not in output
        assert [path.exists() for path in inner] == [False, True]
    assert folder.name in clean()
    assert not list(locks.iterdir())
    locks.rmdir()
