"""What mkdocs asks for: README is first, `pages.md` orders the others, and code is only named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
SECTION = re.compile(r"^\*\*(.+?)\*\*(.*(?:\n.+)*)", re.M)
GROUP = re.compile(r"(?:^|(?<=\. )|(?<=\.\n)|(?<= ))([A-Z][\w ]+): ", re.M)
HOME = "index.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Order pages as `pages.md` does: a section for each of its paragraphs of links."""
    links = (ROOT / "docs/pages.md").read_text()
    config.nav = [{"tailscope": HOME}, {"All pages": "pages.md"}]
    for name, text in SECTION.findall(links):
        first, *groups = GROUP.split(text)
        named = [(name.rstrip("."), first), *zip(groups[::2], groups[1::2], strict=True)]
        config.nav += [{each: pages} for each, links in named if (pages := _pages(links))]
    config.nav.append({"Beyond the core": [{"About": "extra/index.md"}, *_added()]})
    return config


def _added() -> list[dict[str, Any]]:
    """The pages of each folder of ``extra``."""
    firsts = sorted((ROOT / "docs/extra").glob("*/index.md"))
    return [
        {_title(first): [{_title(page): _place(page)} for page in _ordered(first)]}
        for first in firsts
    ]


def _ordered(first: Path) -> list[Path]:
    last = first.with_name("reference.md")
    return [first, *sorted({*first.parent.glob("*.md")} - {first, last}), last]


def _title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ").replace("`", "")


def _place(page: Path) -> str:
    return page.relative_to(ROOT / "docs").as_posix()


def _pages(links: str) -> list[dict[str, str]]:
    return [
        {title[:1].upper() + title[1:]: target}
        for title, target, _anchor in LINK.findall(links)
        if target.endswith(".md")
    ]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README, from where it is not below ``docs``."""
    text = (ROOT / "README.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, HOME, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_others: Any) -> str:
    """Only name what lies beside ``docs``: tests, crates, experiments."""
    # README's links were made those of its place on the site.
    where = (ROOT / "docs" / page.file.src_uri).parent

    def named(found: re.Match[str]) -> str:
        text, target, _anchor = found.groups()
        there = (where / target).resolve()
        is_page = there.is_relative_to(ROOT / "docs") and there.is_file()
        return found[0] if not target or is_page else text

    return LINK.sub(named, markdown)
