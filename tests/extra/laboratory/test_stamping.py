"""The choice of timestamps: by cards if they can, otherwise by the kernel with a warning."""

from __future__ import annotations

import subprocess

import pytest
from fake_cards import NOTHING, PTP_ONLY, FakeClock, FakeLinks, System, card
from runs import AS_ROOT
from wording import assert_wording

from tailscope.extra.laboratory.stamps.stamping import (
    ALL_FRAMES,
    KernelLinks,
    Offer,
    best_clock,
    by_ports,
    stamping,
)
from tailscope.testbed.namespaces import inside, make_links, namespace

PAIR = ("pre", "post")
ON = (0, 0, ALL_FRAMES)


def links(pre: Offer, post: Offer) -> FakeLinks:
    system = System()
    clocks = {number: FakeClock(f"ptp{number}", system, lambda _: 0) for number in (0, 1)}
    return FakeLinks({"pre": pre, "post": post}, clocks)


def test_two_ports_with_one_clock_need_no_comparison() -> None:
    found = best_clock(PAIR, links(card(0), card(0)))
    assert (found.by_cards, found.clocks, found.warnings) == (True, None, [])


def test_a_clock_for_each_port_is_compared() -> None:
    found = best_clock(PAIR, links(card(1), card(0)))
    assert found.by_cards and not found.warnings
    assert found.clocks is not None and [clock.name for clock in found.clocks] == ["ptp1", "ptp0"]


@pytest.mark.parametrize(
    ("pre", "post", "name"),
    [
        (card(), NOTHING, "post-none"),
        (PTP_ONLY, card(), "pre-some"),
        (card(), card(None), "post-no-clock"),
        (NOTHING, PTP_ONLY, "pre-none-post-some"),
    ],
)
def test_one_port_without_leaves_both_to_the_kernel(pre: Offer, post: Offer, name: str) -> None:
    found = best_clock(PAIR, links(pre, post))
    assert not found.by_cards and found.clocks is None
    [warning] = found.warnings
    assert_wording(f"stamping/{name}", warning)


def test_a_clock_that_cannot_be_read_is_none() -> None:
    fake = links(card(0), card(1))
    fake.clocks[1].broken = True
    found = best_clock(PAIR, fake)
    assert not found.by_cards
    assert "ptp1" in found.warnings[0] and "(Operation not supported)" in found.warnings[0]


@pytest.mark.parametrize("ports", [(0, 1), (1, 1)])
def test_a_clock_that_stands_still_is_none(ports: tuple[int, int]) -> None:
    fake = links(*map(card, ports))
    fake.clocks[1].ahead_ns = lambda passed_ns: -passed_ns
    found = best_clock(PAIR, fake)
    assert not found.by_cards
    assert_wording("stamping/stopped-clock", found.warnings[0])


def test_cards_are_set_and_put_back() -> None:
    fake = links(card(), card())
    fake.settings["post"] = (1, 1, 12)
    with stamping(PAIR, fake) as found:
        assert found.by_cards
        assert fake.settings == {"pre": ON, "post": (1, 1, ALL_FRAMES)}
    assert fake.settings == {"pre": (0, 0, 0), "post": (1, 1, 12)}
    assert not found.warnings


def test_a_card_that_does_already_is_left_alone() -> None:
    fake = links(card(), card())
    fake.settings["pre"] = (0, 1, ALL_FRAMES)
    with stamping(PAIR, fake):
        pass
    assert fake.configured == [("post", ON), ("post", (0, 0, 0))]


def test_a_driver_that_does_not_say_how_it_is_set_is_switched_off_again() -> None:
    fake = links(card(), card())
    fake.mute = {"pre"}
    with stamping(PAIR, fake):
        assert fake.settings["pre"] == ON
    assert fake.settings["pre"] == (0, 0, 0)


@pytest.mark.parametrize(
    "kind",
    ["refuse", "pretend"],
)
def test_a_card_that_does_not_do_it_is_found_out(kind: str) -> None:
    fake = links(card(), card())
    getattr(fake, kind).add("post")
    with stamping(PAIR, fake) as found:
        assert not found.by_cards
        assert_wording(f"stamping/{kind}", found.warnings[0])
        # The other card is restored, too.
        assert fake.settings["pre"] == (0, 0, 0)


def test_what_could_not_be_put_back_is_said() -> None:
    fake = links(card(), card())
    with stamping(PAIR, fake) as found:
        fake.refuse.add("pre")
    [warning] = found.warnings
    assert_wording("stamping/not-restored", warning)
    assert fake.settings == {"pre": ON, "post": (0, 0, 0)}


def test_cards_are_put_back_after_an_error() -> None:
    fake = links(card(), card())
    with pytest.raises(KeyboardInterrupt), stamping(PAIR, fake):
        raise KeyboardInterrupt
    assert fake.settings == {"pre": (0, 0, 0), "post": (0, 0, 0)}


def test_two_cards_of_dpdk_are_warned_of() -> None:
    assert not by_ports(["0000:01:00.0", "0000:01:00.1"]).warnings
    [warning] = by_ports(["0000:01:00.0", "0000:02:00.0"]).warnings
    assert_wording("stamping/two-cards", warning)


@AS_ROOT
def test_the_kernel_says_what_ethtool_says() -> None:
    """veth has software timestamps only, and ethtool asks the same kernel in another way."""
    with namespace("tailscope-test-stamping", quiet=True) as home:
        make_links(home, [("pre", "post")])
        with inside(home):
            offers = {name: KernelLinks().offer(name) for name in (*PAIR, "nothing7")}
            printed = subprocess.run(
                ["ethtool", "-T", "pre"], capture_output=True, text=True, check=True
            ).stdout
            with stamping(PAIR, KernelLinks()) as found:
                assert not found.by_cards and found.warnings
            with pytest.raises(OSError, match=r"\[Errno"):
                KernelLinks().configure("nothing7", ON)
    assert "hardware-receive" not in printed
    assert set(offers.values()) == {NOTHING}
