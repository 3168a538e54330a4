"""Options of commands, made of the declared fields of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from inspect import Parameter
from typing import Annotated, Any

import typer

from tailscope.cli.options import named_values
from tailscope.cli.panels import DUT, HOST, MEASUREMENT, TRAFFIC
from tailscope.plan.field import COUNT, Field, fields_of
from tailscope.plan.fields import PairFields, PlanFields, fields_on

_PANELS = {"dut": DUT, "traffic": TRAFFIC, "measurement": MEASUREMENT, "host": HOST}


def option_of(
    name: str, about: str | None = None, *, own_default: bool = False, panel: str | None = None
) -> Any:
    """Make the option of a field."""
    field = _by_name(PairFields).get(name) or _by_name(PlanFields)[name]
    text = about or field.about
    if field.has_names:
        text = f"{text.removesuffix('.')}; repeatable."
    if field.default_text is not None and not own_default:
        text += f"  [default: {field.default_text}]"
    return typer.Option(
        *filter(None, (field.option, field.short)),
        metavar=field.metavar or None,
        help=text,
        min=field.least if field.kind is COUNT and field.most is None else None,
        rich_help_panel=panel,
    )


@cache
def _by_name(kind: type[PairFields | PlanFields]) -> dict[str, Field]:
    return {field.name: field for field in fields_of(kind).values()}


def with_fields(command: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command all options of the fields that it has.

    Its parameter ``fields`` is replaced by them, and receives what was given: by the names of the
    fields, None where there is nothing. A field that the command has a parameter for, as it has a
    default of its own, is left out.
    """

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        signature = inspect.signature(function, eval_str=True)
        own = signature.parameters
        ours = [field for name, field in fields_on(command).items() if name not in own]
        parameters: list[Parameter] = []
        for each in own.values():
            if each.name == "fields":
                parameters += map(_parameter, ours)
            else:
                parameters.append(each.replace(kind=Parameter.KEYWORD_ONLY))

        @wraps(function)
        def called(**given: Any) -> int:
            written = {field.name: _taken(field, given) for field in ours}
            return function(fields=written, **given)

        called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorate


def _parameter(field: Field) -> Parameter:
    """Return the option of a field."""
    simple = field.kind.written if field.kind.written in (int, bool) else str
    given: Any = list[str] if field.has_names else simple
    annotation = Annotated[given | None, option_of(field.name, panel=_PANELS[field.group])]
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _taken(field: Field, given: dict[str, Any]) -> object:
    """Take what was given for a field."""
    value = given.pop(field.name)
    return named_values(value, field.option) if field.has_names else value
