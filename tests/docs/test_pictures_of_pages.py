"""Pictures of the documentation: all are there, and are described to who does not see them."""

from __future__ import annotations

import re

from pages import PAGES, ROOT

IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<path>[^)]+)\)")


def test_pictures_are_there_and_described() -> None:
    shown = set()
    for page in PAGES:
        for image in IMAGE.finditer(page.read_text()):
            path = (page.parent / image["path"]).resolve()
            assert path.is_file(), f"{page.relative_to(ROOT)}: {image['path']}"
            assert len(image["text"].split()) > 3, f"{page.relative_to(ROOT)}: {image['path']}"
            shown.add(path)
    assert ROOT / "docs/pictures/percentiles.svg" in shown
    assert shown == {*ROOT.glob("docs/pictures/*.svg"), *ROOT.glob("docs/extra/*/*.svg")}
