"""``files.md``: what is in the files that tailscope writes, from the table of `store.contents`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.reference.fields import plan_rows
from docs.reference.markdown import NOTE, code, codes, joined, table

from tailscope.store import contents, layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.store.contents import File


def page() -> str:
    """The page."""
    return joined(_blocks())


def _blocks() -> Iterator[str]:
    yield "# Files"
    yield NOTE
    yield (
        "In names `*` stands for anything and `pX` for any of `p50`, `p90`, `p99`, `p999`, …"
        " `p999999`; a name that begins with `pre_` has a twin that begins with `post_`. Dots"
        " divide names within names, and a list is like what is in it. Every file is written under"
        " a temporary name, synced, and renamed."
    )
    yield "## A run directory"
    yield f"Version {layout.FORMAT} of the layout."
    yield from _files(contents.RUN)
    yield "## A campaign"
    yield from _files(contents.CAMPAIGN)
    yield "## A search"
    yield from _files(contents.SEARCH)
    yield "## A recording of `tailscope noise --out`"
    yield from _files(contents.NOISE_FOLDER, known=contents.RUN)


def _files(files: tuple[File, ...], known: tuple[File, ...] = ()) -> Iterator[str]:
    last = None
    for file in files:
        if file.name != last:
            yield f"### {file.name}"
        last = file.name
        if file in known:
            yield f"As in [a run directory](#{_anchor(file.name)})."
            continue
        yield file.about
        columns = ((code(name), kind, about) for name, (kind, about) in file.columns.items())
        yield table(("column", "type", ""), columns)
        yield table(("name", ""), ((codes(name), about) for name, about in file.fields.items()))
        if file.name == layout.RUN:
            yield from _plan()
        if file.name == layout.SUMMARY:
            yield from _summary()


def _plan() -> Iterator[str]:
    yield (
        "`plan` of a measurement; of an analysis it has `command`, `pre`, `post` and the options"
        " of `tailscope analyze`. [fields.md](fields.md) has units, defaults and what is allowed:"
    )
    rows = [*plan_rows()]
    rows.append(("`command`", "`run`"))
    rows.append(("`stall_ns`", "From which length on a turn of a loop is a stall."))
    yield table(("name", ""), rows)


def _summary() -> Iterator[str]:
    for title, figures in contents.SUMMARY.items():
        yield f"#### {title}"
        yield table(("name", ""), ((codes(names), about) for names, about in figures.items()))


def _anchor(name: str) -> str:
    return name.replace(".", "")
