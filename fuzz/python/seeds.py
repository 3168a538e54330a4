"""Writes records of today's encoding into ``fuzz/found``: ``python -m fuzz.python.seeds``.

Fuzzing does not invent the names of fields: without a record that is read whole, a target ends at
the first one that is missing.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "fuzz" / "found"
KINDS = {"campaign.json": b"c", "summary.json": b"s", "notes.json": b"n"}
"""First bytes of the target `record`, by what follows them."""

sys.path.insert(0, str(ROOT / "tests"))


def main() -> None:
    """Write runs, a campaign and notes, and keep each record of them."""
    import campaigns
    import shelves
    import synthetic

    from tailscope.store.notes import add_note, change_tags

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        campaigns.write(folder / "campaign", {"rate": ["10k"], "dut": ["l2fwd"]}, repeats=2)
        with redirect_stdout(StringIO()):
            [captured] = synthetic.captured_runs(folder / "captured", 1)
        first = next(folder.glob("campaign/*/run.json")).parent
        # This machine is no business of the corpus.
        shelves.edited(captured, host=json.loads((first / "run.json").read_text())["host"])
        add_note(first, "a note")
        change_tags(first, add=["tag"])
        latencies = synthetic.latencies(1)[:1_000]
        synthetic.write_run(folder / "explained", latencies, lost=1, causes={"local timer": 0.5})
        for path in sorted(folder.rglob("*.json")):
            content = path.read_bytes().replace(name.encode(), b"/folder")
            if path.name == "run.json":
                write("run", content)
            elif path.name in KINDS:
                write("record", KINDS[path.name] + content)


def write(target: str, content: bytes) -> None:
    """Add a seed of a target."""
    folder = FOUND / target
    folder.mkdir(parents=True, exist_ok=True)
    count = sum(1 for path in folder.glob("record-*"))
    (folder / f"record-{count}").write_bytes(content)


main()
