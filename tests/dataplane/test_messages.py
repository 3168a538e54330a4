"""The lines of the data plane, as types: what a program says is understood whole, or refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

from tailscope.exceptions import DataplaneError
from tailscope.store.records.base import as_content
from tailscope.store.records.dataplane import GeneratorCounts, KernelCounts, LinkCounts
from tailscope.store.records.messages import GeneratorResult, L2fwdResult
from tailscope.testbed.messages import FORWARDERS, GENERATOR, generator_counts
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLOCK = {"tsc_hz": 2_000_000_000, "tsc": 7, "unix_ns": 8}
LCORE = {
    "cpu": None, "dropped": {"no_route": 2}, "iterations": 9, "lcore": 0, "rx_packets": 3,
    "stall_ns_max": 5, "stall_ns_total": 6, "stalls": 1, "stalls_unrecorded": 0, "tid": 77,
    "tx_dropped": 0, "tx_packets": 3,
}  # fmt: skip
PORT = {
    "driver": "net_memif", "link_down_count": 0, "name": "net_memif0", "port": 0, "rx_errors": 0,
    "rx_missed": 0, "rx_nombuf": 0, "rx_packets": 3, "tx_errors": 0, "tx_packets": 3,
    "xstats": {"rx_good_packets": 3},
}  # fmt: skip
TRAFFIC = {
    "ambiguous": 0, "corrupt": 0, "duplicated": 0, "foreign": 0, "matched": 3, "rate_pps": 10,
    "sent": 3, "unrecorded": 0, "unsent": 0, "warm_up_received": 0, "warm_up_sent": 0,
}  # fmt: skip


def result(program: str, own: Any) -> dict[str, Any]:
    common = {"event": "result", "program": program, "complete": True, "clock": CLOCK}
    whole = {"duration_ns": 1, "hugepages": False, "started_tsc": 2, "partial": [], "record": []}
    whole["monitor_tid"] = 78
    return {**common, **whole, "lcores": [LCORE], "ports": [PORT], program: own}


def read(content: object) -> Any:
    return GENERATOR.read("generator", json.dumps(content))


def test_a_result_is_kept_as_it_was_said() -> None:
    said = result("gen", TRAFFIC)
    found = read(said)
    assert isinstance(found, GeneratorResult) and type(generator_counts(found)) is GeneratorCounts
    left_out = {"event", "clock", "partial", "record", "monitor_tid"}
    assert as_content(generator_counts(found)) == {
        name: said[name] for name in said.keys() - left_out
    }


def test_counts_of_others_name_what_counted() -> None:
    counts = LinkCounts(
        rx_packets=1, tx_packets=2, rx_errors=3, tx_errors=4, rx_dropped=5, tx_dropped=6
    )
    found: Any = as_content(KernelCounts(links={"in0": counts}))
    assert found["program"] == "kernel"
    assert found["links"]["in0"]["tx_dropped"] == 6


def test_a_forwarder_says_what_only_it_counts() -> None:
    line = json.dumps(result("l2fwd", {"pairs": [[0, 1], [1, 0]]}))
    found = FORWARDERS["l2fwd"].read("dut", line)
    assert isinstance(found, L2fwdResult) and found.l2fwd.pairs == [(0, 1), (1, 0)]
    with raises(DataplaneError, "dataplane-message") as error:
        FORWARDERS["l3fwd"].read("dut", line)
    assert all(text in str(error.value) for text in ("dut: ", "l3fwd", " program: "))


def _set(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(content: Any) -> None:
        *way, last = path
        for step in way:
            content = content[step]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_set("gen", "sent", value="3"), "gen.sent: expected `int`, got `str`"),
        (_set("gen", "sent", value=-1), "gen.sent: expected `int` >= 0"),
        (_set("gen", "more", value=1), "gen: object contains unknown field `more`"),
        (_set("more", value=1), "object contains unknown field `more`"),
        (_set("lcores", 0, "tid", value=None), "lcores[0].tid: expected `int`, got `null`"),
        (_set("ports", 0, "xstats", value=[]), "ports[0].xstats: expected `object`, got `array`"),
        (_set("event", value="end"), "event: invalid value 'end'"),
        (lambda content: content.pop("clock"), "object missing required field `clock`"),
        (lambda content: content.pop("event"), "object missing required field `event`"),
    ],
)
def test_what_is_not_understood_is_named(change: Any, where: str) -> None:
    said: dict[str, Any] = json.loads(json.dumps(result("gen", TRAFFIC)))
    change(said)
    with raises(DataplaneError, "dataplane-message") as error:
        read(said)
    assert str(error.value).startswith("generator: ") and f" said: {where}" in str(error.value)


@pytest.mark.usefixtures("dataplane")
def test_a_process_that_says_something_else_is_not_believed(tmp_path: Path) -> None:
    """Whoever waits for its end is told what it said, and not that it ended well."""
    said = json.dumps({**result("gen", TRAFFIC), "more": 1})
    generator = Dataplane("generator", GENERATOR, [], [], place=Here(tmp_path), lcores=[0])
    generator.command[:] = ["echo", said]
    with generator:
        assert generator.finish() is None
        assert "object contains unknown field `more`" in str(generator.failure())


@pytest.mark.parametrize("line", ["", "EAL: hello", "[]", "7", '"ready"', '{"event": "rea', "{"])
def test_what_is_no_message_is_passed_over(line: str) -> None:
    assert GENERATOR.read("generator", line) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.text() | _JSON.map(json.dumps) | st.just('{"a":' * 100_000))
def test_whatever_comes_is_refused_or_passed_over(line: str) -> None:
    try:
        assert GENERATOR.read("generator", line) is None
    except DataplaneError as error:
        assert str(error).startswith("generator: ")
