"""What captures say of queues and policers of a kernel that this machine does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pattern_guests import PROGRAMS, Discipline, Router, captured, disciplines, router, said_of
from runs import needed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """One guest for all disciplines: it needs no root here."""
    needed(*PROGRAMS)
    with router(tmp_path_factory.mktemp("guest")) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("discipline", [*disciplines()], ids=lambda each: each.name)
def test_a_discipline_is_named_by_its_command(
    discipline: Discipline, inside: Router, tmp_path: Path
) -> None:
    seen = captured(discipline, inside, tmp_path)
    said = said_of(seen, tmp_path)
    assert not said.wrong(discipline)
    assert said.verdict(discipline) == "right"
    assert said.summary["lost"] == seen.dropped
