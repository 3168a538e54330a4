"""Gates on a busy machine: none may fail a device that has not changed, and a slower one must fail.

    python -m tests.chaos.busy_gate --gates 20             # beside a busy loop and a browser
    python -m tests.chaos.busy_gate --gates 10 --quiet     # with code that is 30 % slower

The devices are `forwarder.c`, over veth as root, and `l2fwd`, over memif. It prints a line for each
gate, and ends with 1 if one has the wrong exit status: 2 on a busy machine, and anything else on a
quiet one, which has to be idle.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SLO = "p50<200us"
WORK_US = 150
"""Of the forwarder for a packet; it needs 165 to 185 µs in all."""
SLOWER = 1.3
FAILED = 2
_PAGE = """<script>setInterval(() => {
  const end = performance.now() + 15;
  while (performance.now() < end) document.title = Math.random();
}, 16)</script>"""


@contextmanager
def busy(folder: Path, cpus: set[int]) -> Iterator[None]:
    """Keep CPUs busy with a loop on the last one, and a browser on all of them."""
    page = folder / "page.html"
    page.write_text(_PAGE)
    program = shutil.which("chromium") or "chromium-browser"
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0")
    commands = [
        ["taskset", "-c", str(max(cpus)), sys.executable, "-c", "while True: pass"],
        [program, *options, f"--user-data-dir={folder}/browser", page.as_uri()],
    ]
    with ExitStack() as stack:
        for command in commands:
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
        yield


def gate(folder: Path, device: list[str]) -> tuple[int, str]:
    """Measure and judge; the exit status of that, and its first line."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "tailscope"]
    options = ["--duration", "5s", "--warm-up", "500ms", "--out", str(out)]
    for words in (["run", *device, *options], ["verify", str(out), "--slo", SLO]):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            break
    said = (done.stdout or done.stderr).splitlines()
    return done.returncode, said[0] if said else ""


def devices(folder: Path, work_us: int) -> dict[str, list[str]]:
    """What is measured: options of ``tailscope run``."""
    found = {}
    if work_us == WORK_US:
        found["l2fwd"] = ["--dut", "l2fwd", "--rate", "20k"]
    if os.geteuid() == 0:
        program = folder / "forwarder"
        source = Path(__file__).with_name("forwarder.c")
        subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
        run = f"run={program} {{link0}} {{link1}} {work_us}"
        options = ["--dut-option", run, "--dut-option", "ready=ready"]
        found["forwarder.c"] = ["--dut", "command", "--wire", "veth", "--rate", "1k", *options]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gates", type=int, default=20, help="number of gates for each device")
    parser.add_argument("--quiet", action="store_true", help="slower code, nothing else runs")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    wrong = 0
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        folder = Path(home)
        if not given.quiet:
            stack.enter_context(busy(folder, os.sched_getaffinity(0)))
        work_us = round(WORK_US * SLOWER) if given.quiet else WORK_US
        for name, device in devices(folder, work_us).items():
            for number in range(1, given.gates + 1):
                status, said = gate(folder, device)
                wrong += (status == FAILED) != given.quiet
                print(f"{name} {number}: exit status {status}: {said}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
