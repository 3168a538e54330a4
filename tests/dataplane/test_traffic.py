"""Traffic of the generator through a real forwarder: sizes, headers, flows, both directions."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from errors import raises
from processes import over_memif

from tailscope import analyze
from tailscope.exceptions import AnalysisError, DataplaneError
from tailscope.testbed.messages import FORWARDERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.store.records.messages import GeneratorResult


QUICK = ("--rate=20k", "--duration=100ms", "--warm-up=20ms", "--drain=100ms")
IMIX = {64: 7, 594: 4, 1518: 1}
ORDER = (
    "frame.len",
    "vlan.id",
    "ip.src",
    "ip.dst",
    "udp.srcport",
    "udp.dstport",
    "tcp.srcport",
    "tcp.flags.str",
    "icmp.type",
    "icmp.ident",
    "ipv6.src",
    "icmpv6.type",
)
CHECKSUMS = (
    "ip.checksum.status",
    "udp.checksum.status",
    "tcp.checksum.status",
    "icmp.checksum.status",
)
CHECKSUMS += ("icmpv6.checksum.status",)
VERIFIED = ("ip.check_checksum", "udp.check_checksum", "tcp.check_checksum")
GOOD = "1"

pytestmark = pytest.mark.usefixtures("dataplane")


class Seen(NamedTuple):
    """The result of a generator, and the folder of its captures."""

    result: GeneratorResult
    folder: Path


def sent(folder: Path, *options: str) -> Seen:
    """Send through a forwarder that changes MAC addresses, and write captures."""
    with over_memif() as pair, pair.dut(FORWARDERS["l2fwd"], []) as dut:
        dut.wait_ready()
        with pair.generator([*QUICK, *options, f"--captures={folder}"]) as generator:
            generator.wait_ready()
            result = generator.finish()
    assert result is not None
    return Seen(result, folder)


def dissected(capture: Path) -> list[dict[str, str]]:
    """Return the packets as tshark reads them, after a check of their checksums."""
    if shutil.which("tshark") is None:
        pytest.skip("needs tshark")
    wanted = [word for name in (*ORDER, *CHECKSUMS) for word in ("-e", name)]
    checks = [word for name in VERIFIED for word in ("-o", f"{name}:TRUE")]
    command = ["tshark", "-n", "-r", str(capture), *checks, "-T", "fields", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    packets = [
        dict(zip((*ORDER, *CHECKSUMS), line.split("\t"), strict=True))
        for line in done.stdout.splitlines()
    ]
    for packet in packets:
        statuses = [packet[name] for name in CHECKSUMS if packet[name]]
        assert statuses and set(statuses) == {GOOD}, packet
    return packets


def conserved(gen: Any) -> None:
    """Check that every packet of a direction has exactly one fate."""
    assert 0 < gen.matched <= gen.sent
    assert gen.sent + gen.unsent == 2000
    assert gen.foreign == gen.corrupt == gen.ambiguous == gen.unrecorded == 0


def only(packets: Sequence[dict[str, str]], name: str) -> set[str]:
    return {packet[name] for packet in packets}


@pytest.mark.parametrize("mix", ["imix", pytest.param("64:7,594:4,1518:1", marks=pytest.mark.long)])
def test_a_mix_has_each_size_as_often_as_it_says(tmp_path: Path, mix: str) -> None:
    result, folder = sent(tmp_path, f"--size={mix}", "--flows=12")
    conserved(result.gen)
    packets = dissected(folder / "pre.pcapng.zst")
    assert len(packets) == result.gen.sent
    sizes = [int(packet["frame.len"]) + 4 for packet in packets]
    assert result.gen.sent_bytes == sum(sizes)
    for first in range(0, len(sizes) - 12, 12):
        assert Counter(sizes[first : first + 12]) == IMIX
    whole = len(sizes) // 144 * 144
    flows = Counter(
        (packet["udp.srcport"], size)
        for packet, size in zip(packets[:whole], sizes[:whole], strict=True)
    )
    assert len(flows) == 12 * 3
    assert all(count == whole // 144 * IMIX[size] for (_, size), count in flows.items())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            ["--protocol=tcp", "--size=76"],
            {"tcp.srcport": {"1024"}, "tcp.flags.str": {"·······AP···"}},
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["--protocol=icmp"],
            {"icmp.type": {"8"}, "icmp.ident": {"1024"}},
            marks=pytest.mark.long,
        ),
        (["--vlan=7", "--size=68"], {"vlan.id": {"7"}, "udp.dstport": {"53"}}),
        (
            ["--src-ip=10.0.0.1..10.0.0.3", "--dst-port=80,443", "--dst-ip=192.0.2.7"],
            {
                "ip.src": {"10.0.0.1", "10.0.0.2", "10.0.0.3"},
                "udp.dstport": {"80", "443"},
                "ip.dst": {"192.0.2.7"},
            },
        ),
        (
            [
                "--src-ip=fd00::1..fd00::2",
                "--dst-ip=fd00::9",
                "--protocol=tcp",
                "--size=96:1,200:2",
            ],
            {"ipv6.src": {"fd00::1", "fd00::2"}, "tcp.srcport": {"1024"}},
        ),
        (
            ["--src-ip=fd00::1", "--dst-ip=fd00::9", "--protocol=icmp", "--size=100", "--vlan=9"],
            {"icmpv6.type": {"128"}, "vlan.id": {"9"}},
        ),
        pytest.param(
            ["--protocol=tcp", "--flows=5", "--size=81:1,1001:3"], {}, marks=pytest.mark.long
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_headers_are_as_asked(
    tmp_path: Path, options: list[str], expected: dict[str, set[str]]
) -> None:
    result, folder = sent(tmp_path, *options)
    conserved(result.gen)
    packets = dissected(folder / "pre.pcapng.zst")
    assert len(packets) == result.gen.sent
    assert {name: only(packets, name) for name in expected} == expected
    again = analyze(folder / "pre.pcapng.zst", folder / "post.pcapng.zst", match_on="probe")
    assert again.summary["count"] == result.gen.matched
    assert again.summary["lost"] == result.gen.sent - result.gen.matched


def test_a_rate_changes_at_its_time(tmp_path: Path) -> None:
    with over_memif() as pair, pair.dut(FORWARDERS["l2fwd"], []) as dut:
        dut.wait_ready()
        step = ("--step-rate=5k", "--step-after=50ms", f"--record={tmp_path}")
        with pair.generator([*QUICK, *step]) as generator:
            generator.wait_ready()
            result = generator.finish()
    assert result is not None and result.gen.sent + result.gen.unsent == 1_000 + 250
    names = ("intended_tsc", "unsent_tsc")
    at = np.sort(np.concatenate([np.load(tmp_path / f"{name}.npy") for name in names]))
    gaps_us = np.diff(at.astype(np.int64)) * 1e6 / result.clock.tsc_hz
    assert np.allclose(gaps_us[:999], 50, atol=0.1) and np.allclose(gaps_us[1_000:], 200, atol=0.1)


def test_each_direction_has_a_book_of_its_own(tmp_path: Path) -> None:
    result, folder = sent(tmp_path, "--direction=both", "--src-port=1000..1006")
    there, back = result.gen, result.gen.back
    assert back is not None
    for gen, part in ((there, folder), (back, folder / "back")):
        conserved(gen)
        packets = dissected(part / "pre.pcapng.zst")
        ports = {str(port) for port in range(1000, 1007)}
        is_back = part.name == "back"
        assert only(packets, "udp.dstport" if is_back else "udp.srcport") == ports
        assert only(packets, "ip.src") == {"10.0.1.1" if is_back else "10.0.0.1"}
        again = analyze(part / "pre.pcapng.zst", part / "post.pcapng.zst", match_on="probe")
        assert again.summary["count"] == gen.matched
    with pytest.raises(AnalysisError) as error:
        analyze(folder / "pre.pcapng.zst", folder / "back/post.pcapng.zst", match_on="probe")
    assert error.type is AnalysisError


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (["--protocol=tcp"], "option-value", ["--size", "got 64", "76 to 1518"]),
        (["--size=64:1,12:1"], "option-value", ["--size", "got 12", "64 to 1518"]),
        (["--size=64:x"], "usage", ["--size", "64:x"]),
        (["--flows=3", "--src-port=1..4"], "option-value", ["--flows", "got 3"]),
        (["--src-ip=10.0.0.1..fd00::1"], "usage", ["--src-ip", "10.0.0.1..fd00::1"]),
        (["--burst=8", "--burst-gap=1ms"], "option-value", ["7ms"]),
    ],
)
def test_what_cannot_be_sent_is_refused(
    tmp_path: Path, options: list[str], code: str, named: list[str]
) -> None:
    with raises(DataplaneError, code) as error:
        sent(tmp_path, *options)
    assert all(text in str(error.value) for text in named)
