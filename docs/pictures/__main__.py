"""``python -m docs.pictures`` draws the pictures of the documentation, of simulated captures."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from docs.pictures.simulated import overload, taint

from tailscope.compare.compare import compare, error_of
from tailscope.compare.figures import figures_with
from tailscope.compare.sources import pairs_of, read_source
from tailscope.report.differences import difference_pictures
from tailscope.report.drawing import write_pictures

if TYPE_CHECKING:
    from tailscope.report.picture import Picture

FOLDER = Path(__file__).parent
FIGURES = ("percentiles", "worst")
TAIL = FOLDER.parent / "extra" / "tail"
SIMULATED = ("--packets", "200000")
COMPARED = {"before": (), "after": ("--stall-duration", "20us")}
"""Devices that are compared: the usual one, and one with longer stalls."""
METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
TAILSCOPE = (sys.executable, "-m", "tailscope")


def _tailscope(*words: str | Path) -> None:
    subprocess.run([*TAILSCOPE, *words], check=True, stdout=subprocess.DEVNULL)


def _measured(folder: Path, name: str, *options: str) -> Path:
    """A run of simulated captures."""
    captures, run = folder / f"captures of {name}", folder / name
    _tailscope("simulate", captures, *SIMULATED, *options)
    (pre,), (post,) = (captures.glob(f"*-{side}-*") for side in ("pre", "post"))
    _tailscope("analyze", pre, post, "--out", run)
    return run


def _difference(baseline: Path, candidate: Path) -> Picture:
    """What `tailscope compare` finds of two runs."""
    figures = figures_with()
    sources = [read_source(baseline, "before"), read_source(candidate, "after")]
    ((pair,), _) = pairs_of(sources)
    found = compare(pair, figures, error_of(len(figures)))
    return replace(difference_pictures({"": found})[""], name="difference")


def main() -> int:
    """Draw them anew: the same captures, so the same pictures."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        drawn = folder / "figures"
        run = _measured(folder, "run", "--seed", "1")
        # At random times: at constant gaps few packets would meet stalls.
        pair = [
            _measured(folder, name, "--seed", "2", "--pattern", "poisson", *options)
            for name, options in COMPARED.items()
        ]
        if TAIL.is_dir():
            _tailscope("model", "tail", run, "--keep")
        _tailscope("report", run, "--figures", drawn, "--format", "svg")
        pictures = (_difference(*pair), taint(), overload())
        write_pictures(pictures, drawn, ["svg"])
        places = dict.fromkeys((*FIGURES, *(picture.name for picture in pictures)), FOLDER)
        if TAIL.is_dir():
            places["tail-levels"] = TAIL
        for figure, place in places.items():
            text = METADATA.sub("", (drawn / f"{figure}.svg").read_text())
            (place / f"{figure}.svg").write_text(text)
            print(place.relative_to(FOLDER.parents[1]) / f"{figure}.svg")
    return 0


sys.exit(main())
