"""What attacks must leave as it was, and what keeps them to themselves."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runs import MEASUREMENT

from tailscope.exceptions import TestbedError
from tailscope.host.apply import planned
from tailscope.host.machine import Machine
from tailscope.testbed.containers import container_names
from tailscope.testbed.tracefs import instances, tracefs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

IS_ROOT = os.geteuid() == 0
_APART = "CHAOS_IS_APART"
_SHARED_MEMORY = "/dev/shm"
_MEMORY_GROUPS = (("memory/", "memory.limit_in_bytes"), ("", "memory.max"))


def be_apart() -> None:
    """Begin again with signals as usual, and with shared memory and semaphores of our own.

    What appears there later, measurements of this process made.
    """
    # What is started in the background ignores Ctrl-C, or the end of its terminal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not IS_ROOT or _APART in os.environ:
        return
    # As for the rest, what is mounted for all remains so: network namespaces are.
    mounts = f"mount --make-private {_SHARED_MEMORY}; mount -t tmpfs none {_SHARED_MEMORY}"
    words = ["unshare", "--mount", "--ipc", "--propagation", "unchanged"]
    words += ["sh", "-c", f'{mounts} && exec "$@"', "-", *sys.orig_argv]
    os.execvpe(words[0], words, {**os.environ, _APART: "1"})


def shared_memory() -> list[str]:
    """Files in the memory that processes share, named semaphores among them; ours if apart."""
    return _listed(_SHARED_MEMORY) if _APART in os.environ else []


def semaphores() -> list[str]:
    """Sets of semaphores; ours if we are apart."""
    if _APART not in os.environ:
        return []
    return Path("/proc/sysvipc/sem").read_text().splitlines()[1:]


def carrying(names: Iterable[str]) -> list[str]:
    """Things that carry the name of one of these measurements."""
    wanted = set(names)
    return sorted(
        f"{kind} {text.strip()}"
        for kind, texts in _things()
        for text in texts
        if wanted.intersection(MEASUREMENT.findall(text))
    )


def _things() -> Iterator[tuple[str, list[str]]]:
    """All things of the kinds that measurements make."""
    yield "namespace", _listed("/run/netns")
    yield "container", list(container_names())
    yield "lock", [str(path) for path in Path("/run/lxc/lock").rglob("*")]
    yield "link", _listed("/sys/class/net")
    yield "huge pages", _listed("/dev/hugepages")
    yield "mount", Path("/proc/self/mounts").read_text().splitlines()
    yield "socket", Path("/proc/net/unix").read_text().splitlines()
    if IS_ROOT:
        with suppress(TestbedError), tracefs() as root:
            yield "tracer", instances(root)
    marks = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            mark = re.search(r"TAILSCOPE_MEASUREMENT=[^\0]*", path.read_bytes().decode("latin1"))
            if mark:
                marks.append(f"{path.parent.name} {mark[0]}")
    yield "process", marks


def _listed(folder: str) -> list[str]:
    with suppress(OSError):
        return [path.name for path in Path(folder).iterdir()]
    return []


def setting_paths() -> list[str]:
    """Where this machine keeps what tuning it would change."""
    machine = Machine()
    every = tuple(sorted(os.sched_getaffinity(0)))
    plans = [*planned(machine, every, ["*"]), *planned(machine, every[-1:], ["*"])]
    return sorted({change.path for _, changes in plans for change in changes})


def settings(paths: Iterable[str]) -> dict[str, str]:
    """What is there now; tasks and cards may be gone."""
    machine = Machine()
    found = {path: machine.read(path) for path in paths}
    return {path: text for path, text in found.items() if text is not None}


def copied_settings(copies: Path, paths: Iterable[str]) -> tuple[str, ...]:
    """What to start a command by, for which copies stand in for this machine's settings.

    Where the kernel says all words of which it takes one, a file cannot stand in for it, and
    nothing can be set.
    """
    journal = copies / "journal"
    journal.mkdir(parents=True)
    steps = ["mkdir -p /run/tailscope", f"mount --bind {journal} /run/tailscope"]
    for number, path in enumerate(path for path in paths if Path(path).is_file()):
        content = Path(path).read_bytes()
        if b"[" in content:
            steps.append(f"mount --bind {path} {path} && mount -o remount,bind,ro {path}")
        else:
            copy = copies / f"{number}"
            copy.write_bytes(content)
            steps.append(f"mount --bind {copy} {path}")
    script = " && ".join([*steps, 'exec "$@"'])
    return ("unshare", "--mount", "sh", "-c", script, "-")


def contents(copies: Path) -> dict[str, bytes]:
    """What the copies say."""
    return {path.name: path.read_bytes() for path in copies.iterdir() if path.is_file()}


@contextmanager
def little_memory(name: str, limit_bytes: int) -> Iterator[tuple[str, ...]]:
    """What to start a command by, so that it and all that it starts have no more memory."""
    with ExitStack() as stack:
        root = Path("/sys/fs/cgroup")
        kind, file = next(each for each in _MEMORY_GROUPS if _has_memory(root, *each))
        group = root / f"{kind}{name}"
        group.mkdir()
        stack.callback(group.rmdir)
        (group / file).write_text(str(limit_bytes))
        tasks = shlex.quote(str(group / "cgroup.procs"))
        yield ("sh", "-c", f'echo $$ > {tasks} && exec "$@"', "-")


def can_limit_memory() -> bool:
    """Whether `little_memory` can be had."""
    return any(_has_memory(Path("/sys/fs/cgroup"), *each) for each in _MEMORY_GROUPS)


def _has_memory(root: Path, kind: str, file: str) -> bool:
    if kind:
        return (root / kind / file).exists()
    with suppress(OSError):
        return "memory" in (root / "cgroup.subtree_control").read_text().split()
    return False


@contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """A small file system in a folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, left_bytes: int) -> None:
    """Let somebody else use a disk but for a few bytes."""
    with suppress(OSError), (disk / "others").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(disk).free - left_bytes))
