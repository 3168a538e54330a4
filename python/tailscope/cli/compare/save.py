"""``tailscope compare save``: runs into a file that others are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tailscope.cli.options import argument, option
from tailscope.cli.terminal import say, say_named
from tailscope.units import count_text, counted

EXAMPLE = "tailscope compare save runs/1 runs/2 --out baseline.json"


def command(
    runs: Annotated[
        list[Path], argument("RUN...", "Runs, or folders of runs, that repeat each other.")
    ],
    out: Annotated[Path, option("--out -o", "FILE", "The baseline; replaced if it is there.")],
) -> int:
    """The file has figures, intervals, settings and machine, and no packets."""
    from tailscope.cli.compare.repeats import repeated
    from tailscope.compare.baseline import save_baseline

    samples = save_baseline(repeated(runs), out)
    size = count_text(out.stat().st_size)
    say(f"{out}: {counted(len(samples), 'run')}, {size} bytes")
    for sample in samples:
        for doubt in (*sample.doubts, *sample.time_doubts):
            say_named("warning", f"{sample.name}: {doubt.reason}")
    return 0
