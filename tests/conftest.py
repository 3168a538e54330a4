"""What all tests share: the installed command, the captures of the papers, a place to work in."""

from __future__ import annotations

import gc
import json
import os
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import MLRsearch  # noqa: F401  as it is imported it looks at all modules that there are: few by now
import pytest
from command import COMMAND, run
from measurements import Place, measuring

from tailscope.exceptions import DataplaneError
from tailscope.testbed.process import find_binary

if TYPE_CHECKING:
    import subprocess

# What is started in the background ignores Ctrl-C, or the end of its terminal, and hands that on.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A machine that does other work as well may take any time for an example.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

Tailscope = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for the machine: `make test` runs those tests one by one."""
    for item in items:
        if "alone" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.alone)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage: until all are collected, nothing becomes any.

    Nor does it later, so that who looks for garbage need not look through thousands of tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def alone() -> None:
    """Gives a test the machine: it judges times, or changes or looks over what all tests share."""


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of the papers' captures."""
    if not DATA.is_dir() and not os.environ.get("CI"):
        pytest.skip(f"no captures in {DATA}")
    return DATA


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that is gone after the test: captures are large."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def tailscope() -> Tailscope:
    """Runs the installed command."""
    assert COMMAND.exists(), f"{COMMAND}: the package is not installed"
    return run


@pytest.fixture(scope="session")
def figures(tailscope: Tailscope) -> Callable[..., dict[str, Any]]:
    """Analyses a pair and returns the figures that `--json -` prints."""

    def figures(pre: Path, post: Path, *options: object) -> dict[str, Any]:
        done = tailscope("analyze", pre, post, "--json", "-", *options)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return figures


@pytest.fixture(scope="session")
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
    place = Place.in_folder(tmp_path_factory.mktemp("home"))
    yield place
    assert not place.left()


@pytest.fixture
def measure(tailscope: Tailscope, place: Place, dataplane: Path) -> Callable[..., dict[str, Any]]:
    """Runs `tailscope run` and returns its figures; `out` is where the run is."""
    return measuring(tailscope, place)
