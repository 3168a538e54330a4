"""Fuzzes a parser written in Python: ``python -m fuzz.python TARGET [FOLDER...] [-OPTION=...]``.

The folders and the options are libFuzzer's. Atheris counts which branches an input takes.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tailscope"]):
    from fuzz.python.targets import TARGETS, survives


def main() -> None:
    """Fuzz the target of the first argument."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit("\n".join(TARGETS))
    target = TARGETS[sys.argv[1]]
    with tempfile.TemporaryDirectory(prefix="tailscope-fuzz-") as folder:
        place = Path(folder)

        def one(content: bytes) -> None:
            survives(target, content, place)

        # To merge, libFuzzer starts itself again, by a shell.
        command = f"{shlex.quote(sys.executable)} -m fuzz.python {sys.argv[1]}"
        atheris.Setup([command, *sys.argv[2:]], one)
        atheris.Fuzz()


main()
