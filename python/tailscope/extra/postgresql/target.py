"""Which server is meant: what libpq is told, and what may be shown of it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_HIDDEN = "***"
_SECRET = "(?:ssl)?password"  # noqa: S105
_PATIENCE = "connect_timeout=10"
"""Seconds; libpq itself would wait for as long as the network does."""

# Stricter than libpq, which takes the rest of a password with a / or @ in it for host and port and
# shows it in its message.
_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:@/?#\s,]*)(?::[0-9]*)?"
_URI = re.compile(
    r"postgres(?:ql)?://"
    r"(?:[^:@/?#\s]*(?::(?P<password>[^@/?#\s]*))?@)?"
    rf"{_HOST}(?:,{_HOST})*"
    r"(?:/[^@/?#\s]*)?"
    r"(?:\?(?P<query>[^?#\s]*))?"
)
_SETTING = re.compile(r"\s*(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)+)(?=\s|$)")


class Target(NamedTuple):
    """A server."""

    conninfo: str
    """As libpq takes it."""
    shown: str
    """The same for people, without passwords."""
    secrets: tuple[str, ...]
    """What must not be shown."""

    def hide(self, text: str) -> str:
        """Take passwords out of a text from elsewhere."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def read_target(text: str, option: str) -> Target:
    """Read an option: a URI, or settings of libpq such as ``service=lab``."""
    found = _of_uri(text) or _of_settings(text)
    if found is None:
        raise UsageError(
            f"{option}: expected postgresql://USER@HOST:PORT/DATABASE or service=NAME, got neither",
            code="database-address",
            hint="in a URI, characters such as / @ # of a password are written as %2F %40 %23;"
            " better, leave it to ~/.pgpass or PGPASSWORD",
        )
    return found


def _of_uri(text: str) -> Target | None:
    matched = _URI.fullmatch(text)
    if matched is None:
        return None
    query = matched["query"] or ""
    given = [matched["password"], *re.findall(rf"(?:^|&){_SECRET}=([^&]*)", query)]
    shown = re.sub(rf"([?&]{_SECRET}=)[^&]*", rf"\1{_HIDDEN}", text)
    if matched["password"]:
        begin, end = matched.span("password")
        shown = shown[:begin] + _HIDDEN + shown[end:]
    joint = "&" if query else "" if "?" in text else "?"
    patient = text if _is_patient(query) else f"{text}{joint}{_PATIENCE}"
    return Target(patient, shown, _spellings(unquote, given))


def _of_settings(text: str) -> Target | None:
    found = list(_SETTING.finditer(text))
    if not found or "".join(each[0] for each in found) != text.rstrip():
        return None
    given = [each[2] for each in found if re.fullmatch(_SECRET, each[1])]
    shown = " ".join(
        f"{each[1]}={_HIDDEN if re.fullmatch(_SECRET, each[1]) else each[2]}" for each in found
    )
    patient = text if _is_patient(text) else f"{_PATIENCE} {text}"
    return Target(patient, shown, _spellings(_unquoted, given))


def _spellings(decode: Callable[[str], str], given: Iterable[str | None]) -> tuple[str, ...]:
    """Passwords as they were given, and as they are."""
    return tuple({each for secret in given if secret for each in (secret, decode(secret))} - {""})


def _unquoted(value: str) -> str:
    bare = value[1:-1] if value.startswith("'") else value
    return re.sub(r"\\(.)", r"\1", bare)


def _is_patient(settings: str) -> bool:
    return "connect_timeout" in settings or "PGCONNECT_TIMEOUT" in os.environ
