"""The reference, generated from the code.

``python -m docs.reference`` writes the pages anew; with ``--check`` it only says which of them the
code no longer agrees with.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from docs.reference import added, cli, experiment, fields, files

FOLDER = Path(__file__).parents[1]
PAGES = {
    "cli.md": cli.page,
    "experiment.md": experiment.page,
    "fields.md": fields.page,
    "files.md": files.page,
}
RENEW = "`make docs`, or `python -m docs.reference`, renews them"


def outdated() -> dict[str, str]:
    """The pages that are not what the code says, and what they should be."""
    own = {**{name: page() for name, page in PAGES.items()}, **files.schemas()}
    wanted = {
        **{f"reference/{name}": text for name, text in own.items()},
        **{f"extra/{name}": text for name, text in added.pages().items()},
    }
    return {name: text for name, text in wanted.items() if _read(FOLDER / name) != text}


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def main() -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(prog="python -m docs.reference")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    found = outdated()
    for name, text in found.items():
        if options.check:
            print(f"error: docs/{name} is not what the code says", file=sys.stderr)
        else:
            (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / name).write_text(text)
            print(f"docs/{name}")
    if found and options.check:
        print(f"hint: {RENEW}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
