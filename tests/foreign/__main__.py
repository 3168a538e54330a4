"""Prints what tailscope says of foreign pairs, beside the truth: `python -m tests.foreign`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .case import UnavailableError
from .catalogue import CASES
from .truth import judge

if TYPE_CHECKING:
    from .case import Case

COLUMNS = ("kind", "key", "matched", "lost", "outside", "ambiguous", "truth", "verdict")
FIGURES = ("match_on", "count", "lost", "outside", "ambiguous")


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the installed command."""
    command = Path(sys.executable).with_name("tailscope")
    words = [str(word) for word in (command, "analyze", *arguments, "--json", "-")]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def row(kind: Case) -> tuple[str, ...]:
    """A line of the table."""
    missing = [program for program in kind.programs if shutil.which(program) is None]
    if missing or (kind.as_root and os.geteuid() != 0):
        why = f"no {missing[0]}" if missing else "not root"
        return (kind.name, *[""] * 6, f"left out: {why}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = kind.make(Path(folder))
        except UnavailableError as error:
            return (kind.name, *[""] * 6, f"left out: {error}")
        verdict = judge(analyze(*made.arguments), made.truth)
    found = (str(verdict.figures.get(name, "-")) for name in FIGURES)
    return (kind.name, *found, str(made.truth), str(verdict))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.foreign", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="Kinds whose name contains this.")
    only = parser.parse_args().only or ""
    print("|", " | ".join(COLUMNS), "|")
    print("|", " | ".join("-" for _ in COLUMNS), "|", flush=True)
    wrong = 0
    for kind in CASES.values():
        if only.lower() in kind.name.lower():
            cells = row(kind)
            wrong += cells[-1].startswith("WRONG")
            print("|", " | ".join(cell.replace("|", r"\|") for cell in cells), "|", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
