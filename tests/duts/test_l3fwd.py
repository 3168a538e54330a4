"""The CPUs of l2fwd and l3fwd, and the queues of l3fwd, as its configuration names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from errors import raises
from runs import sound

from tailscope.duts.catalogue import dut_named
from tailscope.exceptions import UsageError
from tailscope.experiment.plan import RunPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("dut", "option"), [("l2fwd", "cpus=2"), ("l3fwd", "config=(0,0,0),(1,0,1)")]
)
def test_two_loops_forward_a_port_each(measure: Measure, dut: str, option: str) -> None:
    figures = measure("--dut", dut, "--dut-option", option, "--rate", "500")
    info = sound(figures["out"])
    assert figures["count"] == figures["sent"]
    first, second = info["dut"]["result"]["lcores"]
    assert {first["lcore"], second["lcore"]} == set(
        map(int, info["instrument"]["cpus"]["DuT"].split(","))
    )
    # All packets come by one port, which is polled by one of the two.
    assert sorted((first["rx_packets"] > 0, second["rx_packets"] > 0)) == [False, True]


def test_flows_are_spread_over_queues_and_their_loops(measure: Measure) -> None:
    config = "config=(0,0,0),(1,0,0),(0,1,1),(1,1,1)"
    traffic = ("--flows", 6, "--queues", 2, "--rate", "600")
    figures = measure("--dut", "l3fwd", "--dut-option", config, *traffic, "--noise", "auto")
    assert figures["count"] == figures["sent"]
    loops = sound(figures["out"])["dut"]["result"]["lcores"]
    assert len(loops) == 2
    # Warm-up packets count, too; flows take queues by turns, and both phases begin with the first
    # flow: a busy generator may send an odd number of packets in each.
    first, second = (loop["rx_packets"] for loop in loops)
    assert abs(first - second) <= 2
    assert first + second >= figures["sent"]


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"dut": "l2fwd", "flows": 2}, ["got 2", "expected 1", "--dut l2fwd"]),
        ({"dut": "l3fwd", "flows": 1}, ["got 2", "a flow: 1"]),
        ({"dut": "l3fwd", "flows": 2, "wire": "veth"}, ["got 2", "expected 1", "--wire veth"]),
    ],
)
def test_queues_that_nobody_polls_are_refused(options: dict[str, Any], values: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        RunPlan(queues=2, **options)
    assert all(value in str(error.value) for value in ("--queues", *values))


def test_cpus_of_a_configuration_are_those_of_the_device() -> None:
    dut: Any = dut_named("l3fwd", {"config": "(0,0,1),(1,0,0)", "lookup": "fib"}, "memif")
    assert dut.cpus == 2
    assert dut.arguments((4, 7)) == ["--lookup=fib", "--config=(0,0,7),(1,0,4)"]
    assert dut_named("l3fwd", {}, "memif").cpus == 1


@pytest.mark.parametrize("config", ["", "0,0,0", "(0,0)", "(0,0,0)(1,0,1)", "(0,0,1)", "(0,0,0),"])
def test_a_configuration_that_cannot_be_is_refused(config: str) -> None:
    with raises(UsageError, "l3fwd-config"):
        dut_named("l3fwd", {"config": config}, "memif")
