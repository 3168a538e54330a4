"""Ways to attack a measurement; each says what became of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from .attack import (
    COMMAND,
    ENDED_WELL,
    INTERRUPTED,
    IS_ROOT,
    NOBODY_S,
    BrokenPromiseError,
    give_to_nobody,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .attack import Attack

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Scenario(NamedTuple):
    """A way to attack.

    Attributes
    ----------
    name : str
    carry_out : callable
        Returns what became of it, in a word or two.
    as_root : bool
    program : str
        What it needs, if anything.
    """

    name: str
    carry_out: Callable[[Attack], str]
    as_root: bool = False
    program: str = ""

    @property
    def is_there(self) -> bool:
        """Whether it can be carried out here."""
        has = not self.program or shutil.which(self.program) is not None
        return has and (IS_ROOT or not self.as_root)


def nothing(attack: Attack) -> str:
    process = attack.start()
    attack.expect(ENDED_WELL, process)
    return attack.outcome(attack.runs[0], ENDED_WELL)


def kill_one(attack: Attack) -> str:
    """SIGKILL of one of the processes, the supervisor among them."""
    process = attack.start()
    attack.some_time()
    with suppress(ProcessLookupError, IndexError):
        os.kill(attack.chance.choice(attack.family(process)), signal.SIGKILL)
    status, _ = attack.end(process)
    return attack.outcome(attack.runs[0], None if status < 0 else status)


def kill_all(attack: Attack) -> str:
    """SIGKILL of all processes, one after the other."""
    process = attack.start()
    attack.some_time()
    for pid in attack.family(process):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    attack.end(process)
    return attack.outcome(attack.runs[0], None)


def interrupt(attack: Attack) -> str:
    process = attack.start()
    attack.some_time()
    process.send_signal(attack.chance.choice(ENDING))
    status, _ = attack.end(process)
    return attack.outcome(attack.runs[0], None if status == INTERRUPTED else status)


def interrupt_twice(attack: Attack) -> str:
    process = attack.start()
    for most_s in (7, 1):
        attack.some_time(most_s)
        process.send_signal(attack.chance.choice(ENDING))
    status, _ = attack.end(process)
    return attack.outcome(attack.runs[0], None if status == INTERRUPTED else status)


def stop_one(attack: Attack) -> str:
    """SIGSTOP of a process of the data plane for a while."""
    process = attack.start()
    attack.some_time(3)
    others = attack.family(process)[1:]
    if others:
        pid = attack.chance.choice(others)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(attack.chance.uniform(0.05, 0.8))
            os.kill(pid, signal.SIGCONT)
    status, _ = attack.end(process)
    return attack.outcome(attack.runs[0], status)


def full_disk(attack: Attack) -> str:
    """While it is measured, somebody else fills the disk but for a few KiB to MiB."""
    disk = attack.place.path / "disk"
    disk.mkdir()
    left = int(2 ** attack.chance.uniform(12, 23))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(disk)], check=True)
    try:
        process = attack.start(folder="disk")
        attack.some_time(4)
        with suppress(OSError), (disk / "others").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(disk).free - left))
        status, errors = attack.end(process)
        said = attack.outcome(attack.runs[0], None if status else status)
        if said == "whole" and status == 1 and "tailscope finish" not in errors:
            raise BrokenPromiseError(f"exit status 1 with a whole run: {errors.strip()[-200:]}")
        return said
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def cleans_at_once(attack: Attack) -> str:
    """A killed measurement, and six who clean up after it."""
    said = kill_all(attack)
    attack.expect(ENDED_WELL, *(attack.command("clean") for _ in range(6)))
    return said


def clean_the_living(attack: Attack) -> str:
    """A live run is none of `clean`'s business."""
    process = attack.start()
    while process.poll() is None:
        attack.expect(ENDED_WELL, attack.command("clean"))
    attack.expect(ENDED_WELL, process)
    return attack.outcome(attack.runs[0], ENDED_WELL)


def private_mounts(attack: Attack) -> str:
    """A live run whose folder nobody else sees."""
    mount = 'mount -t tmpfs none "$XDG_RUNTIME_DIR" && exec "$@"'
    process = attack.start(before=("unshare", "--mount", "sh", "-c", mount, "-"))
    while process.poll() is None:
        attack.expect(ENDED_WELL, attack.command("clean"))
    attack.expect(ENDED_WELL, process)
    return attack.outcome(attack.runs[0], ENDED_WELL)


def two_runs(attack: Attack) -> str:
    """Two at once, on the same CPUs."""
    attack.expect(ENDED_WELL, attack.start(), attack.start())
    return "; ".join(attack.outcome(run, ENDED_WELL) for run in attack.runs)


def two_users(attack: Attack) -> str:
    """Another user measures while root cleans."""
    if attack.setting.as_root:
        return "not for this setting"
    give_to_nobody(attack.place)
    process = attack.start(before=NOBODY_S)
    while process.poll() is None:
        attack.expect(ENDED_WELL, attack.command("clean"))
    status, errors = attack.end(process)
    if status and "Permission denied" in errors:
        return "not reachable"
    if status:
        raise BrokenPromiseError(errors.strip()[-200:])
    return attack.outcome(attack.runs[0], status)


def pressure(attack: Attack) -> str:
    """Everything else wants the CPUs, the memory and the disk."""
    load = ("stress-ng", "--cpu", "2", "--vm", "1", "--vm-bytes", "256m", "--hdd", "1")
    place = str(attack.place.path)
    stress = subprocess.Popen(
        [*load, "--hdd-bytes", "32m", "--temp-path", place, "--quiet"], start_new_session=True
    )
    try:
        process = attack.start()
        status, _ = attack.end(process)
    finally:
        stress.terminate()
        stress.wait()
    return attack.outcome(attack.runs[0], status)


def kill_tuned(attack: Attack) -> str:
    """A run that has tuned the host is killed: the host is as it was."""
    before = _knobs(attack)
    process = attack.start("--tune")
    attack.some_time()
    for pid in attack.family(process):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    attack.end(process)
    attack.end(attack.command("host", "revert"))
    if (after := _knobs(attack)) != before:
        changed = [name for name in before if after.get(name) != before[name]]
        raise BrokenPromiseError(f"knobs are not what they were: {', '.join(changed)}")
    return attack.outcome(attack.runs[0], None)


def _knobs(attack: Attack) -> dict[str, object]:
    done = subprocess.run(
        [*COMMAND, "host", "audit", "--cpus", "0-1", "--json", "-"],
        capture_output=True,
        text=True,
        env=attack.place.environment,
    )
    found = json.loads(done.stdout)
    return {each["name"]: each["as_is"] for each in found["knobs"]}


SCENARIOS = (
    Scenario("nothing happens", nothing),
    Scenario("SIGKILL of one process", kill_one),
    Scenario("SIGKILL of all", kill_all),
    Scenario("a signal", interrupt),
    Scenario("two signals", interrupt_twice),
    Scenario("SIGSTOP for a while", stop_one),
    Scenario("a full disk", full_disk, as_root=True, program="mount"),
    Scenario("six cleans at once", cleans_at_once),
    Scenario("cleans beside a live run", clean_the_living),
    Scenario("a private mount", private_mounts, as_root=True, program="unshare"),
    Scenario("two runs at once", two_runs),
    Scenario("two users", two_users, as_root=True, program="setpriv"),
    Scenario("pressure", pressure, program="stress-ng"),
    Scenario("SIGKILL of a tuned run", kill_tuned, as_root=True),
)
