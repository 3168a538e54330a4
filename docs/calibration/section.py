"""What each part of the page is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tailscope.words.promises import Model


class Section(NamedTuple):
    """A part of the page.

    Attributes
    ----------
    title : str
    text : str
        What is promised, and how that was tried.
    tables : tuple of str
        In Markdown.
    sentences : dict
        What commands quote of it, each beside the figures that it names.
    """

    title: str
    text: str
    tables: tuple[str, ...]
    sentences: dict[Model, str]

    def page(self) -> str:
        """It in Markdown."""
        said = [f"> {sentence}" for sentence in self.sentences.values()]
        return "\n\n".join([f"## {self.title}", self.text, *self.tables, *said])


def share(part: int, whole: int) -> str:
    """A part of a whole in percent."""
    return f"{part / whole:.1%}".replace(".0%", "%") if whole else "-"
