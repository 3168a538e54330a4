"""Real nftables: it drops exactly the packets of its rules, translates addresses, and counts."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from captures import probe_numbers
from errors import code_of, raises
from runs import AS_ROOT, left_behind, needed, sound

from tailscope.duts.catalogue import dut_named
from tailscope.duts.nft_rules import counts_of
from tailscope.exceptions import TestbedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Measure = Callable[..., dict[str, Any]]

pytestmark = AS_ROOT

RATE = ("--rate", "2k")
HOOK = "{ type filter hook forward priority filter ; policy accept ; }"
# The rule matches the last byte of a probe's number, which follows its magic.
EVERY_256TH = (
    f"add chain inet tailscope mine {HOOK}\n"
    'add rule inet tailscope mine @ih,88,8 7 counter drop comment "mine"\n'
)
UNCOUNTED = (
    "add table ip other",
    f"add chain ip other forward {HOOK}",
    "add rule ip other forward udp dport vmap { 5 : accept, 6 : drop }",
    "add rule ip other forward udp dport 7 counter accept",
)


@pytest.fixture(autouse=True)
def nftables() -> None:
    needed("nft")


def test_rules_drop_exactly_what_they_match(measure: Measure, tmp_path: Path) -> None:
    rules = tmp_path / "my own.nft"
    rules.write_text(EVERY_256TH)
    option = ("--dut-option", f"rules={rules}")
    figures = measure("--dut", "nftables", *option, *RATE, "--captures")
    device = sound(figures["out"])["dut"]
    pre, post = (
        probe_numbers(figures["out"] / "captures" / f"{side}.pcapng.zst")
        for side in ("pre", "post")
    )
    wanted = {seq for seq in range(figures["sent"] + figures["unsent"]) if seq % 256 == 7}
    assert set(pre) - set(post) == wanted
    assert figures["lost"] == figures["lost_in_dut"] == figures["dropped_by_dut"] == len(wanted) > 0
    [rule] = device["result"]["rules"]
    assert (rule["chain"], rule["comment"], rule["verdict"]) == (
        "inet tailscope mine",
        "mine",
        "drop",
    )
    assert rule["packets"] == device["result"]["dropped"] >= len(wanted)
    assert "nftables v" in device["version"] and device["rules_sha256"]
    assert not left_behind()


def test_addresses_are_translated_behind_rules_that_match_nothing(measure: Measure) -> None:
    options = ("--dut-option", "rules=generated:50", "--dut-option", "nat=masquerade")
    figures = measure("--dut", "nftables", *options, *RATE, "--flows", "3", "--captures")
    result = sound(figures["out"])["dut"]["result"]
    assert figures["count"] == figures["sent"] and figures["dropped_by_dut"] == 0
    assert result["rules_loaded"] == 51
    [rule] = result["rules"]
    assert (rule["verdict"], rule["packets"]) == ("masquerade", 3)


def test_what_rules_drop_uncounted_is_not_known() -> None:
    script = "".join(f"nft '{line}'\n" for line in UNCOUNTED)
    command = ["unshare", "--net", "sh", "-ec", f"{script}nft --json list ruleset"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts = counts_of(listed, {})
    assert (counts.rules_loaded, counts.rules, counts.dropped) == (2, [], None)
    policy = json.loads(listed)
    policy["nftables"] = [{"chain": {"policy": "drop"}}]
    assert counts_of(json.dumps(policy), {}).dropped is None
    with raises(TestbedError, "nft-listing"):
        counts_of("{}", {})


def test_what_it_cannot_do_is_refused_before_anything_starts(tailscope: Any, place: Any) -> None:
    for text in ("generated:0", "generated:x"):
        with raises(UsageError, "rule-count") as refused:
            dut_named("nftables", {"rules": text}, "veth")
        assert "100,000" in str(refused.value)
    option = ("--dut-option", "rules=/no/such.nft")
    done = tailscope("run", "--dut", "nftables", *option, "--dry-run", env=place.environment)
    assert done.returncode == 0, done.stderr
    assert "/no/such.nft" in done.stdout


def test_nft_says_itself_what_it_cannot_read(tailscope: Any, place: Any, tmp_path: Path) -> None:
    rules = tmp_path / "broken.nft"
    rules.write_text("add rule inet tailscope nowhere drop\n")
    option = ("--dut-option", f"rules={rules}")
    out = place.path / "out"
    done = tailscope("run", "--dut", "nftables", *option, "--out", out, env=place.environment)
    assert done.returncode == 1
    assert code_of(done) == "command-failed"
    assert f"nft --file {rules}: " in done.stderr and "nowhere" in done.stderr
    assert not out.exists() and not left_behind()
