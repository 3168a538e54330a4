"""Ways to attack a measurement; each says what became of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq
from measurements import NOBODY
from runs import records, sound

from .attack import (
    ENDED_WELL,
    INTERRUPTED,
    LASTS_S,
    MEMIF,
    NOBODY_S,
    PARTIAL,
    BrokenPromiseError,
    SteppingClock,
)
from .machine import (
    IS_ROOT,
    can_limit_memory,
    contents,
    copied_settings,
    fill,
    full_disk,
    little_memory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from .attack import Attack

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED_S = (0.05, 3.0)
LOADS = (
    ("--cpu", "2", "--sched", "other"),
    ("--vm", "2", "--vm-bytes", "1g", "--vm-method", "flip"),
    ("--hdd", "2", "--hdd-bytes", "64m", "--hdd-opts", "fsync"),
)
STEPS_S = (-86_400.0, -3600.0, -0.2, 0.01, 2.0, 3600.0)
APART_S = 60
"""No measurement here takes longer."""
CAMPAIGN = f"""\
name: chaos
fixed: {{duration: 300ms, warm_up: 0s, rate: 20k}}
vary: {{dut: [l2fwd, {"bridge" if IS_ROOT else "delay"}]}}
repeats: 2
"""


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
    is_possible : bool
        Whether this machine has what else it needs.
    """

    name: str
    carry_out: Callable[[Attack], str]
    as_root: bool = False
    program: str = ""
    is_possible: bool = True

    @property
    def is_there(self) -> bool:
        """Whether it can be carried out here."""
        has = not self.program or shutil.which(self.program) is not None
        return has and self.is_possible and (IS_ROOT or not self.as_root)


# --- kills, stops and signals --------------------------------------------------


def nothing(attack: Attack) -> str:
    process = attack.start()
    attack.expect(ENDED_WELL, process)
    return attack.outcome(attack.runs[0], ENDED_WELL)


def kill_one(attack: Attack) -> str:
    """SIGKILL of one of the processes, the supervisor among them."""
    process = attack.start()
    attack.moment(process)
    with suppress(ProcessLookupError, IndexError):
        os.kill(attack.chance.choice(attack.family(process)), signal.SIGKILL)
    status, _ = attack.end(process)
    return attack.outcome(attack.runs[0], None if status < 0 else status)


def kill_all(attack: Attack) -> str:
    """SIGKILL of all processes, one after the other."""
    process = attack.start()
    attack.moment(process)
    attack.kill(process)
    attack.end(process)
    return attack.outcome(attack.runs[0], None)


def kill_device(attack: Attack) -> str:
    """SIGKILL of what forwards, while packets fly: the generator goes on, and the run is kept."""
    process = attack.start(lasts_s=2 * LASTS_S)
    attack.wait(process)
    generator = attack.child(process, "gen")
    others = [pid for pid in attack.family(process)[1:] if pid != generator]
    if generator is None or not others:
        return attack.outcome(attack.runs[0], attack.end(process)[0])
    with suppress(ProcessLookupError):
        os.kill(attack.chance.choice(others), signal.SIGKILL)
    status, errors = attack.end(process)
    if "no packet was sent: " in errors:
        # The generator waited for its links: there is nothing to keep.
        return attack.outcome(attack.runs[0], status)
    return attack.kept(attack.runs[0], status, errors)


def interrupt(attack: Attack) -> str:
    """One signal: from when there are packets on, what they say is kept."""
    process = attack.start()
    attack.moment(process)
    had_measured, had_sent = attack.has_measured(process), attack.has_sent(process)
    process.send_signal(attack.chance.choice(ENDING))
    status, errors = attack.end(process)
    said = attack.outcome(attack.runs[0], None if status == INTERRUPTED else status)
    if had_measured and said != "whole":
        raise BrokenPromiseError(f"all was measured, and kept is: {said}: {errors.strip()[-200:]}")
    if had_sent and said not in {"whole", "partial"}:
        raise BrokenPromiseError(f"packets had flown, and kept is: {said}: {errors.strip()[-200:]}")
    return said


def interrupt_twice(attack: Attack) -> str:
    process = attack.start()
    attack.moment(process)
    process.send_signal(attack.chance.choice(ENDING))
    attack.some_time(1)
    process.send_signal(attack.chance.choice(ENDING))
    status, _ = attack.end(process)
    return attack.outcome(attack.runs[0], None if status == INTERRUPTED else status)


def _stop(attack: Attack, process: subprocess.Popen[str], pid: int | None) -> str:
    """Stop a process for a while."""
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(attack.chance.uniform(*STOPPED_S))
            os.kill(pid, signal.SIGCONT)
    return attack.kept(attack.runs[0], *attack.end(process))


def stop_supervisor(attack: Attack) -> str:
    process = attack.start()
    attack.moment(process)
    return _stop(attack, process, None if process.poll() is not None else process.pid)


def stop_generator(attack: Attack) -> str:
    process = attack.start()
    attack.moment(process)
    return _stop(attack, process, attack.child(process, "gen"))


def stop_device(attack: Attack) -> str:
    """SIGSTOP of what forwards, or of what keeps it: a container, a guest."""
    process = attack.start()
    attack.moment(process)
    generator = attack.child(process, "gen")
    others = [pid for pid in attack.family(process)[1:] if pid != generator]
    return _stop(attack, process, attack.chance.choice(others) if others else None)


# --- no room -------------------------------------------------------------------


def _filled(attack: Attack, disk: Path, folder: str) -> str:
    """While it is measured, somebody else fills a disk but for a few KiB to MiB."""
    left_bytes = int(2 ** attack.chance.uniform(12, 23))
    with full_disk(disk):
        process = attack.start(folder=folder)
        attack.moment(process)
        fill(disk, left_bytes)
        status, errors = attack.end(process)
        (disk / "others").unlink(missing_ok=True)
        said = attack.outcome(attack.runs[0], None if status else status)
        if said == "whole" and status == 1 and "tailscope runs finish" not in errors:
            raise BrokenPromiseError(f"exit status 1 with a whole run: {errors.strip()[-200:]}")
        if status and "error: " not in errors and said == "nothing":
            raise BrokenPromiseError(f"exit status {status}, and it says: {errors.strip()[-200:]}")
        attack.expect(ENDED_WELL, attack.command("runs", "clean"))
        return said


def fill_out(attack: Attack) -> str:
    """The disk of the run directory."""
    disk = attack.place.path / "disk"
    disk.mkdir()
    return _filled(attack, disk, "disk")


def fill_private(attack: Attack) -> str:
    """The disk of the measurement's own folder: recordings, sockets."""
    return _filled(attack, attack.place.path / "run", "")


def memory(attack: Attack) -> str:
    """So little memory that the kernel may end some process of the measurement."""
    limit_bytes = int(attack.chance.uniform(60, 600) * 2**20)
    with little_memory(attack.place.path.name, limit_bytes) as before:
        process = attack.start(before=before)
        status, _ = attack.end(process)
        said = attack.outcome(attack.runs[0], None if status < 0 else status)
        attack.expect(ENDED_WELL, attack.command("runs", "clean"))
    return said


def pressure(attack: Attack) -> str:
    """Everything else wants the CPUs, the memory or the disk."""
    load = attack.chance.choice(LOADS)
    place = str(attack.place.path)
    stress = subprocess.Popen(
        ["stress-ng", *load, "--temp-path", place, "--quiet"], start_new_session=True
    )
    try:
        ended = attack.end(attack.start())
    finally:
        stress.terminate()
        stress.wait()
    return attack.kept(attack.runs[0], *ended)


# --- others on the machine -------------------------------------------------------


def cleans_at_once(attack: Attack) -> str:
    """A killed measurement, and six who clean up after it."""
    said = kill_all(attack)
    attack.expect(ENDED_WELL, *(attack.command("runs", "clean") for _ in range(6)))
    return said


def clean_the_living(attack: Attack) -> str:
    """A live run is none of `clean`'s business."""
    return _cleaned_beside(attack, attack.start())


def private_mounts(attack: Attack) -> str:
    """A live run whose folder nobody else sees."""
    mount = 'mount -t tmpfs none "$XDG_RUNTIME_DIR" && exec "$@"'
    return _cleaned_beside(
        attack, attack.start(before=("unshare", "--mount", "sh", "-c", mount, "-"))
    )


def _cleaned_beside(attack: Attack, process: subprocess.Popen[str]) -> str:
    while process.poll() is None:
        attack.expect(ENDED_WELL, attack.command("runs", "clean"))
    return attack.kept(attack.runs[0], *attack.end(process))


def two_runs(attack: Attack) -> str:
    """Two at once, on the same CPUs."""
    processes = [attack.start(), attack.start()]
    return _worst(
        attack.kept(run, *attack.end(process))
        for run, process in zip(attack.runs, processes, strict=True)
    )


def two_into_one(attack: Attack) -> str:
    """Two at once that want the same run directory: one gets it, whole."""
    first = attack.start()
    attack.some_time()
    second = attack.start(out=attack.runs[0])
    ended = [attack.end(process) for process in (first, second)]
    statuses = [status for status, _ in ended]
    if statuses.count(ENDED_WELL) + statuses.count(PARTIAL) != 2:
        raise BrokenPromiseError(f"exit statuses {statuses}: {ended[1][1].strip()[-200:]}")
    said = attack.outcome(attack.runs[0], None)
    if said not in {"whole", "partial"} or (statuses == [1, 1] and said == "whole"):
        raise BrokenPromiseError(f"exit statuses {statuses}, and kept is: {said}")
    return said


def two_users(attack: Attack) -> str:
    """Root and an ordinary user in one sticky folder; one is killed, and both clean up."""
    place = attack.place.path
    place.chmod(0o755)
    shared, theirs = place / "shared", place / "theirs"
    for folder, mode in ((shared, 0o1777), (theirs, 0o755)):
        folder.mkdir()
        folder.chmod(mode)
    os.chown(theirs, NOBODY, NOBODY)
    ours = {**attack.place.environment, "TMPDIR": str(shared)}
    del ours["XDG_RUNTIME_DIR"]
    their = {**ours, "XDG_STATE_HOME": str(theirs / "state"), "HOME": str(theirs)}
    processes = [
        attack.start(environment=ours),
        attack.start(before=NOBODY_S, out=theirs / "out", setting=MEMIF, environment=their),
    ]
    killed = attack.chance.choice([0, 1, None])
    if killed is not None:
        attack.some_time()
        attack.kill(processes[killed])
    while any(process.poll() is None for process in processes):
        both = [attack.command("runs", "clean", environment=ours)]
        both.append(attack.command("runs", "clean", before=NOBODY_S, environment=their))
        attack.expect(ENDED_WELL, *both)
    said = []
    for number, (process, run) in enumerate(zip(processes, attack.runs, strict=True)):
        status, errors = attack.end(process)
        if number and "Permission denied" in errors:
            return "not reachable"
        was_killed = number == killed and status < 0
        said.append(attack.outcome(run, None) if was_killed else attack.kept(run, status, errors))
    attack.expect(ENDED_WELL, attack.command("runs", "clean", environment=ours))
    if left := [path.name for path in shared.iterdir()]:
        raise BrokenPromiseError(f"left after clean: {', '.join(left)}")
    return _worst(said)


def _worst(said: Iterable[str]) -> str:
    order = ("nothing", "unfinished", "recorded", "partial", "whole")
    return min(said, key=order.index)


# --- settings of the host ----------------------------------------------------------


def _killed_with_settings(attack: Attack, most_s: float, *words: str) -> None:
    """Kill a command that sets knobs, on copies of them, and revert; nothing else is changed."""
    copies = attack.place.path / "settings"
    before = copied_settings(copies, attack.host)
    as_was = contents(copies)
    process = attack.command(*words, before=before)
    attack.some_time(most_s)
    attack.kill(process)
    attack.end(process)
    attack.expect(ENDED_WELL, attack.command("host", "revert", before=before))
    now = contents(copies)
    changed = [path for path in as_was if now.get(path) != as_was[path]]
    if changed or list((copies / "journal").glob("*.jsonl")):
        raise BrokenPromiseError(f"knobs are not what they were: {', '.join(changed)}")


def kill_tuned(attack: Attack) -> str:
    """A run that has tuned the host is killed: the host is as it was."""
    out = attack.place.path / "out"
    options = (*attack.setting.options, "--duration", f"{LASTS_S:g}s", "--tune")
    _killed_with_settings(attack, attack.setting.takes_s, "run", *options, "--out", str(out))
    return attack.outcome(out, None)


def kill_apply(attack: Attack) -> str:
    every = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    for _ in range(3):
        _killed_with_settings(attack, 1.5, "host", "apply", "--yes", "--cpus", every)
        shutil.rmtree(attack.place.path / "settings")
    return "as it was"


# --- clocks --------------------------------------------------------------------------


def step_clock(attack: Attack) -> str:
    """The wall clock of all that measures steps, once or more: no time may be taken by it."""
    clock = SteppingClock(attack.place)
    process = attack.start("--counter-interval", "200ms", environment=clock.environment)
    while process.poll() is None:
        attack.some_time(2)
        clock.step(attack.chance.choice(STEPS_S))
    said = attack.kept(attack.runs[0], *attack.end(process))
    _check_times(attack.runs[0])
    return said


def other_monotonic(attack: Attack) -> str:
    """A monotonic clock that is days off the kernel's: of a time namespace."""
    before_s = -int(time.monotonic() / 2)
    days_s = attack.chance.choice([before_s, 86_400, 30 * 86_400])
    before = ("unshare", "--time", "--monotonic", str(days_s), "--boottime", str(days_s))
    process = attack.start("--counter-interval", "200ms", before=before)
    said = attack.kept(attack.runs[0], *attack.end(process))
    _check_times(attack.runs[0])
    return said


def _check_times(run: Path) -> None:
    """All tables of a run tell one time, or it says that they do not."""
    says_so = "the clock of this machine was set" in str(sound(run)["warnings"])
    sent = pq.read_table(run / "latency.parquet")["pre_ns"].to_numpy()
    for table, column in (("noise", "start_ns"), ("interrupts", "unix_ns")):
        path = run / f"{table}.parquet"
        if not path.exists():
            continue
        times = pq.read_table(path)[column].to_pylist()
        off_s = max((abs(at - int(sent[0])) / 1e9 for at in times), default=0)
        if off_s > APART_S and not says_so:
            raise BrokenPromiseError(f"{table}.parquet: {off_s:g} s from the packets")


# --- experiments -----------------------------------------------------------------------


def kill_campaign(attack: Attack) -> str:
    """An experiment that is killed twice and resumed: each cell is there once, and whole.

    What was recorded of a cell that was killed goes aside, and can be finished.
    """
    out, file = attack.place.path / "out", attack.place.path / "chaos.yaml"
    file.write_text(CAMPAIGN)
    words = ["run", str(file), "--out", str(out)]
    done: dict[str, int] = {}
    for _ in range(2):
        process = attack.command(*words, *_resumed(out))
        attack.some_time(12)
        attack.chance.choice([attack.kill, subprocess.Popen.kill, _interrupt])(process)
        attack.end(process)
        _check_cells(out, done)
    status, errors = attack.end(attack.command(*words, *_resumed(out)))
    _check_cells(out, done)
    cells = records(out)
    states = {cell["state"] for cell in cells}
    runs = sorted(run for cell in cells for run in cell["runs"])
    aside = [path for path in out.glob("*-kept-*") if path.is_dir()]
    folders = sorted(
        {path.name for path in out.iterdir() if path.is_dir()} - {p.name for p in aside}
    )
    if status != ENDED_WELL or states != {"done"} or runs != folders or len(runs) != 4:
        said = errors.strip()[-200:]
        raise BrokenPromiseError(f"exit status {status}, {states}, {runs}, {folders}: {said}")
    for path in aside:
        if (said := attack.outcome(path, None)) != "recorded":
            raise BrokenPromiseError(f"{path.name}: kept is: {said}")
    return _worst(attack.outcome(out / run, ENDED_WELL) for run in runs)


def _interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def _resumed(out: Path) -> list[str]:
    return ["--resume"] if (out / "campaign.json").exists() else []


def _check_cells(out: Path, done: dict[str, int]) -> None:
    """No cell that was done is done again, or lost."""
    if not (out / "campaign.json").exists():
        return
    for cell in records(out):
        if cell["lasted_s"] is not None and cell["lasted_s"] < 0:
            raise BrokenPromiseError(f"{cell['name']}: lasted {cell['lasted_s']} s")
        if cell["state"] != "done":
            continue
        for run in cell["runs"]:
            sound(out / run)
            made_ns = (out / run / "run.json").stat().st_mtime_ns
            if done.setdefault(run, made_ns) != made_ns:
                raise BrokenPromiseError(f"{run} was made twice")
    lost = done.keys() - {run for cell in records(out) for run in cell["runs"]}
    if lost:
        raise BrokenPromiseError(f"{', '.join(lost)}: done before, and lost")


def stepped_campaign(attack: Attack) -> str:
    """The wall clock steps while an experiment is carried out."""
    clock = SteppingClock(attack.place)
    out, file = attack.place.path / "out", attack.place.path / "chaos.yaml"
    file.write_text(CAMPAIGN.replace("repeats: 2", "repeats: 1"))
    process = attack.command("run", str(file), "--out", str(out), environment=clock.environment)
    while process.poll() is None:
        attack.some_time(2)
        clock.step(attack.chance.choice(STEPS_S))
    attack.expect(ENDED_WELL, process)
    _check_cells(out, {})
    return _worst(attack.outcome(out / run, 0) for cell in records(out) for run in cell["runs"])


SCENARIOS = (
    Scenario("nothing happens", nothing),
    Scenario("SIGKILL of one process", kill_one),
    Scenario("SIGKILL of all", kill_all),
    Scenario("SIGKILL of the device", kill_device),
    Scenario("a signal", interrupt),
    Scenario("two signals", interrupt_twice),
    Scenario("SIGSTOP of the supervisor", stop_supervisor),
    Scenario("SIGSTOP of the generator", stop_generator),
    Scenario("SIGSTOP of the device", stop_device),
    Scenario("a full disk", fill_out, as_root=True, program="mount"),
    Scenario("a full runtime folder", fill_private, as_root=True, program="mount"),
    Scenario("little memory", memory, as_root=True, is_possible=can_limit_memory()),
    Scenario("pressure", pressure, program="stress-ng"),
    Scenario("six cleans at once", cleans_at_once),
    Scenario("cleans beside a live run", clean_the_living),
    Scenario("a private mount", private_mounts, as_root=True, program="unshare"),
    Scenario("two runs at once", two_runs),
    Scenario("two runs into one folder", two_into_one),
    Scenario("two users in a sticky folder", two_users, as_root=True, program="setpriv"),
    Scenario("SIGKILL of a tuned run", kill_tuned, as_root=True, program="unshare"),
    Scenario("SIGKILL of host apply", kill_apply, as_root=True, program="unshare"),
    Scenario("a wall clock that steps", step_clock, program="cc"),
    Scenario("another monotonic clock", other_monotonic, as_root=True, program="unshare"),
    Scenario("SIGKILL of an experiment", kill_campaign),
    Scenario("an experiment, the clock steps", stepped_campaign, program="cc"),
)
