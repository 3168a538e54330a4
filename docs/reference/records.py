"""What records say of their fields: for the reference pages, and as JSON Schema."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from tailscope.plan.fields import AboutFields, AnalysisFields
from tailscope.plan.fields import fields_of as plan_fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["descriptions", "fields_of", "schema"]


def descriptions(kind: type[Struct]) -> dict[str, str]:
    """Read the docstrings under the fields of a record, those of its bases included.

    Parameters
    ----------
    kind : type
        A record whose source is at hand; one that was made from a table has them as `ABOUT`.
    """
    made: dict[str, str] | None = getattr(kind, "ABOUT", None)
    if made is not None:
        return made
    declared = plan_fields_of(kind) if issubclass(kind, AnalysisFields | AboutFields) else {}
    found = {name: field.about for name, field in declared.items()}
    for base in reversed(kind.__mro__):
        if issubclass(base, Struct) and base.__struct_fields__:
            found.update(_written(base))
    return found


def fields_of(
    kind: type[Struct], before: str = "", *, elsewhere: tuple[type[Struct], ...] = ()
) -> Iterator[tuple[str, str]]:
    """List the fields of a record and of the sections in it, and what each says.

    Names within names are divided by dots; a list is like what is in it, and ``*`` stands for any
    name.

    Parameters
    ----------
    kind : type
    before : str
        What all names begin with.
    elsewhere : tuple of type
        Sections that are left out.
    """
    about = descriptions(kind)
    hints = _hints(kind)
    for name in sorted(hints, key=lambda name: name != "format"):
        hint = hints[name]
        if name in about:
            yield f"{before}{name}", about[name]
        for inner, sections in _sections(hint, f"{before}{name}"):
            if sections not in elsewhere:
                yield from fields_of(sections, f"{inner}.", elsewhere=elsewhere)


def schema(kind: type[Struct], name: str) -> dict[str, object]:
    """Make the JSON Schema of a record, with the docstrings of its fields.

    Parameters
    ----------
    kind : type
    name : str
        Of the file.
    """
    (outer,), parts = msgspec.json.schema_components([kind], schema_hook=_anything)
    for section in _all_sections(kind):
        about, part = descriptions(section), parts[section.__name__]
        for field, described in part["properties"].items():
            if field in about:
                described["description"] = about[field]
        if "format" in part["properties"]:
            part["required"] = list(dict.fromkeys(["format", *part["required"]]))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        "$ref": outer["$ref"],
        "$defs": parts,
    }


def _anything(kind: type) -> dict[str, object]:
    assert kind is object, kind
    return {"description": "anything that JSON can hold"}


def _written(kind: type[Struct]) -> Iterator[tuple[str, str]]:
    """Names of fields, and the texts that stand under them."""
    parsed = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(parsed, ast.ClassDef)
    for field, text in zip(parsed.body, parsed.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield field.target.id, " ".join(text.value.value.split())


def _hints(kind: type[Struct]) -> dict[str, object]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def _sections(hint: object, name: str) -> Iterator[tuple[str, type[Struct]]]:
    """Sections within a type, and what their names begin with."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        yield name, hint
    elif get_origin(hint) is dict:
        yield from _sections(get_args(hint)[1], f"{name}.*")
    elif get_origin(hint) in (tuple, list, Union, UnionType, Annotated):
        for each in get_args(hint):
            yield from _sections(each, name)


def _all_sections(kind: type[Struct]) -> set[type[Struct]]:
    found = {kind}
    for hint in _hints(kind).values():
        for _, section in _sections(hint, ""):
            found |= _all_sections(section)
    return found
