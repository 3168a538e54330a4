"""Programs that read and write captures."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def run(*words: object, given: str | None = None) -> str:
    """Run a program to its end; what it prints."""
    done = subprocess.run(
        [str(word) for word in words], input=given, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def editcap(path: Path, *selection: object, options: Sequence[object] = ()) -> Path:
    """A capture edited: `editcap OPTIONS PATH RESULT SELECTION`."""
    result = path.with_name(f"edited-{path.name}")
    run("editcap", "-F", "nsecpcap", *options, path, result, *selection)
    return result


def mergecap(result: Path, *paths: object) -> Path:
    """Several captures as one pcapng, each as an interface of its own."""
    run("mergecap", "-F", "pcapng", "-I", "none", "-w", result, *paths)
    return result


def tcprewrite(path: Path, *options: object) -> Path:
    """A capture whose packets are rewritten."""
    result = path.with_name(f"rewritten-{path.name}")
    run("tcprewrite", f"--infile={path}", f"--outfile={result}", *options)
    return result
