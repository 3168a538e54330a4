"""The recorder of kernel events on other kernels than this machine's, in guests of QEMU."""

from __future__ import annotations

import json
import py_compile
import re
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from guests import booted, fetch, kernel

from tailscope.engine.analysis import Clock
from tailscope.noise.events import read_events
from tailscope.noise.tracer import RecordedTrace
from tailscope.platforms.vm import _ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.platforms.guest import Guest
    from tailscope.testbed.places import Process

ANSWER_S = 30.0
ROUNDING_NS = 2
HZ = 250
"""Timer frequency of Debian's kernels."""

PYTHON = Path(sys.executable).resolve()
TRACING = "/sys/kernel/tracing"
WORDS = f"{TRACING}/instances/words"
RECORD = """
import json, os
from dataclasses import asdict
from pathlib import Path
from tailscope.noise.tracer import Tracer
from tailscope.testbed.folder import RunFolder

with RunFolder() as folder, Tracer(folder, [0]) as running:
    print("recording", flush=True)
    while not Path("/tmp/enough").exists():
        pass
    trace = running.finish()
    for kind, files in (("events", trace.events), ("senders", trace.senders)):
        files[0].rename(f"/tmp/{kind}")
    content = {**asdict(trace), "pid": os.getpid(), "events": {}, "senders": {}}
    Path("/tmp/recorded").write_text(json.dumps(content))
"""
CLEAN = """
from contextlib import ExitStack
from tailscope.testbed.clean import _tracers

with ExitStack() as stack:
    for tracer in _tracers(stack):
        print(tracer.what, tracer.remove())
"""
MODULES = (
    "import sys, json, encodings.ascii, tailscope.noise.tracer, tailscope.testbed.clean\n"
    "import tailscope.testbed.cores, tailscope.testbed.folder\n"
    "files = [(name, getattr(m, '__file__', None)) for name, m in sys.modules.items()]\n"
    "print(json.dumps([(name, file) for name, file in files if file and name != '__main__']))\n"
)


def needed_modules() -> list[tuple[str, Path]]:
    """Return the modules that the recorder needs, and their files."""
    script = [sys.executable, "-S", "-c", MODULES]
    paths = ":".join(path for path in sys.path if path)
    listed = subprocess.run(
        script, env={"PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    return [(name, Path(file)) for name, file in json.loads(listed.stdout)]


def packed(modules: list[tuple[str, Path]], folder: Path) -> bytes:
    """Return an archive of compiled modules, which becomes `/python` of a guest."""
    target = folder / "python"
    for name, file in modules:
        place = target / name.replace(".", "/")
        place = place if file.stem == "__init__" else place.parent
        place.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".py":
            py_compile.compile(str(file), str(place / f"{file.stem}.pyc"), doraise=True)
        else:
            shutil.copy(file, place)
    names = "".join(f"{path.relative_to(folder)}\0" for path in [target, *target.rglob("*")])
    archive = subprocess.run(
        ["cpio", "--null", "-o", "-H", "newc", "--quiet", "-R", "0:0"],
        input=names.encode(),
        capture_output=True,
        cwd=folder,
        check=True,
    )
    return archive.stdout


@contextmanager
def guest_with_python(kind: str, folder: Path) -> Iterator[tuple[Guest, Path]]:
    """Boot an emulated guest in which the recorder can run; yield it and QEMU's port."""
    modules = needed_modules()
    # Extension modules need libraries, as programs do.
    programs = [PYTHON, *(file for _, file in modules if file.suffix == ".so")]
    archive = packed(modules, folder)
    with booted(kernel(kind), folder, programs=programs, archive=archive) as guest:
        guest.run(["mount", "-t", "tracefs", "tracefs", TRACING])
        yield guest, folder / "qmp"


def start_python(guest: Guest, script: str) -> Process:
    command = ["env", "PYTHONPATH=/python", str(PYTHON), "-S", "-c", script]
    return guest.start("python", command, merged=True)


def start_recording(guest: Guest) -> Process:
    process = start_python(guest, RECORD)
    while (line := process.next_line(ANSWER_S)) not in (None, "recording"):
        pass
    assert line == "recording", process.last_words()
    return process


def inject_nmi(port: Path) -> None:
    with socket.socket(socket.AF_UNIX) as qmp:
        qmp.settimeout(ANSWER_S)
        qmp.connect(str(port))
        with qmp.makefile("rw") as lines:
            _ask(lines, "qmp_capabilities", "inject-nmi")


def fetch_recorded(guest: Guest, folder: Path) -> tuple[RecordedTrace, int]:
    """Fetch the trace of a guest, and the number of the task that recorded it."""
    content = json.loads(fetch(guest, "/tmp/recorded"))
    pid = content.pop("pid")
    for kind in ("events", "senders"):
        path = folder / f"{kind}.pages"
        path.write_bytes(fetch(guest, f"/tmp/{kind}"))
        content[kind] = {0: path}
    content["formats"] = [tuple(pair) for pair in content["formats"]]
    for name in ("lost", "comms"):
        content[name] = {int(key): value for key, value in content[name].items()}
    return RecordedTrace(**content), pid


def counter_hz(guest: Guest) -> int:
    rates = re.findall(r"tsc: .*?([\d.]+) MHz", guest.run(["dmesg"]))
    return int(float(rates[-1]) * 1e6)


def nmis_ns(guest: Guest) -> list[int]:
    """Return the duration of each NMI in the kernel's own text, in nanoseconds."""
    trace = guest.run(["cat", f"{WORDS}/trace"])
    return [int(ns) for ns in re.findall(r"nmi_noise: .* duration (\d+) ns", trace)]


def options(guest: Guest) -> list[str]:
    return guest.run(["cat", f"{TRACING}/osnoise/options"]).split()


def instances(guest: Guest) -> str:
    return guest.run(["ls", f"{TRACING}/instances"]).strip()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["vanilla", "osnoise"])
def test_other_kernels_are_understood(tmp_path: Path, kind: str) -> None:
    has_osnoise = kind == "osnoise"
    with guest_with_python(kind, tmp_path) as (guest, port):
        if has_osnoise:
            guest.run(["mkdir", WORDS])
            guest.run(["sh", "-c", f"echo 1 >{WORDS}/events/osnoise/nmi_noise/enable"])
        process = start_recording(guest)
        if has_osnoise:
            assert "NO_OSNOISE_WORKLOAD" in options(guest)
            assert "osnoise/" not in guest.run(["ps"])
        inject_nmi(port)
        guest.write("enough", "")
        assert process.wait_end(ANSWER_S), process.last_words()
        expected_ns = []
        if has_osnoise:
            assert "OSNOISE_WORKLOAD" in options(guest)
            expected_ns = nmis_ns(guest)
            guest.run(["rmdir", WORDS])
        assert not instances(guest)
        trace, pid = fetch_recorded(guest, tmp_path)
        clock = Clock(counter_hz(guest), 0, 0)
    assert trace.clock == "x86-tsc"
    assert ("osnoise/nmi_noise" in trace.missing) is not has_osnoise
    [events] = read_events(trace, clock, [0], [pid])
    assert events.lost == 0
    assert (events.piece_end_ns > events.piece_start_ns).all()
    assert (events.piece_start_ns[1:] >= events.piece_end_ns[:-1]).all()
    period_ns = np.median(np.diff(events.start_ns[events.named("local timer")]))
    assert 0.5 < period_ns * HZ / 1e9 < 3
    nmis = events.named("NMI")
    assert len(nmis) >= 1
    of_nmis = np.isin(events.piece_event, nmis)
    lasted_ns = (events.piece_end_ns - events.piece_start_ns)[of_nmis].tolist()
    assert lasted_ns == pytest.approx(expected_ns, abs=ROUNDING_NS)


@pytest.mark.long
def test_osnoise_is_put_back_after_a_crash(tmp_path: Path) -> None:
    with guest_with_python("osnoise", tmp_path) as (guest, _):
        process = start_recording(guest)
        process.kill()
        assert process.wait_end(ANSWER_S)
        assert "NO_OSNOISE_WORKLOAD" in options(guest)
        assert "-osnoise" in instances(guest)
        cleaned = start_python(guest, CLEAN)
        assert cleaned.wait_end(ANSWER_S), cleaned.last_words()
        assert not instances(guest)
        assert "OSNOISE_WORKLOAD" in options(guest)
