"""What a whole process costs, its children's time and memory included."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

# A process in between: a child begins with the peak of the one that forked it.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


class Cost(NamedTuple):
    """CPU time, and the largest resident size, mapped pages of captures included."""

    cpu_s: float
    peak_mib: float


def cost_of(*arguments: object) -> Cost:
    """Run tailscope as a whole process, and say what that took."""
    command = [sys.executable, "-c", MEASURE, "tailscope", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    cpu_s, peak_kib = done.stdout.split()
    return Cost(float(cpu_s), int(peak_kib) / 1024)
