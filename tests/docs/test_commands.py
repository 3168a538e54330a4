"""Every command of the documentation is run, and says what the page shows."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pages import (
    GUIDE,
    LANGUAGES,
    NEEDS,
    PAGES,
    ROOT,
    Block,
    Folder,
    alike,
    blocks,
    measures,
    needs_the_machine,
    shape,
    understood,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELL = ("sh", "console")
LONG = {
    "docs/analyze.md",
    "docs/baseline.md",
    "docs/campaign-report.md",
    "docs/catalogue.md",
    "docs/compare.md",
    "docs/doctor.md",
    "docs/energy.md",
    "docs/experiments.md",
    "docs/explain-captures.md",
    "docs/host.md",
    "docs/noise.md",
    "docs/overload.md",
    "docs/papers/commag2020.md",
    "docs/papers/containers2024.md",
    "docs/papers/limbo2022.md",
    "docs/papers/microsecond2017.md",
    "docs/papers/noms2020.md",
    "docs/python.md",
    "docs/reports.md",
    "docs/run.md",
    "docs/security.md",
    "docs/stages.md",
    "docs/start/ci.md",
    "docs/start/paper.md",
    "docs/start/program.md",
    "docs/verdict.md",
}
"""Pages that measure, or look at many runs: otherwise only their commands are parsed."""
LONG |= {str(path.relative_to(ROOT)) for path in PAGES if (ROOT / "docs" / "extra") in path.parents}


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _page(path: Path) -> object:
    alone = [pytest.mark.alone] if needs_the_machine(path) else []
    long = [pytest.mark.long] if _named(path) in LONG else []
    return pytest.param(path, id=_named(path), marks=[*alone, *long])


def generated(path: Path) -> bool:
    return "reference" in (*path.parts, path.stem)


def _not_run() -> list[Block]:
    return [block for path in PAGES for block in blocks(path) if block.missing() is not None]


@pytest.fixture(scope="module")
def shared_folder() -> Iterator[Folder]:
    """Where README and the guide are run, one page after the other."""
    with tempfile.TemporaryDirectory() as folder:
        yield Folder(Path(folder))


@pytest.mark.parametrize(
    "path", [_page(path) for path in [*GUIDE, *(path for path in PAGES if path not in GUIDE)]]
)
def test_commands_of_a_page(path: Path, request: pytest.FixtureRequest) -> None:
    if measures(path):
        request.getfixturevalue("dataplane")
    if path in GUIDE:
        request.getfixturevalue("shared_folder").run(path)
    else:
        Folder(request.getfixturevalue("scratch")).run(path)


@pytest.mark.parametrize("name", sorted(LONG))
def test_commands_of_a_long_page_are_parsed(name: str) -> None:
    understood(ROOT / name)


@pytest.mark.parametrize("block", [pytest.param(each, id=each.place) for each in _not_run()])
def test_not_run_here(block: Block) -> None:
    """For the list of what was left out; its commands were parsed and planned with the page."""
    pytest.skip(f"{block.place} needs {', '.join(block.needs)}: {block.missing()}")


@pytest.mark.parametrize("path", PAGES, ids=_named)
def test_nothing_escapes(path: Path) -> None:
    """Every block says what it is, what it needs is known, and no command hides as text."""
    for block in blocks(path):
        assert block.language in LANGUAGES, f"{block.place}: got {block.language!r}"
        unknown = set(block.needs) - set(NEEDS)
        assert not unknown, f"{block.place}: nobody knows whether there is {unknown}"
        if block.language not in SHELL and not generated(path):
            hidden = re.search(r"^(\$ |tailscope |sudo |make |python -m )", block.text, re.M)
            assert not hidden, f"{block.place}: a command in a block of {block.language}"


def test_shapes() -> None:
    assert shape("p99.9     1.223530 ms   1.1 ms to 1.39 ms   200") == "p0 T T 0"
    assert shape("p99.99 *   ≥ 4.65 ms    sample 4.8 ms     2") == "p0 T T 0"
    assert shape("p99.9  1.22 to 3.14 ms ~  1.1 ms to 3.2 ms  20") == "p0 T T 0"
    assert shape("error p50 41 ns, p99.9 -, max 1 s") == shape(
        "error p50 1 µs, p99.9 2 µs, max 3 s"
    )
    assert shape("believed up to  p99") == shape("believed up to  -")
    assert alike(("a 1", "...", "b 2"), ["a 7", "x", "y", "b 3"])
    assert alike(("...",), [])
    assert not alike(("a", "b"), ["a", "c"])
    assert not alike(("a",), ["a", "b"])


GOOD = """
```console
$ echo one 1; echo two >&2
one 2
$ false  # exit status 1
```

# so.yaml is written, and what is set stays set

```yaml
# so.yaml
name: so
```

```sh
kept=so
cat $kept.yaml \\
    | grep name
```

Needs: a laboratory.

```sh
tailscope verify RUN --slo p99.9\\<1ms && no-such-program
```
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("", "", None),
        ("one 2", "two 2", "is not what came"),
        ("false", "true", "status 0"),
        ("  # exit status 1", "", "status 1"),
        ("name: so", "other: so", "status 1"),
        ("--slo", "--level", "No such option: --level"),
        ("tailscope verify", "tailscope verified", "no command tailscope verified"),
    ],
)
def test_a_page_that_is_wrong_is_found_out(
    tmp_path: Path, old: str, new: str, complaint: str | None
) -> None:
    page = tmp_path / "page.md"
    page.write_text(GOOD.replace(old, new) if old else GOOD)
    (tmp_path / "folder").mkdir()
    if complaint is None:
        Folder(tmp_path / "folder").run(page)
    else:
        with pytest.raises(AssertionError, match=re.escape(complaint)):
            Folder(tmp_path / "folder").run(page)
