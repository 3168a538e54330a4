"""The recorder of kernel events, on this machine's kernel."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from errors import raises
from measurements import NOBODY
from runs import AS_ROOT, needed

from tailscope.engine.analysis import Clock
from tailscope.exceptions import AnalysisError, TestbedError
from tailscope.noise import tracer
from tailscope.noise.events import read_events
from tailscope.noise.recorder import NoiseRecorder
from tailscope.noise.tracer import RecordedTrace, Tracer
from tailscope.testbed.clean import clean
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.tracefs import instances, tracefs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.noise.events import Events

CPU = max(os.sched_getaffinity(0))


def burn(lasts_s: float) -> None:
    """Keep a CPU busy, so that it ticks."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CPU})
    end_s = time.monotonic() + lasts_s
    while time.monotonic() < end_s:
        pass
    os.sched_setaffinity(0, before)


BURNT_S = 0.5

SWITCHES = f"""
import os
os.sched_setaffinity(0, {{{CPU}}})
asked, answered = os.pipe(), os.pipe()
child = os.fork()
for _ in range(2000):
    if child:
        os.write(asked[1], b"x")
        os.read(answered[0], 1)
    else:
        os.read(asked[0], 1)
        os.write(answered[1], b"x")
"""
"""Script of two processes that wait for each other: the CPU changes between them each time."""


def recorded(folder: RunFolder, **options: object) -> RecordedTrace:
    with Tracer(folder, [CPU], **options) as running:  # type: ignore[arg-type]
        burn(BURNT_S)
        return running.finish()


def left(folder: RunFolder) -> list[str]:
    """Return the instances of the tracer that belong to a measurement."""
    with tracefs() as root:
        return [name for name in instances(root) if name.startswith(folder.name)]


# Ticks of a made-up counter; with `mono` it is not looked at.
CLOCK = Clock(1_000_000_000, 0, 0)


@AS_ROOT
def test_ticks_are_seen_and_nothing_is_left() -> None:
    with RunFolder() as folder:
        found = recorded(folder)
        assert found.lost == {CPU: 0}
        [events] = read_events(found, CLOCK, [CPU], [os.getpid()])
    timers = events.named("local timer")
    assert len(timers) > 20
    assert events.lost == 0
    assert (events.piece_end_ns > events.piece_start_ns).all()
    assert (events.piece_start_ns[1:] >= events.piece_end_ns[:-1]).all()
    assert not left(folder)


@AS_ROOT
def test_another_clock_has_a_bounded_error() -> None:
    before_ns = time.time_ns()
    with RunFolder() as folder:
        found = recorded(folder, clock="mono")
        [events] = read_events(found, CLOCK, [CPU], [os.getpid()])
    after_ns = time.time_ns()
    assert 0 < found.clock_error_ns < 1_000_000
    timers = events.start_ns[events.named("local timer")]
    slack_ns = found.clock_error_ns
    assert (timers > before_ns - slack_ns).all()
    assert (timers < after_ns + slack_ns).all()
    # How often they come is for other programs to say, too, which have timers of their own.
    assert timers.max() - timers.min() > BURNT_S * 1e9 / 2


@AS_ROOT
def test_a_time_namespace_moves_no_event() -> None:
    """Its monotonic clock is a day ahead of that of the kernel, which stamps the events."""
    needed("unshare")
    script = "import test_tracer; test_tracer.test_another_clock_has_a_bounded_error()"
    done = subprocess.run(
        ["unshare", "--time", "--monotonic", "86400", sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@AS_ROOT
def test_lost_events_are_counted() -> None:
    with RunFolder() as folder, Tracer(folder, [CPU], buffer_kb=8) as running:
        running._end.set()
        running._thread.join()  # type: ignore[union-attr]
        burn(0.2)
        subprocess.run([sys.executable, "-c", SWITCHES], check=True)
        found = running.finish()
        assert found.lost[CPU] > 0
        [events] = read_events(found, CLOCK, [CPU], [os.getpid()])
    assert events.lost >= found.lost[CPU]


@AS_ROOT
def test_what_tailscope_does_itself_is_called_so() -> None:
    with RunFolder() as folder:
        found = recorded(folder)
        [events] = read_events(found, CLOCK, [CPU], [], {os.getpid(): "supervisor"})
    own = events.named("tailscope's supervisor")
    pieces = np.isin(events.piece_event, own)
    assert (events.piece_end_ns - events.piece_start_ns)[pieces].sum() > 0
    notes = {events.details[detail] for detail in events.detail[own].tolist()}
    assert notes == {f"pid {os.getpid()}"}


@AS_ROOT
def test_the_work_of_the_kernels_workers_has_a_name() -> None:
    """The kernel has every CPU bring its statistics up to date."""
    with RunFolder() as folder, Tracer(folder, [CPU]) as running:
        Path("/proc/sys/vm/stat_refresh").read_bytes()
        found = running.finish()
        [events] = read_events(found, CLOCK, [CPU], [])
        [unnamed] = read_events(_without_works(found), CLOCK, [CPU], [])
    assert not any(event.startswith("workqueue/") for event in found.missing)
    work = events.named("task kworker: refresh_vm_stats")
    assert len(work) > 0
    notes = {events.details[detail] for detail in events.detail[work].tolist()}
    assert all(re.match(rf"pid \d+ kworker/{CPU}:\d", note) for note in notes), notes
    # Without these events, as in an older recording, tasks have the same time. A turn in which
    # something is missing is a gap as a whole, where its functions are told until then.
    assert not any("kworker: " in cause for cause in unnamed.causes)
    assert _ran_ns(events) + _gaps_ns(events) == _ran_ns(unnamed) + _gaps_ns(unnamed)
    assert _ran_ns(events) >= _ran_ns(unnamed)


def _without_works(found: RecordedTrace) -> RecordedTrace:
    return replace(found, formats=[each for each in found.formats if each[0] != "workqueue"])


def _gaps_ns(events: Events) -> int:
    return int((events.gap_end_ns - events.gap_start_ns).sum())


def _ran_ns(events: Events) -> int:
    is_task = np.array([cause.startswith("task ") for cause in events.causes])
    pieces = is_task[events.cause[events.piece_event]]
    return int((events.piece_end_ns - events.piece_start_ns)[pieces].sum())


@AS_ROOT
def test_a_function_without_a_name_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a kernel that hides its addresses."""
    monkeypatch.setattr(Path, "read_bytes", lambda _: b"0000000000000000 t vmstat_update\n")
    with RunFolder() as folder, Tracer(folder, [CPU]) as running:
        with Path("/proc/sys/vm/stat_refresh").open("rb") as refresh:
            refresh.read()
        [events] = read_events(running.finish(), CLOCK, [CPU], [])
    assert any("kworker/" in cause for cause in events.causes)
    assert not any("kworker: " in cause for cause in events.causes)


@AS_ROOT
def test_buffers_are_read_when_they_fill_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "_READ_AFTER_S", 600.0)
    monkeypatch.setitem(Tracer.__init__.__kwdefaults__, "buffer_kb", 256)
    reads: list[float] = []
    drain = tracer.Tracer._drain

    def noted(running: Tracer) -> None:
        reads.append(time.monotonic())
        drain(running)

    monkeypatch.setattr(tracer.Tracer, "_drain", noted)
    yields = f"import os\nos.sched_setaffinity(0, {{{CPU}}})\n"
    yields += "for _ in range(40_000): os.sched_yield()"
    with RunFolder() as folder, Tracer(folder, [CPU]) as running:
        for other in [subprocess.Popen([sys.executable, "-c", yields]) for _ in range(2)]:
            other.wait()
        while_it_ran = len(reads)
        running.finish()
    assert while_it_ran > 0, "half of 256 KiB fills with far fewer switches"
    pauses = np.diff(reads[:while_it_ran])
    assert (pauses >= tracer._PAUSE_S).all()


@AS_ROOT
def test_lost_events_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Tracer.__init__.__kwdefaults__, "buffer_kb", 8)
    monkeypatch.setattr(tracer, "_PAUSE_S", 60.0)
    with RunFolder() as folder, NoiseRecorder(folder, [CPU], what="events") as recorder:
        subprocess.run([sys.executable, "-c", SWITCHES], check=True)
        noise = recorder.finish()
    events = noise.record([]).events
    assert events is not None and events.lost[str(CPU)] > 0
    assert noise.warnings()[0].startswith(f"{sum(events.lost.values()):,} ")


@AS_ROOT
def test_an_unknown_clock_is_refused() -> None:
    with RunFolder() as folder, raises(TestbedError, "trace-clock") as error:
        Tracer(folder, [CPU], clock="sundial").__enter__()
    assert "'sundial'" in str(error.value)
    assert not left(folder)


@AS_ROOT
def test_a_kernel_without_the_events_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "instances").mkdir()
    (tmp_path / "events").mkdir()
    (tmp_path / "trace_clock").write_text("[local] x-86-tsc mono\n")
    (tmp_path / "events/header_page").write_text("field: char data;\toffset:16;\tsize:4080;\n")

    @contextmanager
    def bare() -> Iterator[Path]:
        for cpu in range(os.cpu_count() or 1):
            pipe = tmp_path / f"per_cpu/cpu{cpu}"
            pipe.mkdir(parents=True)
            (pipe / "trace_pipe_raw").touch()
        monkeypatch.setattr(Path, "mkdir", _linked(tmp_path))
        yield tmp_path

    monkeypatch.setattr(tracer, "tracefs", bare)
    with RunFolder() as folder, raises(TestbedError, "trace-events") as refused:
        Tracer(folder, [CPU]).__enter__()
    assert {"irq_vectors", "irq", "sched"} <= {*re.findall(r"\w+", str(refused.value))}
    assert "--noise stalls" in str(refused.value.hint)


def _linked(root: Path):  # type: ignore[no-untyped-def]
    """Create files in a new instance as the kernel does."""
    mkdir = Path.mkdir

    def make(path: Path, *arguments: object, **options: object) -> None:
        mkdir(path, *arguments, **options)  # type: ignore[arg-type]
        if path.parent == root / "instances":
            (path / "per_cpu").symlink_to(root / "per_cpu")
            (path / "events").symlink_to(root / "events")

    return make


@AS_ROOT
def test_a_kernel_that_refuses_is_told() -> None:
    """Without the capability to mount, in a namespace where nobody has mounted it."""
    script = (
        "from tailscope.testbed import tracefs\n"
        "tracefs.require = lambda *_, **__: None\n"
        "from tailscope.noise.tracer import Tracer\n"
        "from tailscope.testbed.folder import RunFolder\n"
        "with RunFolder() as folder:\n"
        "    Tracer(folder, [0]).__enter__()\n"
    )
    hide = "umount -l /sys/kernel/tracing 2>/dev/null; umount -l /sys/kernel/debug 2>/dev/null; "
    drop = 'exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", hide + drop, sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
    )
    error = done.stderr.splitlines()[-2]
    assert "tracefs" in error and os.strerror(errno.EPERM) in error, done.stderr


def test_recording_names_what_it_needs() -> None:
    """By a user to whom no other test gives the tracer."""
    script = (
        "import os\n"
        "from tailscope.exceptions import TestbedError\n"
        "from tailscope.testbed.tracefs import tracefs\n"
        f"if os.geteuid() == 0: os.setuid({NOBODY - 1})\n"
        "try:\n"
        "    tracefs().__enter__()\n"
        "except TestbedError as error:\n"
        "    print(error)\n"
        "    print(error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    error, hint = done.stdout.splitlines()
    assert "cap_dac_override" in error and "--noise stalls" in hint


def test_broken_pages_are_refused(tmp_path: Path) -> None:
    pages = tmp_path / "cpu0.pages"
    pages.write_bytes(bytes(8) + (5000).to_bytes(8, "little") + bytes(4080))
    found = RecordedTrace({0: pages}, {}, [], 4096, "mono")
    with pytest.raises(AnalysisError) as error:
        read_events(found, CLOCK, [0], [])
    assert re.findall(r"\d+", str(error.value).removeprefix(str(pages))) == ["8", "5000", "4080"]
    with pytest.raises(AnalysisError) as error:
        read_events(RecordedTrace({0: tmp_path / "x"}, {}, [], 4096, "mono"), CLOCK, [0], [])
    assert all(text in str(error.value) for text in (f"{tmp_path}/x", os.strerror(errno.ENOENT)))


@AS_ROOT
def test_where_nothing_may_be_written_stalls_are_left() -> None:
    """A mount that is read only, as in a container: the reason is kept, and the run goes on."""
    script = (
        "from tailscope.noise.recorder import NoiseRecorder\n"
        "from tailscope.testbed.folder import RunFolder\n"
        "with RunFolder() as folder, NoiseRecorder(folder, [0]) as recorder:\n"
        "    print(recorder.finish().why_not)\n"
    )
    read_only = (
        "mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing; "
        'mount -o remount,bind,ro /sys/kernel/tracing && exec "$0" -c "$1"'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", read_only, sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert os.strerror(errno.EROFS) in done.stdout, done.stderr


@AS_ROOT
@pytest.mark.alone
@pytest.mark.usefixtures("alone")
def test_a_tracer_that_is_read_is_not_said_to_be_removed() -> None:
    name = "tailscope-0-0123abcd-events"
    with tracefs() as root:
        (root / "instances" / name).mkdir()
        with (root / "instances" / name / "trace_pipe").open("rb"):
            assert (f"kernel tracer {name}", os.strerror(errno.EBUSY)) in list(clean())
            assert name in instances(root)
        assert (f"kernel tracer {name}", None) in list(clean())
        assert name not in instances(root)
