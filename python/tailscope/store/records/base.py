"""What all records have in common: strict reading, and writing that can be read back."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from tailscope.exceptions import RunCorruptError, RunError
from tailscope.units import shortened

if TYPE_CHECKING:
    from pathlib import Path

_MOST = 2**63 - 1
Count = Annotated[int, Meta(ge=0, le=_MOST)]
"""A whole number that is not negative: a count, a duration in ns, or a time in ns since 1970."""
Signed = Annotated[int, Meta(ge=-_MOST - 1, le=_MOST)]
"""A whole number."""

_MOST_DEPTH = 64
"""How deep objects and lists may lie within each other: no record of ours comes near."""
_MOST_VALUES = 1_000_000
"""How many values a file may hold: a campaign of ten thousand cells has fewer."""
_MOST_CHARACTERS = 40

LINES: Final = "lines_sha256"
"""The last field of a file that carries the checksum of its own lines."""
_WITH_LINES = re.compile(rb'(.*\n)  "lines_sha256": "([0-9a-f]{64})"\n}\n', re.DOTALL)

_UNRELEASED = (
    "an unreleased version of tailscope has written it: analyse or measure again, or read it with"
    " that version"
)
_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_PATH = re.compile(r"^(?P<problem>.*?)(?: - at `(?P<where>[^`]*)`)?$", re.DOTALL)
_FIELD = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>.*)`")


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a record."""


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a file; its first field is ``format``."""


class _Mark(Struct):
    """The format of a file; the first files had none."""

    format: int = 1


Kind = TypeVar("Kind", bound=Struct)


def decode(content: bytes, kind: type[Kind], source: Path | str) -> Kind:
    """Read a record."""
    return convert(read_json(content, source), kind, source)


def convert(content: object, kind: type[Kind], source: Path | str) -> Kind:
    """Make a record of what `read_json` gives."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        problem, code = _in_our_words(str(error))
        raise RunCorruptError(f"{source}: {problem}", code=code) from None
    except OverflowError:
        raise RunCorruptError(
            f"{source}: a number is larger than any that is written", code="number-too-large"
        ) from None
    except UnicodeEncodeError as error:
        got = shortened(error.object, _MOST_CHARACTERS)
        raise RunCorruptError(f"{source}: expected text, got {got!r}", code="not-text") from None


def read_json(content: bytes, source: Path | str) -> dict[str, object]:
    """Read a JSON object whatever is in it.

    Names of files need not be text: Python's own reader takes what stands for their bytes, which
    msgspec's refuses.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise RunCorruptError(
            f"{source}: expected at most {_MOST_VALUES} values, got more", code="json-size"
        )
    try:
        found: object = json.loads(content, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError as error:
        raise RunCorruptError(f"{source}: expected JSON: {error}", code="json") from None
    if not isinstance(found, dict):
        raise RunCorruptError(
            f"{source}: expected an object, got {_kind_of(found)}", code="json-object"
        )
    if _is_deep(found):
        raise _too_deep(source)
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"expected a number, got {text}")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _is_deep(found: dict[str, object]) -> bool:
    """Whether somebody who walks through this content could come to the end of the stack."""
    level: list[dict[str, object] | list[object]] = [found]
    for _ in range(_MOST_DEPTH):
        inside = [each.values() if isinstance(each, dict) else each for each in level]
        level = [one for each in inside for one in each if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _too_deep(source: Path | str) -> RunCorruptError:
    return RunCorruptError(f"{source}: expected JSON: it is nested too deeply", code="json-depth")


def _kind_of(value: object) -> str:
    names = {"NoneType": "null", "list": "a list"}
    return names.get(type(value).__name__, _NAMES.get(type(value).__name__, ""))


def read_record(content: bytes, kind: type[Kind], source: Path | str, *, newest: int) -> Kind:
    """Read a record of this format."""
    found = read_json(content, source)
    check_format(format_of(found, source), newest, source)
    return convert(found, kind, source)


def format_of(content: dict[str, object], source: Path | str) -> int:
    """Tell the format of what `read_json` gives; files of the first one do not say it."""
    return convert(content, _Mark, source).format


def check_format(found: int, newest: int, source: Path | str) -> None:
    """Refuse a file of another format."""
    if found != newest:
        is_newer = found > newest
        raise RunError(
            f"{source}: format: expected {newest}, got {found}",
            code="format-newer" if is_newer else "format-older",
            hint="a newer tailscope has written it: update tailscope" if is_newer else _UNRELEASED,
        )


def check_lines(content: bytes, source: Path | str) -> None:
    """See that a file which holds the checksum of its lines is the one that was written."""
    found = _WITH_LINES.fullmatch(content)
    if found is None:
        raise RunCorruptError(
            f"{source}: {LINES}: expected it in the last line but one", code="checksum-missing"
        )
    import hashlib

    got, expected = hashlib.sha256(found[1]).hexdigest(), found[2].decode()
    if got != expected:
        raise RunCorruptError(f"{source}: {LINES}: expected {expected}, got {got}", code="checksum")


def as_content(record: Struct) -> dict[str, object]:
    """Turn a record into what JSON holds: objects, lists, texts, numbers."""
    content = msgspec.to_builtins(record, enc_hook=_plain_number)
    # Where what is not there is left out, these two are written all the same.
    marks = {
        name: getattr(record, name) for name in ("format", "complete") if hasattr(record, name)
    }
    in_order = {**marks, **content}
    found: dict[str, object] = json.loads(json.dumps(in_order, allow_nan=False))
    return found


def encode(record: Struct) -> str:
    """Write a record as text, checked to be one that can be read back.

    If the record has a field for the checksum of its lines, that is made anew.
    """
    content = as_content(record)
    content.pop(LINES, None)
    text = encode_content(content, type(record))
    return _with_lines(text) if LINES in record.__struct_fields__ else text


def _with_lines(text: str) -> str:
    lines = text.removesuffix("\n}\n") + ",\n"
    import hashlib

    digest = hashlib.sha256(lines.encode()).hexdigest()
    return f'{lines}  "{LINES}": "{digest}"\n}}\n'


def encode_content(content: dict[str, object], kind: type[Struct]) -> str:
    """Write the content of a record as text, checked to be one that can be read back."""
    try:
        msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise AssertionError(f"{kind.__name__}: {_in_our_words(str(error))[0]}") from error
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _plain_number(value: object) -> float:
    """Figures may be NumPy's, which are floats, too."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"no part of a record: {value!r}")


def _in_our_words(text: str) -> tuple[str, str]:
    """Translate an error of msgspec into the field with what was expected and got, and a code."""
    match = _PATH.match(text)
    assert match is not None, "it matches anything"
    where = (match["where"] or "").removeprefix("$").removeprefix(".").replace("[...]", ".*")
    problem, code = match["problem"], "field-value"
    if field := _FIELD.fullmatch(problem):
        where = f"{where}.{field['name']}" if where else field["name"]
        is_unknown = field["what"].endswith("unknown")
        problem, code = (
            ("unknown field", "field-unknown") if is_unknown else ("missing", "field-missing")
        )
    else:
        problem = re.sub(r"`([^`]*)`", _plain, problem[:1].lower() + problem[1:])
    return (f"{where.removeprefix('.')}: {problem}" if where else problem), code


def _plain(match: re.Match[str]) -> str:
    return " or ".join(_NAMES.get(name, name) for name in match[1].split(" | "))
