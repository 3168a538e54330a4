"""The page of calibration, measured: ``python -m docs.calibration`` writes it anew.

``--only`` prints one part of it, with as many simulated runs as are asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from docs.calibration import overload, verdicts

import tailscope.words.promises

if TYPE_CHECKING:
    from collections.abc import Callable

    from docs.calibration.section import Section

PAGE = Path(__file__).parents[1] / "calibration.md"
SENTENCES = Path(tailscope.words.promises.__file__).with_suffix(".json")
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def _aliasing(runs: int, data: Path) -> Section:
    from docs.calibration import aliasing

    return aliasing.section(runs, data)


def _tail(runs: int, data: Path) -> Section:
    from docs.calibration import tail

    return tail.section(runs, data)


def _recommendations(runs: int, data: Path) -> Section:
    from docs.calibration import recommendations

    return recommendations.section(runs, data)


PARTS: dict[str, tuple[Callable[[int, Path], Section], int]] = {
    "verdicts": (verdicts.section, 1000),
    "recommendations": (_recommendations, 1000),
    "tail": (_tail, 100),
    "aliasing": (_aliasing, 20),
    "overload": (overload.section, 100),
}
TEXT = """\
# Calibration: what models promised, and what came

Made by `make calibration`, from simulations of known truth and from the captures and tables that
the authors of the papers have published; all are seeded. Refusals are results, too: a model that
refuses says nothing that could be wrong. Sentences that commands quote are set off by a bar."""


def main() -> int:
    """Measure, and write or print what came."""
    parser = argparse.ArgumentParser(prog="python -m docs.calibration")
    parser.add_argument("--only", choices=PARTS, help="print this part, and write nothing")
    parser.add_argument("--runs", type=int, metavar="N", help="simulated runs of each kind")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="the papers' data")
    asked = parser.parse_args()
    if not asked.data.is_dir():
        print(f"error: --data: got {asked.data}, expected the papers' data", file=sys.stderr)
        return 1
    if asked.only is not None:
        section, runs = PARTS[asked.only]
        print(section(asked.runs or runs, asked.data).page())
        return 0
    with ProcessPoolExecutor() as pool:
        started = [
            pool.submit(section, asked.runs or runs, asked.data) for section, runs in PARTS.values()
        ]
        sections = [each.result() for each in started]
    PAGE.write_text("\n\n".join([TEXT, *(each.page() for each in sections)]) + "\n")
    sentences = {model: said for each in sections for model, said in each.sentences.items()}
    SENTENCES.write_text(json.dumps(sentences, indent=1) + "\n")
    from docs.calibration import rows

    rows.write_rows(asked.data)
    print(f"{PAGE}\n{SENTENCES}\n{rows.PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
