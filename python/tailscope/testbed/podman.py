"""Podman's command line, with storage and settings that belong to one measurement."""

from __future__ import annotations

import json
import os
import resource
from contextlib import suppress
from pathlib import Path

from tailscope.testbed.containers import cgroup_version
from tailscope.testbed.folder import bases, owner_of
from tailscope.testbed.places import FOLDER, MARK
from tailscope.testbed.programs import search_path, which
from tailscope.testbed.removal import remove_tree

GROUP = "podman.payload."
"""Prefix of the control groups of a container, before its name."""
_LONGEST = 50
_HIGHEST_PID = Path("/proc/sys/kernel/pid_max")
_RUNTIMES = ("crun", "runc")


def container_runtime() -> str | None:
    """Return the program by which podman starts containers; None if there is none.

    crun refuses a mixture of both versions of control groups, which systems with version 1 have.
    """
    names = _RUNTIMES if cgroup_version() == 2 else _RUNTIMES[::-1]
    return next((name for name in names if which(name) is not None), None)


def own_podman(folder: Path, mark: str, runtime: str) -> list[str]:
    """Set up a podman that knows only the containers of one folder, and return its command."""
    home = folder / "podman"
    home.mkdir(mode=0o700, exist_ok=True)
    settings = {
        "cgroup_manager": "cgroupfs",
        "events_logger": "none",
        # Locks in memory would be shared with the containers of others.
        "lock_type": "file",
        "runtime": runtime,
        "tmp_dir": str(home / "tmp"),
        "conmon_env_vars": [f"PATH={search_path()}", f"{MARK}={mark}"],
    }
    # Strings and lists of strings are written alike in JSON and TOML.
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    (home / "containers.conf").write_text(f"[engine]\n{lines}")
    environment = {
        "CONTAINERS_CONF": home / "containers.conf",
        "HOME": home,
        "XDG_RUNTIME_DIR": home,
    }
    run = _run_folder(home, mark)
    run.mkdir(mode=0o700, parents=True)
    storage = [f"--root={home}/storage", f"--runroot={run}", "--storage-driver=vfs"]
    words = [f"{name}={value}" for name, value in environment.items()]
    return ["env", *words, "podman", "--log-level=error", *storage]


def remove_podman(folder: Path, mark: str) -> None:
    """Remove what `own_podman` made outside of the folder, if anything."""
    run = _run_folder(folder / "podman", mark)
    with suppress(OSError):
        remove_tree(run)
        if not run.is_relative_to(folder):
            run.parent.rmdir()


def _run_folder(home: Path, mark: str) -> Path:
    """Return podman's folder for the state of running containers, whose path must be short.

    The alternatives have the measurement's name, by which `tailscope.testbed.clean` finds them.
    """
    owner = owner_of(mark)
    assert owner is not None, "it is the mark of a measurement"
    within = Path(owner, mark.removeprefix(owner).lstrip("-") or "run")
    places = [home / "run", *(base / within for base in bases())]
    return next((place for place in places if len(str(place)) <= _LONGEST), places[-1])


def limits() -> list[str]:
    """Return options that give a container the limits of this process, which are the highest.

    Podman lowers its own limit of processes to the highest process number of the kernel.
    """
    processes = int(_HIGHEST_PID.read_text())
    most = {
        "nofile": (resource.RLIMIT_NOFILE, 1 << 20),
        "nproc": (resource.RLIMIT_NPROC, processes),
    }
    options = []
    for name, (number, highest) in most.items():
        own = resource.getrlimit(number)
        values = (highest if limit < 0 else min(limit, highest) for limit in own)
        options.append(f"--ulimit={name}={':'.join(map(str, values))}")
    return options


def marks(folder: Path, mark: str) -> list[str]:
    """Return options that mark a container's processes as those of a measurement."""
    return [f"--env={MARK}={mark}", f"--env={FOLDER}={folder}", "--env=LANG=C.UTF-8"]


def is_rootless() -> bool:
    """Return True if containers are made in a user's own namespace."""
    return os.geteuid() != 0
