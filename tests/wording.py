"""What tailscope says, in one golden file: tests name an entry, and the file has the sentences.

An entry is one or more lines of text. ``WORDING=update pytest ...`` writes the entries that the
tests ask for anew; look at the difference before you commit it.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden" / "wording.txt"
_HEADING = re.compile(r"^== (\S+)$\n", re.M)


def entries() -> dict[str, str]:
    """The file: by name what is said, without the end of its last line."""
    _before, *parts = _HEADING.split(GOLDEN.read_text())
    return {
        name: text.removesuffix("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def assert_wording(name: str, said: str) -> None:
    """Compare a text with the entry of that name."""
    if os.environ.get("WORDING") == "update":
        _update(name, said)
    assert said == entries().get(name), name


def _update(name: str, said: str) -> None:
    assert not _HEADING.search(said), name
    with GOLDEN.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        changed = entries() | {name: said}
        text = "".join(f"== {key}\n{changed[key]}\n" for key in sorted(changed))
        file.truncate()
        file.write(text)
