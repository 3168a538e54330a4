"""Devices of the kernel over veth: every packet goes through, and nothing stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of
from runs import AS_ROOT, left_behind, needed, sound

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = Callable[..., dict[str, Any]]

pytestmark = AS_ROOT

RATE = ("--rate", "2k")


@pytest.mark.parametrize("dut", ["mirred", "bridge", "router"])
def test_packets_go_through_the_kernel(measure: Measure, dut: str) -> None:
    figures = measure("--dut", dut, *RATE, "--noise", "auto")
    info = sound(figures["out"])
    assert info["plan"]["wire"] == "veth"
    assert figures["count"] == figures["sent"]
    assert info["dut"]["version"].startswith("Linux ")
    received = [link["rx_packets"] for link in info["dut"]["result"]["links"].values()]
    assert max(received) >= figures["sent"]
    assert not left_behind()


def test_a_classifier_can_be_chosen(measure: Measure) -> None:
    figures = measure("--dut", "mirred", "--dut-option", "classifier=u32", *RATE)
    commands = sound(figures["out"])["dut"]["configuration"]
    assert any("u32" in command for command in commands)
    assert not any("matchall" in command for command in commands)


def test_what_is_mirrored_goes_on_and_up_the_stack(measure: Measure) -> None:
    """The authors of containers2024 mirror packets in this way."""
    figures = measure("--dut", "mirred", "--dut-option", "action=mirror", *RATE)
    commands = sound(figures["out"])["dut"]["configuration"]
    assert any("mirror" in command for command in commands)
    assert not any("redirect" in command for command in commands)
    assert figures["count"] == figures["sent"]


def test_the_kernel_says_what_it_refuses(tailscope: Any, place: Any) -> None:
    """If this machine's kernel has no matchall, the error quotes tc."""
    options = ("--dut", "mirred", "--dut-option", "classifier=matchall", "--duration", "100ms")
    done = tailscope("run", *options, "--out", place.path / "out", env=place.environment)
    assert done.returncode == 0 or code_of(done) == "command-failed"
    assert done.returncode == 0 or "tc filter add" in done.stderr
    assert not left_behind()


def test_xdp_redirects_or_says_why_not(tailscope: Any, place: Any) -> None:
    needed("xdp-bench")
    options = ("--dut", "xdp", "--duration", "200ms", "--warm-up", "100ms", *RATE)
    done = tailscope("run", *options, "--out", place.path / "out", env=place.environment)
    if done.returncode == 0:
        assert sound(place.path / "out")["dut"]["version"].startswith("xdp-bench")
    else:
        assert code_of(done) == "program-ended"
        assert "libbpf" in done.stderr or "XDP" in done.stderr
    assert not left_behind()
