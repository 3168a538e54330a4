"""``python -m docs.pictures`` draws the pictures of the documentation, of simulated captures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent
FIGURES = ("percentiles", "worst", "tail-levels")
SIMULATED = ("--seed", "1", "--packets", "200000")
METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
TAILSCOPE = (sys.executable, "-m", "tailscope")


def _tailscope(*words: str | Path) -> None:
    subprocess.run([*TAILSCOPE, *words], check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def main() -> int:
    """Draw them anew: the same captures, so the same pictures."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        run, drawn = folder / "run", folder / "figures"
        _tailscope("simulate", folder / "captures", *SIMULATED)
        (pre,), (post,) = ((folder / "captures").glob(f"*-{side}-*") for side in ("pre", "post"))
        _tailscope("analyze", pre, post, "--out", run)
        _tailscope("model", "tail", run, "--keep")
        _tailscope("report", run, "--figures", drawn, "--format", "svg")
        for figure in FIGURES:
            text = METADATA.sub("", (drawn / f"{figure}.svg").read_text())
            (FOLDER / f"{figure}.svg").write_text(text)
            print(f"docs/pictures/{figure}.svg")
    return 0


sys.exit(main())
