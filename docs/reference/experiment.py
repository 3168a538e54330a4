"""``experiment.md``: every field of an experiment, from its JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from docs.reference.markdown import NOTE, code, joined, table

from tailscope.experiment.campaign.spec import Experiment, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "{} at least",
    "maxItems": "{} at most",
    "minLength": "{} characters at least",
    "maxLength": "{} characters at most",
    "pattern": "`{}`",
}

_SIMPLE = ("string", "integer", "number", "boolean")
"""What a value may be, where nothing else is said."""


def page() -> str:
    """The page."""
    return joined(_blocks())


def _blocks() -> Iterator[str]:
    whole = schema_of(Experiment)
    yield "# Fields of an experiment"
    yield NOTE
    yield (
        "These are the fields that `tailscope run FILE` reads; `tailscope schema` prints them for"
        " editors."
        " [experiments.md](../experiments.md) explains it by examples."
    )
    yield from _model("##", "Experiment", whole)
    for name, model in whole["$defs"].items():
        yield from _model("##", name, model)


def described(name: str, kind: Any) -> Iterator[str]:
    """The blocks of a page for a section that a folder of `tailscope.extra` adds."""
    section = msgspec.json.schema(kind)
    yield f"## Section `{name}` of an experiment"
    yield section["description"]
    for part, model in section["$defs"].items():
        yield from _model("###", part, model)


def _model(level: str, name: str, model: Mapping[str, Any]) -> Iterator[str]:
    yield f"{level} {name}"
    yield model.get("description", "")
    required = model.get("required", ())
    rows = [
        (code(field), _kind(about), _default(field, about, required), about.get("description", ""))
        for field, about in model["properties"].items()
    ]
    yield table(("field", "type", "default", ""), rows)


def _default(field: str, about: Mapping[str, Any], required: Any) -> str:
    if field in required:
        return "required"
    default = about.get("default")
    is_text = isinstance(default, str | int | float) and default != ""
    return code(str(default)) if is_text else ""


def _kind(about: Mapping[str, Any]) -> str:
    """What is allowed, in words."""
    if "$ref" in about:
        name = about["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in about:
        return code(str(about["const"]))
    if "enum" in about:
        return "one of " + ", ".join(code(str(each)) for each in about["enum"])
    choices = [each for each in about.get("anyOf", ()) if each.get("type") != "null"]
    simple = [each for each in choices if each.get("type") in _SIMPLE]
    if len(simple) == len(_SIMPLE):
        rest = [_kind(each) for each in choices if each not in simple]
        return " or ".join(["a value", *rest])
    if choices:
        return " or ".join(_kind(each) for each in choices)
    bounds = [text.format(about[name]) for name, text in _BOUNDS.items() if name in about]
    if about.get("minItems") is not None and about.get("minItems") == about.get("maxItems"):
        bounds = [f"exactly {about['minItems']}"]
    return _plain(about) + (f" ({', '.join(bounds)})" if bounds else "")


def _plain(about: Mapping[str, Any]) -> str:
    if about.get("type") == "array":
        return f"list of {_kind(about['items'])}"
    if about.get("type") == "object":
        keys = about.get("propertyNames")
        names = "names" if keys is None else _kind(keys)
        inner = about.get("additionalProperties")
        return f"{names} with {_kind(inner)}" if isinstance(inner, dict) else "names with values"
    return {"boolean": "true or false", "string": "text", "number": "number"}.get(
        about.get("type", ""), str(about.get("type", "anything"))
    )
