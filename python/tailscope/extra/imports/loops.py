"""Loop variables of pos, the testbed of the papers' authors: a JSON file for each of its runs.

pos repeats a measurement for each combination of its loop variables. Of each, the folder of every
node has ``TIME_NAME_runN.loop`` with the variables, beside results with ``runN`` in their names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TYPE_CHECKING

from tailscope.exceptions import CaptureError, UsageError
from tailscope.extra.imports.foreign import text_of
from tailscope.store.about import Labels, labels_of
from tailscope.units import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    Variables = Mapping[str, str]

SUFFIX = ".loop"
NAMES = {
    "rate": ("pkt_rate", "packet_rate", "rate", "pps"),
    "size": ("pkt_sz", "pkt_size", "packet_size", "frame_size", "size"),
    "repeat": ("repeat", "repetition", "iteration"),
    "flows": ("flows", "num_flows"),
    "burst": ("burst", "burst_size"),
    "pattern": ("pattern",),
    "dut": ("dut",),
    "platform": ("platform",),
    "kernel": ("kernel",),
}
"""Labels, and the variables that experiments have for them, the first as tailscope writes them."""

_RUN = re.compile(r"run(\d{1,9})(?!\d)")
_MOST_CHARACTERS = 200
_OTHER = re.compile(r"[^\w-]+")


@dataclass(frozen=True)
class Loops:
    """The loop variables of a result tree, by folder and number of the run."""

    found: Mapping[tuple[Path, int], Variables]

    def variables(self, folder: Path, name: str) -> Variables:
        """Return those of a result in a folder: of its own node, or what all nodes agree on."""
        number = run_number(name)
        if number is None:
            return {}
        if (folder, number) in self.found:
            return self.found[folder, number]
        others = [each for (_, other), each in self.found.items() if other == number]
        is_one = len(others) > 0 and all(each == others[0] for each in others)
        return others[0] if is_one else {}

    def labels(self, given: Labels | None, folder: Path, name: str) -> Labels | None:
        """Return labels with these variables, which whatever else was said wins over."""
        variables = self.variables(folder, name)
        if not variables:
            return given
        read: dict[str, object] = {}
        for variable, value in variables.items():
            read |= _label(variable, value, read)
        given = given or Labels()
        return replace(given, written={**read, **given.written})


def read_loops(files: Iterable[Path]) -> Loops:
    """Read all files of loop variables among some."""
    found: dict[tuple[Path, int], Variables] = {}
    for path in files:
        number = run_number(path.stem)
        if path.suffix == SUFFIX and number is not None:
            found[path.parent, number] = _read(path)
    return Loops(found)


def run_number(name: str) -> int | None:
    """Return the number of a run in the name of a file."""
    numbers = _RUN.findall(name)
    return int(numbers[-1]) if numbers else None


def _read(path: Path) -> Variables:
    try:
        content = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise CaptureError(
            f"{path}: expected loop variables of pos as JSON: {error}", code="loop-variables"
        ) from None
    if not isinstance(content, dict):
        raise CaptureError(
            f"{path}: expected loop variables of pos by name, got"
            f" {shortened(json.dumps(content), 40)}",
            code="loop-variables",
        )
    return {
        str(name): value if isinstance(value, str) else json.dumps(value)
        for name, value in content.items()
    }


def _label(variable: str, value: str, before: Mapping[str, object]) -> Mapping[str, object]:
    """Return a label for a variable: of the same meaning, or of its name."""
    known = next((label for label, names in NAMES.items() if variable in names), None)
    if known is not None:
        try:
            return labels_of(None, {known: value}, None).given
        except UsageError:
            pass
    taken = before.get("labels", {})
    assert isinstance(taken, dict)
    same = _OTHER.sub("-", variable) or "variable"
    names = chain([same], (f"{same}-{number}" for number in count(2)))
    name = next(name for name in names if name not in taken)
    given = labels_of(None, {f"labels.{name}": shortened(value, _MOST_CHARACTERS)}, None).given
    ((attribute, named),) = given.items()
    others = before.get(attribute, {})
    assert isinstance(named, dict)
    assert isinstance(others, dict)
    return {attribute: {**others, **named}}
