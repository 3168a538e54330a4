"""What the documentation says of figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DOCS = Path(__file__).parents[1] / "docs"


def undocumented(names: Iterable[str], *pages: str) -> list[str]:
    """Names without a row in a table: there `*` is anything, `pX` any quantile, `pre_` a side."""
    known = "|".join(_patterns(pages))
    return [name for name in names if not re.fullmatch(known, name)]


def _patterns(pages: Iterable[str]) -> Iterator[str]:
    for page in pages:
        for line in (DOCS / page).read_text().splitlines():
            if line.startswith("| `"):
                for name in re.findall(r"`([a-z][a-z_0-9X*]*)`", line.split("|")[1]):
                    pattern = name.replace("*", ".+").replace("pX", "p[0-9]+")
                    yield re.sub("^pre_", "(pre|post)_", pattern)
