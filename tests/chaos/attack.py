"""A measurement that is attacked, and what must hold afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements import NOBODY, Place, polls
from runs import MEASUREMENT, sound

from tailscope.store.files import holds_packets

from .machine import IS_ROOT, carrying, semaphores, settings, shared_memory

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

COMMAND = (sys.executable, "-m", "tailscope")
LASTS_S = 2.0
PATIENCE_S = 240
LOOKS_S = 0.05
"""How often to look at what is attacked: what a measurement is called, whether packets flow."""
OFTEN = 0.5
OTHERS_S = 120
"""Others may tune this machine, too, and take it back; what attacks have left stays."""
ENDED_WELL = 0
PARTIAL = 1
INCONCLUSIVE = 3
INTERRUPTED = 130
FEW_SENT = "of the packets could be sent"
"""What a run warns of that ends with 3, as one does whose generator was stopped for most of it."""
DATAPLANE = "tailscope-dp"
DPDK_PROGRAM = Path(__file__).parents[2] / "python/tailscope/bin/tailscope-dp"


class Setting(NamedTuple):
    """What is measured, and over what.

    Attributes
    ----------
    name : str
    options : tuple of str
        Of `tailscope run`.
    as_root : bool
    needs : tuple of str
        Programs, or files, that it takes.
    takes_s : float
        From the command's start to its end: long ones are attacked as long as short ones, not as
        often.
    """

    name: str
    options: tuple[str, ...]
    as_root: bool = False
    needs: tuple[str, ...] = ()
    takes_s: float = 7

    @property
    def is_there(self) -> bool:
        """Whether this machine has what it needs."""
        has = all(shutil.which(each) or Path(each).exists() for each in self.needs)
        return has and (IS_ROOT or not self.as_root)


_RATE = ("--rate", "20k")
_GUEST = ("--platform", "vm", "--rate", "500")
_GUESTS = ("qemu-system-x86_64", "busybox", "cpio", f"{sys.prefix}/share/tailscope/kernels/vanilla")
_ANY = f"run='{DPDK_PROGRAM}' l2fwd -l {{cpus}} --no-telemetry {{eal}} -- --die-with-parent"

MEMIF = Setting("memif, l2fwd", ("--dut", "l2fwd", *_RATE))
SETTINGS = (
    MEMIF,
    Setting("memif, delay", ("--dut", "delay", "--noise", "stalls", *_RATE)),
    Setting(
        "memif, command",
        ("--dut", "command", "--dut-option", _ANY, "--dut-option", 'ready="event":"ready"', *_RATE),
    ),
    Setting(
        "memif, suricata", ("--dut", "suricata", "--rate", "2k"), needs=("suricata",), takes_s=8
    ),
    Setting("memif, snort", ("--dut", "snort", "--rate", "2k"), needs=("snort",), takes_s=8),
    Setting("veth, l2fwd", ("--dut", "l2fwd", "--wire", "veth", *_RATE), as_root=True),
    Setting(
        "veth by AF_XDP, l2fwd",
        ("--dut", "l2fwd", "--wire", "veth", "--wire-option", "driver=af_xdp", *_RATE),
        as_root=True,
    ),
    Setting("veth, bridge", ("--dut", "bridge", *_RATE), as_root=True),
    Setting("veth, router", ("--dut", "router", *_RATE), as_root=True),
    Setting("veth, mirred", ("--dut", "mirred", *_RATE), as_root=True, needs=("tc",)),
    Setting(
        "veth, XDP",
        ("--dut", "xdp", *_RATE),
        as_root=True,
        # Its programs want this event, which not all kernels have.
        needs=("xdp-bench", "/sys/kernel/tracing/events/xdp/xdp_redirect_map_err"),
    ),
    Setting(
        "veth, suricata",
        ("--dut", "suricata", "--wire", "veth", "--rate", "2k"),
        as_root=True,
        needs=("suricata",),
        takes_s=8,
    ),
    Setting(
        "lxc, l2fwd",
        ("--dut", "l2fwd", "--platform", "lxc", *_RATE),
        as_root=True,
        needs=("lxc-execute",),
    ),
    Setting(
        "lxc, bridge",
        ("--dut", "bridge", "--platform", "lxc", *_RATE),
        as_root=True,
        needs=("lxc-execute",),
        takes_s=8,
    ),
    Setting(
        "veth, nftables",
        ("--dut", "nftables", "--dut-option", "nat=masquerade", *_RATE),
        as_root=True,
        needs=("nft",),
    ),
    Setting(
        "veth, wireguard",
        ("--dut", "wireguard", "--dut-option", "implementation=wireguard-go", "--rate", "2k"),
        as_root=True,
        needs=("wg", "wireguard-go"),
    ),
    Setting("memif, ovs", ("--dut", "ovs", *_RATE), needs=("ovs-vsctl",), takes_s=8),
    Setting(
        "podman, l2fwd",
        ("--dut", "l2fwd", "--platform", "podman", *_RATE),
        needs=("podman",),
        takes_s=8,
    ),
    Setting("vm, l2fwd", ("--dut", "l2fwd", *_GUEST), needs=_GUESTS, takes_s=60),
    Setting("vm, XDP", ("--dut", "xdp", *_GUEST), needs=(*_GUESTS, "xdp-bench"), takes_s=60),
)


class BrokenPromiseError(AssertionError):
    """Something that must always hold does not."""


@dataclass
class Attack:
    """Measurements in a home of their own.

    Attributes
    ----------
    chance : Random
    setting : Setting
    place : Place
    host : Mapping of str to str
        The machine's settings, as they must be afterwards.
    runs : list of Path
        Where the runs go.
    names : set of str
        Of measurements that were seen.
    """

    chance: random.Random
    setting: Setting
    place: Place
    host: Mapping[str, str]
    runs: list[Path] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    _started: list[subprocess.Popen[str]] = field(default_factory=list)
    _sending: dict[int, bool] = field(default_factory=dict)

    @property
    def patience_s(self) -> float:
        """How long anything may take."""
        return max(PATIENCE_S, 10 * self.setting.takes_s)

    def start(
        self,
        *more: str,
        lasts_s: float = LASTS_S,
        before: tuple[str, ...] = (),
        folder: str = "",
        out: Path | None = None,
        setting: Setting | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a run; `before` is what it is started by, `folder` where its directory goes."""
        out = out or self.place.path / folder / f"out{len(self.runs)}"
        self.runs.append(out)
        options = ("--duration", f"{lasts_s:g}s", "--warm-up", "0s")
        words = ("run", *(setting or self.setting).options, *options, *more, "--out", str(out))
        return self.command(*words, before=before, environment=environment)

    def command(
        self,
        *words: str,
        before: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command."""
        process = subprocess.Popen(
            [*before, *COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment or self.place.environment,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def look(self) -> None:
        """See what measurements are called, and which of them send."""
        for process in self._started:
            if process.poll() is None:
                root = Path(f"/proc/{process.pid}/root{self.place.path}")
                with suppress(OSError):
                    self._name(path.name for path in root.glob("*/tailscope-*"))
                generator = self.child(process, "gen")
                if generator is not None and polls(generator):
                    self._sending[process.pid] = True
                elif generator is None and process.pid in self._sending:
                    self._sending[process.pid] = False

    def _name(self, texts: Iterator[str]) -> None:
        self.names.update(found[0] for text in texts if (found := MEASUREMENT.match(text)))

    def has_sent(self, process: subprocess.Popen[str]) -> bool:
        """Whether packets have flowed, as far as was seen."""
        return process.pid in self._sending

    def has_measured(self, process: subprocess.Popen[str]) -> bool:
        """Whether the traffic was seen to end."""
        return self._sending.get(process.pid) is False

    def some_time(self, most_s: float | None = None) -> None:
        """Wait for up to as long as a run takes, set-up and analysis included."""
        busy = min(2.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
        longest_s = busy * (most_s or self.setting.takes_s + 1)
        ends_s = time.monotonic() + self.chance.uniform(0, longest_s)
        while time.monotonic() < ends_s:
            self.look()
            time.sleep(LOOKS_S)

    def moment(self, process: subprocess.Popen[str]) -> None:
        """Wait for any moment of a run, or for one from its packets on: those are few."""
        if self.chance.random() < OFTEN:
            self.wait(process)
            self.some_time(LASTS_S)
        else:
            self.some_time()
            self.look()

    def wait(self, process: subprocess.Popen[str]) -> None:
        """Wait until there are packets, or the command has ended."""
        while process.poll() is None and not self.has_sent(process):
            self.look()
            time.sleep(LOOKS_S)

    def family(self, process: subprocess.Popen[str]) -> list[int]:
        """A process and all that it has started."""
        found, left = [], [process.pid]
        while left:
            pid = left.pop()
            found.append(pid)
            with suppress(OSError):
                for path in Path(f"/proc/{pid}/task").glob("*/children"):
                    left += map(int, path.read_text().split())
        return found

    def child(self, process: subprocess.Popen[str], program: str) -> int | None:
        """A process of the data plane; one that is not a guest's, while that boots."""
        for pid in self.family(process)[1:]:
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                is_wanted = Path(words[0]).name == DATAPLANE and words[1] == program
                if is_wanted and any(word.startswith("--record=") for word in words):
                    return pid
        return None

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for a command: its exit status, and what it said last."""
        ends_s = time.monotonic() + self.patience_s
        while True:
            self.look()
            try:
                _, errors = process.communicate(timeout=LOOKS_S)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > ends_s:
                    self.kill(process)
                    process.communicate()
                    said = f"did not end within {self.patience_s:g} s"
                    raise BrokenPromiseError(said) from None
        if "this is a bug" in errors or "Traceback" in errors:
            raise BrokenPromiseError(errors.strip()[-400:])
        return process.returncode, errors

    def kill(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL of a command and of all that it has started."""
        for pid in self.family(process):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def give_up(self) -> None:
        """End what an attack that failed has left."""
        for process in self._started:
            if process.poll() is None:
                self.kill(process)
                process.communicate()

    def expect(self, status: int, *processes: subprocess.Popen[str]) -> None:
        """Commands must end so."""
        for process in processes:
            got, errors = self.end(process)
            if got != status:
                said = errors.strip()[-200:]
                raise BrokenPromiseError(f"exit status {got} instead of {status}: {said}")

    def outcome(self, run: Path, status: int | None) -> str:
        """What became of a run directory; None stands for a command that was cut short."""
        if not run.exists():
            if status == ENDED_WELL:
                raise BrokenPromiseError("it ended well, and left no run")
            return "nothing"
        try:
            complete = json.loads((run / "run.json").read_text())["complete"]
        except FileNotFoundError:
            complete = False
        is_recorded = holds_packets(run)
        if is_recorded:
            if status == ENDED_WELL:
                raise BrokenPromiseError("it ended well, and its recordings are not analysed")
            self.expect(ENDED_WELL, self.command("runs", "finish", str(run)))
        elif not complete:
            if status in {ENDED_WELL, INTERRUPTED}:
                raise BrokenPromiseError(f"exit status {status} with a run that is not whole")
            return "unfinished"
        with _promised(f"{run.name}: "):
            partial = sound(run)["partial"]
        self.expect(ENDED_WELL, self.command("runs", "show", str(run), "--verify", "--json", "-"))
        if not (run / "report.html").exists():
            self.expect(ENDED_WELL, self.command("runs", "finish", str(run)))
        if is_recorded:
            return "recorded"
        return "partial" if partial else "whole"

    def kept(self, run: Path, status: int, errors: str) -> str:
        """What became of a run that nobody wanted to end: it is kept, and says so."""
        said = self.outcome(run, status)
        ends = {(ENDED_WELL, "whole"), (PARTIAL, "partial")}
        if FEW_SENT in errors:
            ends.add((INCONCLUSIVE, "whole"))
        if (status, said) not in ends:
            last = errors.strip()[-300:]
            raise BrokenPromiseError(f"exit status {status}, and kept is: {said}: {last}")
        return said

    def check_clean(self) -> None:
        """Clean, and see that nothing is left, and the machine as it was."""
        self.look()
        self.expect(ENDED_WELL, self.command("runs", "clean"))
        self.expect(ENDED_WELL, self.command("runs", "clean"))
        for kept in self.place.path.glob("*/tailscope-*-recording*"):
            # It is nobody's to remove but the user's.
            if holds_packets(kept):
                self.expect(ENDED_WELL, self.command("runs", "finish", str(kept)))
            shutil.rmtree(kept)
        folders = [path for name in ("run", "tmp") for path in self.place.path.glob(f"{name}/*")]
        left = [*map(str, folders), *self.place.left(), *carrying(self.names)]
        left += [*shared_memory(), *semaphores()]
        if left:
            raise BrokenPromiseError(f"left after clean: {', '.join(left)[:300]}")
        ends_s = time.monotonic() + OTHERS_S
        while changed := self._changed():
            if time.monotonic() > ends_s:
                raise BrokenPromiseError(f"the machine is not as it was: {', '.join(changed)}")
            time.sleep(1)

    def _changed(self) -> list[str]:
        """Settings that are not what they were."""
        return [path for path, text in settings(self.host).items() if text != self.host[path]]


@contextlib.contextmanager
def _promised(where: str) -> Iterator[None]:
    """What tests assert of every run is a promise here."""
    try:
        yield
    except BrokenPromiseError:
        raise
    except Exception as error:
        raise BrokenPromiseError(f"{where}{type(error).__name__}: {error}") from error


@contextlib.contextmanager
def home() -> Iterator[Place]:
    """A private place for measurements."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        path = Path(folder)
        for name in ("run", "tmp"):
            (path / name).mkdir(mode=0o700)
        environment = {
            "XDG_RUNTIME_DIR": str(path / "run"),
            "XDG_STATE_HOME": str(path / "state"),
            "TMPDIR": str(path / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        yield Place(path, {**os.environ, **environment})
        # LXC keeps the empty folders above the locks of containers, for others that may come.
        shutil.rmtree(f"/run/lxc/lock{path}", ignore_errors=True)


class SteppingClock:
    """A wall clock of some commands' own, which can be stepped.

    Attributes
    ----------
    environment : dict of str to str
        Of the commands.
    """

    def __init__(self, place: Place) -> None:
        self._file = place.path / "step"
        library = place.path / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
        own = {"CHAOS_CLOCK": str(self._file), "LD_PRELOAD": str(library)}
        self.environment = {**place.environment, **own}
        self.step(0)

    def step(self, by_s: float) -> None:
        """Be so far off the machine's clock."""
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(handle, struct.pack("q", int(1e9 * by_s)))
        os.close(handle)


NOBODY_S = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
