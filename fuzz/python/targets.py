"""What must hold of every parser written in Python, whatever bytes it is given.

It returns, or raises an error of tailscope. Each target takes the bytes, and a folder of its own
that it may write to.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.python.files import write_input

from tailscope.compare.baseline import read_baseline
from tailscope.exceptions import TailscopeError
from tailscope.experiment.campaign.spec import load_experiment
from tailscope.noise.counters import read_readings
from tailscope.noise.traces import Trace
from tailscope.plan.yaml_file import read_yaml
from tailscope.store import layout
from tailscope.store.about import read_about_file
from tailscope.store.campaign import read_record as read_campaign
from tailscope.store.notes import read_notes
from tailscope.store.reader import read_info, read_summary
from tailscope.store.records.base import LINES
from tailscope.testbed.messages import FORWARDERS, GENERATOR, STAMP, WATCH
from tailscope.units import duration_ns, quantile_of, rate_pps

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from tailscope.noise.traces import Reader

    Target: TypeAlias = Callable[[bytes, Path], None]

_READERS: tuple[Reader, ...] = ("perf", "trace-cmd", "babeltrace2")
_WING = Path(__file__).parents[2] / "tests" / "extra"


def survives(target: Target, content: bytes, folder: Path) -> bool:
    """Whether the parser took it; an error of tailscope is the other answer, and the only one."""
    try:
        target(content, folder)
    except TailscopeError:
        return False
    return True


def run_record(content: bytes, folder: Path) -> None:
    """``run.json``: with a checksum that is right, as whoever made it would write one."""
    write_input(folder, layout.RUN, _with_digest(content))
    read_info(folder)


def other_record(content: bytes, folder: Path) -> None:
    """``campaign.json``, ``summary.json``, ``notes.json`` or a baseline, as the first byte says."""
    which, record = content[:1], content[1:]
    if which == b"c":
        write_input(folder, "campaign.json", record)
        read_campaign(folder)
    elif which == b"b":
        read_baseline(write_input(folder, "baseline.json", _with_digest(record)))
    elif which == b"n":
        write_input(folder, layout.NOTES, record)
        read_notes(folder)
    else:
        read_summary(record, folder / layout.SUMMARY)


def experiment(content: bytes, folder: Path) -> None:
    """An experiment."""
    load_experiment(write_input(folder, "x.yaml", content))


def labels(content: bytes, folder: Path) -> None:
    """Labels, and any other YAML."""
    path = write_input(folder, "x.yaml", content)
    read_yaml(path)
    read_about_file(path)


def trace_text(content: bytes, folder: Path) -> None:
    """The text of a trace, as the program that the first byte chooses writes it."""
    reader = _READERS[content[0] % len(_READERS)] if content else "perf"
    path = write_input(folder, "x.txt", content[1:])
    for _ in Trace(path, reader, is_text=True, to_unix_ns=None).lines():
        """Read it to its end."""


def counters(content: bytes, folder: Path) -> None:
    """Counters of interrupts: the authors' CSV, or copies of ``/proc/interrupts``."""
    readings = read_readings(write_input(folder, "x.csv", content), "x")
    assert readings.counts.shape == (len(readings.times_ns), len(readings.names))
    assert readings.period_ns > 0


def message(content: bytes, _folder: Path) -> None:
    """A line of ``tailscope-dp``."""
    line = content.decode(errors="replace")
    for program in (GENERATOR, STAMP, WATCH, *FORWARDERS.values()):
        survives(lambda _, __, program=program: program.read("x", line), b"", _folder)  # type: ignore[misc]


def quantity(content: bytes, _folder: Path) -> None:
    """A duration, a quantile or a rate, as the first byte says."""
    text = content[1:].decode(errors="replace")
    read = {b"d": duration_ns, b"q": quantile_of}.get(content[:1], rate_pps)
    read(text, "--x")


def added() -> dict[str, Target]:
    """Find the targets of the wing: ``fuzz_targets.py`` beside the tests of a folder."""
    found: dict[str, Target] = {}
    for path in sorted(_WING.glob("*/fuzz_targets.py")):
        found |= import_module(f"tests.extra.{path.parent.name}.fuzz_targets").TARGETS
    return found


TARGETS: dict[str, Target] = {
    "counters": counters,
    "experiment": experiment,
    "labels": labels,
    "message": message,
    "quantity": quantity,
    "record": other_record,
    "run": run_record,
    "trace-text": trace_text,
    **added(),
}


def _with_digest(content: bytes) -> bytes:
    lines, mark, _ = content.rpartition(f'  "{LINES}": "'.encode())
    digest = hashlib.sha256(lines).hexdigest().encode()
    return lines + mark + digest + b'"\n}\n' if mark else content
