"""The largest resident size of a whole process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# A process in between: a child begins with the peak of the one that forked it.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mib(pre: Path, post: Path) -> float:
    """Of ``tailscope analyze --json -``, including the pages of the captures that are mapped."""
    command = ["tailscope", "analyze", str(pre), str(post), "--json", "-"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], check=True, stdout=subprocess.PIPE
    )
    return int(done.stdout) / 1024
