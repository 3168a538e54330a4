"""What the documentation points at is there: pages, headings, files, commands and options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pages import PAGES, ROOT, WING, is_of_a_deleted_folder, named, of_others

from tailscope.cli import application
from tailscope.registry import additions

if TYPE_CHECKING:
    from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)


def _prose(path: Path) -> str:
    return FENCED.sub("", path.read_text())


def _anchors(path: Path) -> set[str]:
    """As they are made of headings where pages are shown."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.*)$", _prose(path), re.M):
        text = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
        found[text] = found.get(text, -1) + 1
    return {
        f"{text}-{at}" if at else text for text, last in found.items() for at in range(last + 1)
    }


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=_named)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(_prose(path)):
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        if path == WING / "index.md" and there.parent.parent == WING and not there.parent.exists():
            continue  # A folder that was deleted.
        assert there.exists(), f"{_named(path)}: {target}"
        if anchor:
            assert anchor in _anchors(there), f"{_named(path)}: {target}"


@pytest.mark.parametrize("path", PAGES, ids=_named)
def test_commands_in_sentences_exist(path: Path) -> None:
    for text in re.findall(r"`tailscope ([^`]+)`", _prose(path)):
        command, words = application(), text.split()
        if is_of_a_deleted_folder(path, words):
            continue
        while hasattr(command, "commands") and words and words[0][:1].islower():
            if words[0] not in command.commands and hasattr(command, "default"):
                break
            assert words[0] in command.commands, f"{_named(path)}: tailscope {text}"
            command, words = command.commands[words[0]].way(words[1:]).load(), words[1:]
        command = getattr(command, "default", command)
        known = {name for each in command.params for name in each.opts} | {"--help", "-h"}
        used = {word.split("=")[0].rstrip(",.") for word in words if word.startswith("-")}
        assert used - {"-", "..."} <= known, f"{_named(path)}: tailscope {text}"


@pytest.mark.parametrize("path", PAGES, ids=_named)
def test_recipes_exist(path: Path) -> None:
    known = set(re.findall(r"^## make ([a-z-]+)", (ROOT / "Makefile").read_text(), re.M))
    known |= {"help", "setup-vm"}
    code = "\n".join(re.findall(r"`[^`]+`|^```.*?^```$", path.read_text(), re.M | re.S))
    named = re.findall(r"(?:^|`|run: |\()make ([a-z-]+)", code, re.M)
    assert set(named) <= known, _named(path)


def test_every_page_is_linked() -> None:
    """Whoever begins at the README, or at the first page of a folder of `docs/extra`, finds it."""
    reached: set[Path] = set()
    waiting = [ROOT / "README.md", *(ROOT / "docs" / "extra").glob("*/index.md")]
    while waiting:
        path = waiting.pop()
        if path in reached or path not in PAGES:
            continue
        reached.add(path)
        targets = (link.partition("#")[0] for link in LINK.findall(_prose(path)))
        waiting += [(path.parent / name).resolve() for name in targets if name]
    assert not [_named(path) for path in PAGES if path not in reached]


CODE = (".", "python/tailscope", "crates/dataplane/src")


@pytest.mark.parametrize("path", PAGES, ids=_named)
def test_files_in_sentences_exist(path: Path) -> None:
    """Their places are below the root, the package or the data plane."""
    named = re.findall(r"`([\w./-]+\.(?:py|rs|sh))`", _prose(path))
    missing = [name for name in named if "/" in name and not _is_there(path, name)]
    assert not missing


def _is_there(page: Path, name: str) -> bool:
    folders = [page.parent, *(ROOT / each for each in CODE)]
    return any((folder / name).exists() for folder in folders)


def test_readme_and_the_first_pages_stay_short() -> None:
    """A README of 90 lines; for each kind of user one screen, with a command and a picture."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
    starts = [*(ROOT / "docs/start").glob("*.md"), *(ROOT / "docs/extra").glob("*/start.md")]
    assert starts
    for path in starts:
        text = path.read_text()
        assert len(text.splitlines()) <= 40, path
        assert text.count("![") == 1 and text.count("```sh") == 1, path


def test_the_first_page_of_the_wing_lists_its_folders() -> None:
    listed = LINK.findall(_prose(WING / "index.md"))
    assert {f"{folder}/index.md" for folder in additions()} <= set(listed)


def test_pages_of_a_folder_link_to_no_other() -> None:
    """Each folder of the wing can be deleted, with its pages."""
    for path in WING.glob("*/*.md"):
        for name in (link.partition("#")[0] for link in LINK.findall(_prose(path))):
            there = (path.parent / name).resolve() if name else path
            is_other = there.is_relative_to(WING) and there.parent not in (WING, path.parent)
            assert not is_other, f"{_named(path)}: {name}"


@pytest.mark.parametrize("folder", sorted(additions()))
def test_a_first_page_tells_what_its_pages_name_of_other_folders(folder: str) -> None:
    """Deleted, they take their commands with them."""
    commands = {
        name: {each.words for each in added.commands} for name, added in additions().items()
    }
    present = set().union(*commands.values())
    pages = sorted((WING / folder).glob("*.md"))
    found = set().union(*map(named, pages)) - commands[folder]
    assert found == of_others(WING / folder / "index.md") & present
