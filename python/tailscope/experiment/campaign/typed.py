"""Conversion of a file's content to a type, or what is wrong with it, and where."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Literal,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from msgspec import Meta, Struct, UnsetType, ValidationError, convert
from msgspec.structs import fields

from tailscope.units import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Kind = TypeVar("Kind")

_WORDS: dict[object, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "names with values",
}


class WrongError(Exception):
    """A value that is not as its type wants it.

    A struct may raise it, once its fields are as they should be, of what lies within it.
    """

    def __init__(
        self, where: Sequence[str | int], message: str, *, code: str = "field-value"
    ) -> None:
        super().__init__(message)
        self.where, self.message, self.code = where, message, code


def typed(content: object, kind: type[Kind]) -> Kind:
    """Read content as a type has it. `Meta.extra` may have what is ``expected``, in words."""
    try:
        return convert(content, kind)
    except (ValidationError, WrongError):
        raise next(_faults(content, kind, [])) from None


def _faults(value: object, kind: object, where: Sequence[str | int]) -> Iterator[WrongError]:
    """Yield the faults of a value: first those within it, then that of the value itself."""
    for form in _forms(kind):
        if isinstance(value, dict) and _is_struct(form):
            yield from _faults_of_fields(value, form, where)
        elif isinstance(value, dict) and get_origin(form) is dict:
            names, values = get_args(form)
            for name, one in value.items():
                yield from _faults(name, names, [*where, name])
                yield from _faults(one, values, [*where, name])
        elif isinstance(value, list) and get_origin(form) is list:
            for at, one in enumerate(value):
                yield from _faults(one, get_args(form)[0], [*where, at])
    try:
        convert(value, kind)
    except WrongError as error:
        yield WrongError([*where, *error.where], error.message, code=error.code)
    except ValidationError:
        names = [name for form in _forms(kind) for name in _names(form)]
        meant = did_you_mean(str(value), names)
        said = f"got {value!r}, expected {_expected(kind)}"
        yield WrongError(where, "; ".join(filter(None, (said, meant))))


def _faults_of_fields(
    value: Mapping[str | int, object], kind: type[Struct], where: Sequence[str | int]
) -> Iterator[WrongError]:
    known = {each.name: each for each in fields(kind)}
    for name in value:
        if name not in known:
            yield WrongError([*where, name], _unknown(name, [*known]), code="unknown-field")
    for name, each in known.items():
        if name in value:
            yield from _faults(value[name], each.type, [*where, name])
        elif each.required:
            yield WrongError([*where, name], "it is missing", code="missing-field")


def _unknown(name: object, known: Sequence[str]) -> str:
    if not isinstance(name, str):
        cpus = "; in braces, a list of CPUs needs quotes, such as '1,3'"
        return f"got {name!r}, expected the name of a field{cpus if 'cpus' in known else ''}"
    meant = did_you_mean(name, known)
    return "; ".join(filter(None, (f"unknown field, expected one of {', '.join(known)}", meant)))


def _forms(kind: object) -> list[object]:
    """The types that a value may have, without what is said of them."""
    kind, _ = _described(kind)
    if get_origin(kind) in (Union, UnionType):
        return [form for each in get_args(kind) for form in _forms(each)]
    return [kind]


def _names(form: object) -> list[str]:
    """The names that a value may be."""
    return [str(name) for name in get_args(form)] if get_origin(form) is Literal else []


def _described(kind: object) -> tuple[object, Sequence[Meta]]:
    """A type, and what is said of it."""
    if get_origin(kind) is not Annotated:
        return kind, ()
    plain, *about = get_args(kind)
    return plain, about


def _is_struct(kind: object) -> TypeGuard[type[Struct]]:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _expected(kind: object) -> str:
    """Describe in words the values that a type takes."""
    plain, about = _described(kind)
    for each in about:
        if each.extra is not None and "expected" in each.extra:
            return str(each.extra["expected"])
    origin = get_origin(plain)
    if origin in (Union, UnionType):
        options = [each for each in get_args(plain) if each not in (NoneType, UnsetType)]
        return " or ".join(map(_expected, options))
    if origin is Literal:
        *names, last = map(repr, get_args(plain))
        return f"{', '.join(names)} or {last}"
    words = "fields and their values" if _is_struct(plain) else _WORDS[origin or plain]
    return " ".join([words, *(bounds for each in about for bounds in _bounds(each))])


def _bounds(about: Meta) -> Iterator[str]:
    if about.ge is not None:
        yield f"of at least {about.ge}" if about.le is None else f"from {about.ge} to {about.le}"
    if about.min_length is not None:
        is_exact = about.min_length == about.max_length
        yield f"of {about.min_length}" if is_exact else f"of at least {about.min_length}"
