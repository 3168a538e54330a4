"""Records without what is private to a machine: paths, accounts, addresses, credentials."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["REMOVED", "neutral", "neutral_text"]

REMOVED = "(removed)"
_SOMEWHERE = "…"

_SYSTEM = ("sys", "proc", "dev", "usr", "lib", "bin", "sbin", "boot")
"""Folders that every machine has: what lies in them says nothing about whose it is."""
_WORDS = (
    r"pass(?:word|wd|phrase)|(?:ssh|pg|(?<![a-z]))pass(?![a-z])|secret|token|credential"
    r"|(?:api|access|private)[-_ ]?key|authorization"
)
"""Parts of names of secrets; of ``pass`` alone not those of ``bypass`` or ``passthrough``."""
_SECRET_NAME = re.compile(rf"(?i){_WORDS}")
_SECRET_OPTION = re.compile(rf"(?i)-{{1,2}}[\w-]*(?:{_WORDS})[\w-]*")
_SECRET_IN_TEXT = re.compile(
    rf"(?i)((?:{_WORDS})[\w-]*[\"']?\s*[=:]\s*"
    rf"|(?<!\S)-{{1,2}}[\w-]*(?:{_WORDS})[\w-]*\s+(?!-))"
    rf"({re.escape(REMOVED)}|\"[^\"]*\"|'[^']*'|[^\s,;&]+)"
)
_AUTHORIZATION = re.compile(
    r"(?i)(authorization[\"']?\s*[=:]\s*|(?<!\S)-{1,2}[\w-]*authorization\s+)[^\n]+"
)
"""Its scheme and what follows: any number of words, up to the end of the line."""
_PRIVATE_KEY = re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [^-]*-----|\Z)")
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+@")
_ACCOUNT = re.compile(r"[\w.+-]+@[\w-][\w.-]*")
_PATH = re.compile(r"(?<![\w.)\]/…:])(~[\w.-]*)?((?:/[^\s/,:;=\"'()\[\]{}<>|&]+)+/?)")
_KEY_OF_HOST = "ssh"


def neutral(record: Any, *, name: str = "") -> Any:
    """A record as JSON has it, without what is private.

    Absolute paths lose their folders, but for those of the system; accounts (``user@host``), names
    of machines for ssh and the values of whatever is called a password, secret, token or key go,
    lists and objects among them.

    Parameters
    ----------
    record : dict, list, str, int, float, bool or None
    name : str
        What it is called, in the record that holds it.
    """
    if record is not None and _SECRET_NAME.search(name):
        return REMOVED if record != "" else record
    if isinstance(record, dict):
        return {
            neutral_text(str(key)): neutral(value, name=str(key)) for key, value in record.items()
        }
    if isinstance(record, list):
        return _neutral_list(record)
    if not isinstance(record, str):
        return record
    if record and name == _KEY_OF_HOST:
        return REMOVED
    return neutral_text(record)


def _neutral_list(record: list[Any]) -> list[Any]:
    """A list, in which an option may stand before its value."""
    found = []
    is_secret = False
    for each in record:
        found.append(REMOVED if is_secret and isinstance(each, str) else neutral(each))
        is_secret = isinstance(each, str) and _SECRET_OPTION.fullmatch(each) is not None
    return found


def neutral_text(text: str) -> str:
    """A text without what is private; see `neutral`."""
    found = _USER_IN_ADDRESS.sub("", text)
    found = _PRIVATE_KEY.sub(REMOVED, found)
    found = _AUTHORIZATION.sub(rf"\1{REMOVED}", found)
    found = _SECRET_IN_TEXT.sub(rf"\1{REMOVED}", found)
    found = _ACCOUNT.sub(REMOVED, found)
    if _is_path(found):
        return _without_folders(found)
    # A home may have a blank in it, which ends a path elsewhere.
    found = found.replace(f"{Path.home()}/", "~/")
    return _PATH.sub(lambda match: _without_folders(match[0]), found)


def _is_path(text: str) -> bool:
    """Whether it is one path and nothing else: it may hold blanks then."""
    return text.startswith(("/", "~/")) and "\n" not in text and " /" not in text[1:]


def _without_folders(path: str) -> str:
    parts = path.rstrip("/").split("/")
    if parts[0] == "" and len(parts) > 1 and parts[1] in _SYSTEM:
        return path
    return f"{_SOMEWHERE}/{parts[-1]}"
