"""``extra/NAME/reference.md``: what a folder of `tailscope.extra` adds, from what it declares."""

from __future__ import annotations

from importlib import import_module
from inspect import getdoc
from typing import TYPE_CHECKING, Any

from docs.reference import cli, experiment, files
from docs.reference.markdown import NOTE, code, joined

from tailscope import extra
from tailscope.registry import additions, offered, sections

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.registry import AddedFile


def pages() -> Mapping[str, str]:
    """The page and the JSON Schemas of each folder, by their places below ``docs/extra``."""
    found = {}
    for name in additions():
        found[f"{name}/reference.md"] = joined(_blocks(name))
        schemas = files.schemas(files_of(name))
        found |= {f"{name}/{place}": text for place, text in schemas.items()}
    for generated in offered("generated-pages"):
        found |= generated()
    return found


def files_of(name: str) -> list[files.RecordFile | files.OtherFile]:
    """The files that a folder writes."""
    return [_file(name, each) for each in additions()[name].files]


def _file(name: str, added: AddedFile) -> files.RecordFile | files.OtherFile:
    if added.record is None:
        return files.OtherFile(added.name, added.about)
    return files.RecordFile(added.name, added.about, _imported(name, added.record))


def _imported(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"{extra.__name__}.{name}.{module}"), attribute)


def _blocks(name: str) -> Iterator[str]:
    yield f"# Reference of `{name}`"
    yield NOTE
    if (needed := additions()[name].extra) is not None:
        packages = " and ".join(map(code, dict.fromkeys(needed.packages.values())))
        yield f"`{needed.remedy}` adds what it needs: {packages}."
    added = {f"tailscope {each.words}" for each in additions()[name].commands}
    for words, command in (*cli.commands(), *cli.other_ways()):
        if words in added:
            yield from cli.described(words, command)
    for format_name, place in additions()[name].formats.items():
        yield f"## Format `{format_name}`"
        yield f"`tailscope report RUN --format {format_name} [--out FILE]`"
        about = (getdoc(_imported(name, place)) or "").replace("``", "`")
        yield from (" ".join(part.split()) for part in about.split("\n\n"))
    for section in additions()[name].sections:
        yield from experiment.described(section, sections()[section])
    if described := files_of(name):
        yield "## Files"
        yield from files.described(described)
