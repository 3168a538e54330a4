"""Cards whose timestamps several programs use at once."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from errors import raises

from tailscope.exceptions import TestbedError
from tailscope.host import cards
from tailscope.host.cards import ALL_FRAMES, SENT_FRAMES, stamping

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.host.cards import StampSetting

OFF, PTP = (0, 0, 0), (0, 1, 12)
RECEIVED, BOTH = (0, 0, ALL_FRAMES), (0, SENT_FRAMES, ALL_FRAMES)


class Driver:
    """A driver that keeps the settings of its cards."""

    def __init__(self) -> None:
        self.settings: dict[str, StampSetting] = {}
        self.written: list[tuple[str, StampSetting]] = []
        self.refuses = False

    def read(self, card: str) -> StampSetting:
        return self.settings.get(card, OFF)

    def write(self, card: str, setting: StampSetting) -> StampSetting:
        if self.refuses:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self.written.append((card, setting))
        self.settings[card] = setting
        return setting


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(cards, "read_stamps", driver.read)
    monkeypatch.setattr(cards, "write_stamps", driver.write)
    monkeypatch.setattr(cards, "_USERS", tmp_path / "users")
    return driver


@pytest.mark.parametrize("before", [OFF, PTP])
def test_the_last_user_puts_the_setting_back(driver: Driver, before: StampSetting) -> None:
    """Whoever came first, and whatever each of them needs."""
    driver.settings["eth0"] = before
    for order in ([0, 1], [1, 0]):
        users = [ExitStack(), ExitStack()]
        users[0].enter_context(stamping("eth0"))
        assert driver.read("eth0") == (0, before[1], ALL_FRAMES)
        users[1].enter_context(stamping("eth0", sent=SENT_FRAMES))
        assert driver.read("eth0") == BOTH
        users[order[0]].close()
        assert driver.read("eth0") == BOTH
        users[order[1]].close()
        assert driver.read("eth0") == before


def test_a_card_that_does_already_is_left_alone(driver: Driver) -> None:
    driver.settings["eth0"], driver.refuses = BOTH, True
    with stamping("eth0"), stamping("eth0", sent=SENT_FRAMES):
        pass
    assert driver.written == []


def test_cards_have_users_of_their_own(driver: Driver) -> None:
    with stamping("eth0"), stamping("eth1"):
        pass
    on = [("eth0", RECEIVED), ("eth1", RECEIVED)]
    assert driver.written == [*on, ("eth1", OFF), ("eth0", OFF)]


def test_a_driver_that_refuses_is_named(driver: Driver) -> None:
    driver.refuses = True
    with raises(TestbedError, "card-stamps"), stamping("eth0"):
        pytest.fail("it takes none")
    assert driver.read("eth0") == OFF


def test_the_next_user_puts_back_what_a_killed_one_changed(driver: Driver) -> None:
    driver.settings["eth0"] = PTP
    with cards._open_users("eth0") as users:
        cards._join("eth0", SENT_FRAMES, users)
    assert driver.read("eth0") == BOTH
    with stamping("eth0"):
        assert driver.read("eth0") == BOTH
    assert driver.read("eth0") == PTP


def test_a_setting_from_after_a_killed_user_is_the_one_to_put_back(driver: Driver) -> None:
    with cards._open_users("eth0") as users:
        cards._join("eth0", SENT_FRAMES, users)
    driver.settings["eth0"] = PTP
    with stamping("eth0"):
        assert driver.read("eth0") == BOTH
    assert driver.read("eth0") == PTP


def test_only_their_owner_may_open_the_files_of_users(driver: Driver, tmp_path: Path) -> None:
    """Whoever could lock them could keep others waiting."""
    with stamping("eth0"):
        [file] = (tmp_path / "users").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
    assert driver.read("eth0") == OFF


@pytest.mark.parametrize("is_link", [False, True])
def test_files_of_others_are_not_touched(driver: Driver, tmp_path: Path, is_link: bool) -> None:
    with stamping("eth0"):
        [file] = (tmp_path / "users").iterdir()
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    if is_link:
        file.unlink()
        file.symlink_to(theirs)
    else:
        theirs.replace(file)
        file.chmod(0o666)
    with stamping("eth0"):
        assert driver.read("eth0") == RECEIVED
        assert file.read_text() == "precious"
    assert (driver.read("eth0"), file.read_text()) == (OFF, "precious")
