"""Real processes of the data plane, each measurement in a private folder of its own."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from measurements import QUICK, Place

from tailscope.exceptions import DataplaneError
from tailscope.testbed.process import find_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def dataplane() -> Path:
    """The data plane; without DPDK there is none, and nothing to test."""
    try:
        return find_binary()[0]
    except DataplaneError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A home; nothing may be left in it after the test."""
    path = tmp_path_factory.mktemp("home")
    (path / "run").mkdir(mode=0o700)
    environment = {"XDG_RUNTIME_DIR": str(path / "run"), "XDG_STATE_HOME": str(path / "state")}
    place = Place(path, {**os.environ, **environment})
    yield place
    assert not place.left()


@pytest.fixture
def measure(tailscope: Callable[..., Any], place: Place) -> Callable[..., dict[str, Any]]:
    """Runs `tailscope run` and returns its figures; `out` is where the run is."""

    def measure(*options: object, expected: int = 0) -> dict[str, Any]:
        out = place.path / "out"
        done = tailscope(
            "run", *QUICK, *options, "--json", "-", "--out", out, env=place.environment
        )
        assert done.returncode == expected, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return {**found, "out": out}

    return measure
