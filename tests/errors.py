"""Errors by their codes: what they say may improve, and what they are stays."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

from tailscope.exceptions import TailscopeError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

Raised = TypeVar("Raised", bound=TailscopeError)

_ERROR = re.compile(r"^error: .* \[([a-z0-9-]+)\]$", re.M)


@contextmanager
def raises(kind: type[Raised], code: str) -> Iterator[pytest.ExceptionInfo[Raised]]:
    """Expect an error of a class, with this code."""
    with pytest.raises(kind) as raised:
        yield raised
    assert raised.value.code == code, raised.value


@contextmanager
def refuses_argument(name: str) -> Iterator[pytest.ExceptionInfo[ValueError]]:
    """Expect a `ValueError` that begins with the name of an argument."""
    with pytest.raises(ValueError) as raised:
        yield raised
    assert str(raised.value).partition(": ")[0] == name, raised.value


def unwrapped(text: str) -> str:
    """Lines as they are where there is room: those that were broken, put together again."""
    return re.sub(r"\n {4}(?=\S)", " ", text)


def commands_in(hint: str | None) -> list[str]:
    """The commands that a hint names."""
    return re.findall("`([^`]+)`", hint or "")


def advice_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The commands that the hint of the error names that a command ended with."""
    (hint,) = (line for line in unwrapped(done.stderr).splitlines() if line.startswith("hint: "))
    return commands_in(hint)


def code_of(done: subprocess.CompletedProcess[str]) -> str | None:
    """The code of the error that a command ended with; None where it printed none."""
    found = _ERROR.findall(unwrapped(done.stderr))
    return found[-1] if found else None
