"""The end of what models say: how far the runs behind it can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailscope.cli.options import STANDARD, write_json
from tailscope.cli.terminal import print_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path


def conclude(
    json_file: str | None,
    content: Mapping[str, Any],
    runs: Iterable[Path],
    show: Callable[[], None],
) -> None:
    """Write and print what a model says of some runs, with the least trust in any of them."""
    from tailscope.store.reader import read_run
    from tailscope.verdict.trust import trust_in

    trust = trust_in([read_run(path) for path in dict.fromkeys(runs)])
    text = trust.text if trust is not None else ""
    write_json(json_file, {**content, "trust": text or None})
    if json_file != STANDARD:
        show()
        print_lines([("trust", text)] if text else [])
