"""YAML that people write: read within bounds, with the line of what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from tailscope.exceptions import UsageError
from tailscope.units import shortened

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 256 << 10
_MOST_DEPTH = 32
_NO_YAML = "captures are read by `tailscope analyze PRE POST`, runs by `tailscope runs show`"
_MOST_VALUES = 10_000
_MOST_CHARACTERS = 40


@dataclass(frozen=True)
class YamlFile:
    """The content of a file."""

    node: yaml.Node | None
    """Node that tells the lines of the content; None if the file is empty."""
    content: object

    @property
    def kind(self) -> str:
        """Return what the file is, where fields were expected."""
        kinds = {type(None): "an empty file", list: "a list"}
        return kinds.get(type(self.content), "a single value")


def read_yaml(path: Path) -> YamlFile:
    """Read YAML, or JSON, which is YAML as well."""
    return yaml_of(_text_of(path), str(path))


def yaml_of(text: str, source: str) -> YamlFile:
    """Read YAML that is not in a file, as `read_yaml`; `source` is what errors call it."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return YamlFile(node, None if node is None else loader.construct_document(node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        code = error.code if isinstance(error, _RefusedError) else "yaml"
        raise UsageError(f"{source}{line}: {error.problem}", code=code) from None
    except yaml.YAMLError as error:
        raise UsageError(f"{source}: {' '.join(str(error).split())}", code="yaml") from None


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UsageError(
            f"{path}: expected at most {_MOST_BYTES >> 10} KiB of YAML, got more",
            code="file-too-large",
            hint=_NO_YAML,
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: byte {error.start}: {error.reason}, expected YAML in UTF-8",
            code="not-text",
            hint=_NO_YAML,
        ) from None


class _RefusedError(yaml.MarkedYAMLError):
    """A bound that YAML of others exceeds, or content that no plan needs."""

    def __init__(self, problem: str, code: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)
        self.code = code


class _Loader(yaml.SafeLoader):
    """Composes within bounds, so that whoever walks through the result comes to an end, too."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._values = 0
        self._values_of: dict[yaml.Node | None, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node and all below it; an alias counts as often as it is used."""
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        before = self._values
        if isinstance(event, yaml.AliasEvent):
            known = super().compose_node(parent, index)
            if known not in self._values_of:
                self._refuse(
                    f"*{event.anchor} lies within what it refers to",
                    "yaml-circle",
                    event.start_mark,
                )
            self._count(self._values_of[known], event.start_mark)
            return known
        self._count(1, event.start_mark)
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            self._refuse(
                f"expected at most {_MOST_DEPTH} levels, got more", "yaml-depth", event.start_mark
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        self._values_of[node] = self._values - before
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping; YAML would take the last of two equal keys without a word."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    self._refuse(f"{key.value}: it appears twice", "yaml-key-twice", key.start_mark)
                seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """Make a value of a node; what YAML takes for a date or a number need not be one."""
        try:
            found = super().construct_object(node, deep)
            if isinstance(found, str):
                found.encode()  # An escape may stand for half a character.
            return found
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            kind = str(node.tag).rpartition(":")[2]
            is_scalar = isinstance(node, yaml.ScalarNode)
            got = shortened(node.value, _MOST_CHARACTERS) if is_scalar else "several values"
            self._refuse(
                f"expected a value of the type {kind}, got {got!r}", "yaml-value", node.start_mark
            )

    def _count(self, values: int, mark: object) -> None:
        self._values += values
        if self._values > _MOST_VALUES:
            self._refuse(f"expected at most {_MOST_VALUES} values, got more", "yaml-size", mark)

    def _refuse(self, problem: str, code: str, mark: Any) -> NoReturn:
        raise _RefusedError(problem, code, mark)
