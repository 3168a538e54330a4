"""Campaigns of known runs, with whatever names and damage."""

from __future__ import annotations

import base64
import html
import itertools
import json
import re
import zlib
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np
import synthetic

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "<script>alert(1)</script>\"'$$x$$"
_FIELDS = {"rate": "rate_pps", "dut": "dut", "platform": "platform_name", "burst": "burst"}
_NUMBERS = {"10k": 10_000, "20k": 20_000, "50k": 50_000}


def write(
    path: Path, vary: dict[str, list[str]], *, repeats: int = 1, **record: Any
) -> list[dict[str, Any]]:
    """Write a campaign in which every combination is done; its cells."""
    cells = []
    for values in itertools.product(*vary.values()):
        for repeat in range(1, repeats + 1):
            named = dict(zip(vary, values, strict=True))
            name = ",".join([*(f"{one}={value}" for one, value in named.items()), f"r={repeat}"])
            name = re.sub(r"[^A-Za-z0-9=,.+-]", "_", name)
            fields = {
                _FIELDS[one]: _NUMBERS.get(value, int(value) if value.isdecimal() else value)
                for one, value in named.items()
                if one in _FIELDS
            }
            write_run(path / name, len(cells), **fields)
            cells.append(cell(name, named, repeat=repeat, runs=[name]))
    finish(path, cells, vary, repeats=repeats, **record)
    return cells


def write_run(path: Path, seed: int, **fields: Any) -> None:
    """A run of some thousand packets; each seed has latencies of its own."""
    found = synthetic.latencies(seed, base_ns=2_000 + 100 * seed)[:3_000]
    synthetic.write_run(path, found.astype(np.int64), lost=seed % 3, **fields)


def cell(name: str, values: dict[str, str], **known: Any) -> dict[str, Any]:
    """A cell as ``campaign.json`` has it."""
    usual = {"repeat": 1, "state": "done", "reason": None, "hint": None, "runs": []}
    return {"name": name, "values": values, **usual, **known}


def finish(
    path: Path, cells: list[dict[str, Any]], vary: dict[str, list[str]], **record: Any
) -> None:
    """Write ``campaign.json``."""
    repeats = record.pop("repeats", 1)
    levels = record.pop("service_levels", [])
    fixed = {"dut": "l2fwd", "duration": "1s"}
    plan = {"name": "small", "fixed": fixed, "vary": vary, "service_levels": levels}
    known = {
        "name": "small",
        "about": "",
        "started_unix_ns": 1,
        "tailscope_version": "0.1.0",
        "host": {"cpu_model": "a processor"},
        "experiment": {**plan, "repeats": repeats},
    }
    synthetic.write_campaign(path, cells, **{**known, **record})


class Seen(HTMLParser):
    """What a page holds: links, identifiers, headings, texts."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.identifiers: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self._where: list[str] = []
        self.source = page.read_text()
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._where.append(tag)
        for name, value in attrs:
            self.attributes.append(name)
            if name in ("href", "src"):
                self.links.append(value or "")
            if name == "id":
                self.identifiers.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        self._where.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self._where and self._where[-1] not in ("script", "style"):
            self.text += data

    def first_screen(self) -> str:
        """What stands above the first title: the head of the page, in one line."""
        (head,) = re.findall(r"<header>(.*?)</header>", self.source, re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", "", head)).split())

    def figures(self) -> dict[str, Any]:
        """The data of the figures by name, columns decoded."""
        found = re.search(r'id="data">([^<]*)<', self.source)
        if found is None:
            return {}
        data = json.loads(zlib.decompress(base64.b64decode(found[1])))
        for figure in data["figures"]:
            for layer in figure["layers"]:
                layer["columns"] = {
                    role: np.frombuffer(base64.b64decode(column["base64"]), f"<{column['type']}")
                    for role, column in layer["columns"].items()
                }
        return {figure["name"]: figure for figure in data["figures"]}


def check_links(page: Path) -> int:
    """See that every link is relative, and leads to a file or within the page; how many files."""
    seen = Seen(page)
    assert all(link[1:] in seen.identifiers for link in seen.links if link.startswith("#"))
    links = [link for link in seen.links if not link.startswith("#")]
    for link in links:
        parts = urlsplit(link)
        assert not parts.scheme, link
        assert not parts.netloc, link
        assert not parts.path.startswith("/"), link
        assert (page.parent / unquote(parts.path)).is_file(), link
    return len(links)
