"""Changes of settings as text."""

from __future__ import annotations

from tailscope.units import printable


def change_text(path: str, original: str | None, wanted: str) -> str:
    """Write what a file holds, and what it shall hold."""
    return f"{printable(path)}: {one_line(original)} -> {one_line(wanted)}"


def one_line(text: str | None) -> str:
    """Write what a file holds on one line."""
    if text is None:
        return "nothing"
    return printable(" / ".join(text.strip().split("\n"))) or "''"
