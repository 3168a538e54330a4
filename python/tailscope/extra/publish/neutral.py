"""Records without what is private to a machine: paths, accounts, addresses, credentials."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tailscope.extra.publish.private import (
    ACCOUNT,
    ARGUMENT,
    NAMED,
    REMOVED,
    SECRET_NAME,
    SECRET_OPTION,
    odd_in,
    without_arguments,
    without_private,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_PERSONS = ("ssh", "user", "username", "login")
"""Fields that name a machine or an account."""


class Removed(NamedTuple):
    """A text from which something was taken out."""

    where: str
    """File and field."""
    shown: str
    """The line of the text, as it is published."""
    what: tuple[str, ...]
    """Kinds of what was taken out."""


class Odd(NamedTuple):
    """A text that is published, and may be private."""

    where: str
    """File and field."""
    shown: str
    """The line of the text, as it is published."""
    why: tuple[str, ...]
    """Each with the word that is meant."""


@dataclass(frozen=True)
class Review:
    """The parts taken out of records, and odd ones that are left."""

    removed: Counter[Removed] = field(default_factory=Counter)
    odd: Counter[Odd] = field(default_factory=Counter)
    """Number of times that each was found."""

    def note(self, where: str, before: str, after: str, what: tuple[str, ...]) -> None:
        """Take note of a text."""
        known = frozenset(before.split("\n"))
        for line in after.split("\n"):
            if line not in known:
                self.removed[Removed(where, line, what)] += 1
            why = tuple(dict.fromkeys(f"{why}: {word}" for why, word in odd_in(line)))
            if why and not where.endswith("sha256"):
                self.odd[Odd(where, line, why)] += 1


def neutral(
    record: object, *, name: str = "", review: Review | None = None, where: str = ""
) -> object:
    """A record as JSON has it, without what is private.

    Absolute paths lose their folders, but for those of the system; accounts (``user@host``), names
    of machines for ssh and the values of whatever is called a password, secret, token or key go,
    lists and objects among them.
    """
    return _Cleaning(review).of(record, name, where)


class _Cleaning:
    def __init__(self, review: Review | None) -> None:
        self._review = review

    def of(self, record: object, name: str, where: str) -> object:
        if record is not None and SECRET_NAME.search(name):
            return self._removed(where, NAMED) if record not in ("", REMOVED) else record
        if isinstance(record, dict):
            return dict(self._fields(record, where))
        if isinstance(record, list):
            return self._elements(record, f"{where}[]")
        if not isinstance(record, str):
            return record
        if name in _OF_PERSONS and record not in ("", REMOVED):
            return self._removed(where, ACCOUNT)
        return self._text(record, where)

    def _fields(self, record: dict[object, object], where: str) -> Iterator[tuple[str, object]]:
        for key, value in record.items():
            # What is called like a secret is taken out, and needs no mention of its name.
            is_secret = SECRET_NAME.search(str(key)) is not None
            shown = neutral_text(str(key)) if is_secret else self._text(str(key), where)
            yield shown, self.of(value, str(key), _joined(where, shown))

    def _elements(self, record: list[object], where: str) -> list[object]:
        """A list, in which an option may stand before its value."""
        words = [each if isinstance(each, str) else "" for each in record]
        found: list[object] = []
        is_secret = False
        for each, word, left in zip(record, words, without_arguments(words), strict=True):
            if left != word:
                found.append(self._removed(where, ARGUMENT, left))
            elif is_secret and word not in ("", REMOVED):
                found.append(self._removed(where, NAMED))
            else:
                found.append(self.of(each, "", where))
            is_secret = SECRET_OPTION.fullmatch(word) is not None
        return found

    def _text(self, text: str, where: str) -> str:
        left, what = without_private(text)
        if self._review is not None:
            self._review.note(where, text, left, what)
        return left

    def _removed(self, where: str, what: str, left: str = REMOVED) -> str:
        if self._review is not None:
            self._review.removed[Removed(where, left, (what,))] += 1
        return left


def _joined(where: str, name: str) -> str:
    return f"{where} {name}" if where.endswith(".json") else f"{where}.{name}"


def neutral_text(text: str) -> str:
    """A text without what is private; see `neutral`."""
    return without_private(text)[0]
