"""Where measurements live in tests, and who starts them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import COMMAND

from tailscope.cli.status import UNDECIDED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_QUICK = {"--duration": "100ms", "--warm-up": "20ms", "--rate": "20k", "--noise": "stalls"}
"""As much traffic as shows that packets go through; tests that judge times measure longer.

The kernel's tracer takes longer than the packets: who looks at its events asks for them.
"""

SMALL = """\
name: small
fixed: {duration: 200ms, warm_up: 50ms, rate: 5k, noise: stalls}
vary:
  dut: [l2fwd, l3fwd]
repeats: 2
"""
"""An experiment of four quick cells."""

POLLING_TICKS, ALL_TICKS = 20, 100
"""Of user time, or of all: a process of the data plane has used as much once its loop polls.

To set up takes it 4; its memory takes time in the kernel, much of it on a busy machine. A loop over
links of the kernel may spend all of its ticks there.
"""
NOBODY = 65534


def quick(*options: Any) -> tuple[Any, ...]:
    """The options of a quick measurement, and those of a test, which may replace them."""
    return replaced(_QUICK, *options)


def replaced(usual: Mapping[str, str], *options: Any) -> tuple[Any, ...]:
    """Options, and the usual ones that are not among them."""
    left = [word for pair in usual.items() if pair[0] not in options for word in pair]
    return (*left, *options)


@dataclass
class Place:
    """A home for measurements: where they keep their sockets and state, and what they left."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    """What commands are started by."""
    outside: tuple[str, ...] = ()
    """What an ordinary user's are started by while root still may all."""

    @classmethod
    def in_folder(cls, path: Path) -> Place:
        """Make a home of an empty folder."""
        (path / "run").mkdir(mode=0o700)
        own = {"XDG_RUNTIME_DIR": str(path / "run"), "XDG_STATE_HOME": str(path / "state")}
        return cls(path, {**os.environ, **own})

    def experiment(self, text: str) -> Path:
        """Write an experiment."""
        path = self.path / "experiment.yaml"
        path.write_text(text)
        return path

    def left(self) -> list[str]:
        """What measurements left behind."""
        folders = [path.name for path in self.path.glob("run/tailscope-*")]
        locks = [str(path) for path in Path(f"/run/lxc/lock{self.path}").rglob("tailscope-*")]
        return folders + locks + self.processes()

    def processes(self) -> list[str]:
        """The command lines of what measurements have started, and what runs still."""
        home = os.fsencode(self.path)
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                environment = path.read_bytes()
                command = (path.parent / "cmdline").read_text().replace("\0", " ")
                # One that ends while it is looked at has no command line any more.
                if command and home in environment and b"TAILSCOPE_MEASUREMENT=" in environment:
                    found.append(command)
        return found


def has_measured(done: subprocess.CompletedProcess[str]) -> bool:
    """Return True if a run came to its end; on a busy machine few packets may have been sent."""
    is_busy = done.returncode == UNDECIDED and "of the packets could be sent" in done.stderr
    return is_busy or done.returncode == 0


def measuring(
    tailscope: Callable[..., subprocess.CompletedProcess[str]], place: Place
) -> Callable[..., dict[str, Any]]:
    """Make a function that runs `tailscope run` at a place and returns its figures."""
    names = (f"out{number or ''}" for number in count())

    def measure(*options: object, expected: int = 0) -> dict[str, Any]:
        out = place.path / next(names)
        done = tailscope(
            "run", *quick(*options), "--json", "-", "--out", out, env=place.environment
        )
        is_busy = done.returncode == UNDECIDED and not expected
        assert is_busy or done.returncode == expected, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        # A busy machine keeps the generator from sending: the run says so, and is one all the same.
        assert not is_busy or found["unsent_generator"] > found["sent"]
        return {**found, "out": out}

    return measure


def started(place: Place, *arguments: str, processes: int = 2) -> subprocess.Popen[str]:
    """Start a command and wait until so many processes of the data plane poll."""
    process = subprocess.Popen(
        [*place.prefix, COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=place.environment,
    )
    wait_until(lambda: polling(process) >= processes, process)
    return process


def wait_until(
    true: Callable[[], bool], process: subprocess.Popen[Any], limit_s: float = 120
) -> None:
    """Wait for something that a process brings about; its end meanwhile is a failure."""
    deadline_s = time.monotonic() + limit_s
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.02)


def polling(process: subprocess.Popen[Any]) -> int:
    """How many processes of the data plane poll that a process has started."""
    return sum(map(polls, children(process.pid).values()))


def polls(pid: int) -> bool:
    """Whether a process of the data plane is in its loop."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    user, system = int(words[11]), int(words[12])
    return user >= POLLING_TICKS or user + system >= ALL_TICKS


def children(pid: int) -> dict[str, int]:
    """The processes of the data plane that a process has started, by their programs."""
    found = {}
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                if any(word.endswith(b"tailscope-dp") for word in words):
                    found[words[1].decode()] = int(child)
    return found


def as_nobody(
    command: Sequence[str],
    folder: Path,
    *,
    capabilities: Collection[str] = (),
    outside: Sequence[str] = (),
    **options: Any,
) -> subprocess.Popen[str]:
    """Start a command as an ordinary user who owns `folder` alone, with no other capabilities."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    rights = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    added = [f"+{capability}" for capability in sorted(capabilities)]
    rights.append(f"--bounding-set={','.join(['-all', *added])}")
    if added:
        rights += [f"--inh-caps={','.join(added)}", f"--ambient-caps={','.join(added)}"]
    return subprocess.Popen([*outside, *rights, *command], text=True, **options)


def begun_by_nobody(
    place: Place, *arguments: str, capabilities: Collection[str] = ()
) -> subprocess.Popen[str]:
    """Start the installed command as an ordinary user, who owns the place."""
    if not os.access(COMMAND, os.X_OK) or not reachable(COMMAND):
        pytest.skip(f"{COMMAND}: not to be reached by an ordinary user")
    environment = {**place.environment, "HOME": str(place.path), "PYTHONDONTWRITEBYTECODE": "1"}
    for parent in place.path.parents:
        if parent.stat().st_uid == os.getuid() and parent.name.startswith(("pytest-", "popen-")):
            parent.chmod(0o755)
    return as_nobody(
        [*place.prefix, str(COMMAND), *arguments],
        place.path,
        capabilities=capabilities,
        outside=place.outside,
        env=environment,
        cwd=place.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def told_nobody(
    place: Place, *arguments: str, capabilities: Collection[str] = ()
) -> subprocess.CompletedProcess[str]:
    """What came of the installed command, run by an ordinary user."""
    process = begun_by_nobody(place, *arguments, capabilities=capabilities)
    output, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def said_to_nobody(place: Place, *arguments: str) -> str:
    """What the installed command says to an ordinary user."""
    done = told_nobody(place, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def reachable(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in path.resolve().parents)
