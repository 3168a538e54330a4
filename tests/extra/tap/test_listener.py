"""What the program hears of two links: which way packets go, and which of them are matched."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from captures import udp
from runs import AS_ROOT

from tailscope.engine.slices import Part, merge
from tailscope.exceptions import TailscopeError
from tailscope.extra.tap.filters import compiled
from tailscope.extra.tap.listener import Listener
from tailscope.extra.tap.plan import TapPlan
from tailscope.store.records.messages import TapKey, TapSecond
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.namespaces import command_in, inside, make_links, namespace
from tailscope.testbed.places import Here

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [AS_ROOT, pytest.mark.usefixtures("dataplane")]

MANY = 120


@pytest.fixture
def home() -> Iterator[Here]:
    """A namespace with two pairs of joined links."""
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        name = stack.enter_context(namespace(f"{folder.name}-taps", quiet=True))
        make_links(name, [("to-pre", "pre"), ("to-post", "post")])
        yield Here(folder.path, command_in(name), mark=name)


def plan(*, taps: bool, filter_text: str = "") -> TapPlan:
    return TapPlan(
        pre="pre",
        post="post",
        taps=taps,
        card_clock=None,
        filter=filter_text,
        program=compiled(filter_text),
        match_on="auto",
        window_ns=100_000_000,
        bucket_ns=100,
        worst=10,
        keep=0,
        lasts_s=None,
        level=None,
        out=None,
        json_file=None,
        metrics=None,
    )


@pytest.mark.parametrize("taps", [True, False])
def test_packets_are_matched_that_go_the_way_that_was_asked_for(home: Here, taps: bool) -> None:
    """They come in by both links, or leave by the second one; others are not heard."""
    events: list[TapKey | TapSecond] = []
    figures = home.folder / "figures"
    behind = "to-post" if taps else "post"
    asked = plan(taps=taps, filter_text="udp")
    with ExitStack() as stack:
        listener = stack.enter_context(Listener(asked, figures, None, place=home))
        stack.enter_context(inside(home.folder.name + "-taps"))
        links = {}
        for name in ("to-pre", behind):
            raw = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
            raw.bind((name, 0))
            links[name] = raw
        for number in range(MANY):
            links["to-pre"].send(udp(number))
            links["to-pre"].send(bytes(12) + b"\x88\xb5" + bytes(46))
            if number % 10:
                links[behind].send(udp(number))
            time.sleep(0.001)
        time.sleep(0.2)
        listener.follow(events.append, lambda: True)
        result = listener.finish()
    assert result.complete
    assert (result.tap.pre.received, result.tap.post.received) == (MANY, MANY * 9 // 10)
    found = merge([Part.from_bytes(figures.read_bytes())]).summary
    assert (found["count"], found["lost"], found["outside"]) == (108, 12, 0)
    seconds = [event for event in events if isinstance(event, TapSecond)]
    assert sum(second.matched for second in seconds) == 108
    assert sum(second.lost for second in seconds) == 12


def test_without_packets_on_both_sides_there_are_no_figures(home: Here) -> None:
    """What comes in by the second link does not leave by it."""
    figures = home.folder / "figures"
    with Listener(plan(taps=False), figures, None, place=home) as listener:
        with inside(home.folder.name + "-taps"):
            for name in ("to-pre", "to-post"):
                with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
                    raw.bind((name, 0))
                    raw.send(udp(1))
        result = listener.finish()
    assert not result.tap.joined
    assert (result.tap.pre.received, result.tap.post.received) == (1, 0)
    assert not figures.exists()


@pytest.mark.parametrize("again", [True, False])
def test_a_link_that_is_removed_ends_it_and_loses_nothing(home: Here, again: bool) -> None:
    """Its name may be that of another one by then."""
    events: list[TapKey | TapSecond] = []
    name = home.folder.name + "-taps"
    with ExitStack() as stack:
        listener = stack.enter_context(
            Listener(plan(taps=True), home.folder / "figures", None, place=home)
        )
        stack.enter_context(inside(name))
        links = [
            stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) for _ in range(2)
        ]
        for link, bound in zip(links, ("to-pre", "to-post"), strict=True):
            link.bind((bound, 0))
        for number in range(2 * MANY):
            links[0].send(udp(number))
            if number < MANY:
                links[1].send(udp(number))
            if number == MANY:
                subprocess.run([*command_in(name), "ip", "link", "del", "to-post"], check=True)
                if again:
                    make_links(name, [("to-post", "post")])
            time.sleep(0.001)
        time.sleep(0.3)
        listener.follow(events.append, lambda: False)
        with pytest.raises(TailscopeError) as caught:
            listener.finish()
    assert caught.value.code == "packet-socket"
    assert str(caught.value).startswith("tap: post: ")
    seconds = [event for event in events if isinstance(event, TapSecond)]
    assert sum(second.matched for second in seconds) == MANY
    assert sum(second.lost for second in seconds) == 0
    assert sum(second.unresolved for second in seconds) >= 1
