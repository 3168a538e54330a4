"""`tailscope clean` takes what is dead, and nothing else."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from command import run
from measurements import started
from runs import left_behind, needed

from tailscope.testbed.folder import RunFolder, owner_of
from tailscope.testbed.places import FOLDER, MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from measurements import Place

Clean = "Callable[..., str]"


@pytest.fixture
def clean(
    alone: None, tailscope: Callable[..., Any], place: Place, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs the command where measurements of this process live too; returns what it says."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, place.environment[name])

    def clean(*options: str) -> str:
        done = tailscope("clean", *options)
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
    """Makes network namespaces with a process in each; its number."""
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


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")
def test_namespaces_of_the_living_are_left_alone(
    clean: Clean, namespace: Callable[[str], int]
) -> None:
    with RunFolder() as folder:
        link = f"{folder.name}-gen0"
        pid = namespace(link)
        assert link not in clean()
        assert link in namespaces()
        # As a crash does: nobody holds the lock any more.
        os.close(folder._lock)
        assert f"process {pid} in network namespace {link}" in clean("--dry-run")
        assert link in namespaces()
        assert f"network namespace {link}" in clean()
        assert link not in namespaces()
        assert not folder.path.exists()
        folder._lock = os.open(os.devnull, os.O_RDONLY)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")
def test_a_namespace_in_use_is_left_alone_wherever_its_folder_is(
    clean: Clean, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while nobody is in it yet."""
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


@pytest.mark.skipif(os.geteuid() != 0, reason="containers are root's")
def test_what_sigkill_left_of_a_container_goes(clean: Clean, place: Place, scratch: Path) -> None:
    needed("lxc-execute")
    options = ["--dut", "l2fwd", "--platform", "lxc", "--platform-option", "name=orphan"]
    arguments = ["run", *options, "--duration", "60s", "--out", str(scratch / "out")]
    process = started(place, *arguments, processes=1)
    process.kill()
    process.communicate(timeout=30)
    # What ends with us is gone; what does not is known by its mark.
    said = clean()
    assert not left_behind("orphan"), said
    again = run(
        *["run", *options, "--duration", "200ms", "--out", scratch / "two"], env=place.environment
    )
    assert again.returncode == 0, again.stderr


def test_processes_of_dead_measurements_end(clean: Clean, place: Place) -> None:
    """A process is known by what its environment says, wherever it has gone."""
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
