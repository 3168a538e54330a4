"""Fixtures of the laboratory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from laboratory import Laboratory, laboratory
from runs import left_behind, needed

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """Build a laboratory that all tests of a file share."""
    needed("sshd", "ssh-keygen", "tcpdump")
    with laboratory(tmp_path_factory.mktemp("laboratory")) as built:
        yield built


@pytest.fixture
def lab(machines: Laboratory) -> Iterator[Laboratory]:
    """Return the laboratory, and check that the test leaves nothing on its machines."""
    yield machines
    for role in machines.hosts:
        assert not list((machines.path / f"{role}.run").iterdir())
    assert not left_behind()
