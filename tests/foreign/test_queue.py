"""Rings by dumpcap around a shaper that drops: tshark and the kernel know the truth."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from runs import AS_ROOT, needed

from .frames import CLIENT, SERVER
from .kernel import MASQUERADE, TOOLS, iperf3, ping, send_numbered
from .network import end, routed_network
from .tools import mergecap
from .tools import run as run_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pandas
    from conftest import Tailscope

    from .network import Network

    Send = Callable[[Network], None]

ROUTER = "10.2.0.1"
"""Whom the NAT lets the client appear as."""
SHAPER = ("tbf", "rate", "20mbit", "burst", "16kb", "limit", "40kb")
FIELDS = (
    *("frame.time_epoch", "frame.len", "ip.src", "ip.dst", "ip.id", "ip.proto"),
    *("tcp.seq_raw", "tcp.ack_raw"),
    *("tcp.len", "icmp.seq", "icmp.ident"),
    *("tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport"),
)
DRAINED_S = 2
"""How long dumpcap is given: what is left in its buffers when it ends, it throws away."""
IDENTITY = ["ip.id", "ip.proto", "frame.len", "tcp.seq_raw", "tcp.ack_raw", "tcp.len", "icmp.seq"]
"""What a NAT leaves as it is, and no second packet of this traffic has."""
NAMES = {"6": "tcp", "17": "udp", "1": "icmp"}


def curl(net: Network, size: int = 20_000) -> None:
    """Post some bytes, ten times; the server refuses to take them, and reads them."""
    for _ in range(10):
        words = ("curl", "-s", "-o", os.devnull, "-d", "x" * size, f"{SERVER}:8000")
        net.run("client", *words)


def capture(folder: Path, rules: str, traffic: Sequence[Send]) -> tuple[dict[str, list[Path]], int]:
    """Capture traffic in rings; the files, and how many packets the kernel says it dropped."""
    with routed_network(rules) as net:
        net.run("router", "tc", "qdisc", "add", "dev", "tap-out", "root", *SHAPER)
        served = (sys.executable, "-u", "-m", "http.server", "8000", "--bind", SERVER)
        net.start("server", *served, ready="Serving HTTP")
        capturing = [
            net.start(
                "router", "dumpcap", "-i", link, "-q", "-B", "64", "-b", "packets:500",
                "-w", folder / f"{link}.pcapng", ready="File:",
            )
            for link in ("tap-in", "tap-out")
        ]  # fmt: skip
        sending = [threading.Thread(target=send, args=(net,)) for send in traffic]
        [thread.start() for thread in sending]
        [thread.join() for thread in sending]
        time.sleep(DRAINED_S)
        said = "".join(end(process) for process in capturing)
        assert said.count("/0 (pcap:0/dumpcap:0/flushed:0") == len(capturing), said
        (shaper,) = json.loads(
            net.run("router", "tc", "-s", "-j", "qdisc", "show", "dev", "tap-out")
        )
    files = {link: sorted(folder.glob(f"{link}_*.pcapng")) for link in ("tap-in", "tap-out")}
    return files, shaper["drops"]


def seen_by_tshark(paths: Iterable[Path], source: str) -> pandas.DataFrame:
    """The packets from one address to the server, in order of time."""
    import pandas as pd

    fields = [word for field in FIELDS for word in ("-e", field)]
    wanted = f"ip.src == {source} && ip.dst == {SERVER}"
    rows = [
        line.split("\t")
        for path in paths
        for line in run_tool(
            "tshark", "-n", "-r", path, "-Y", wanted, "-T", "fields", "-E", "occurrence=f", *fields
        ).splitlines()
    ]
    found = pd.DataFrame(rows, columns=list(FIELDS))
    # An error message holds the packet that it is about.
    found = found[(found["ip.src"] == source) & (found["ip.dst"] == SERVER)].copy()
    found["ts"] = found["frame.time_epoch"].str.replace(".", "").astype("Int64")
    assert not found.duplicated(IDENTITY).any()
    return found.sort_values("ts", kind="stable").reset_index(drop=True)


def flow_of(row: pandas.Series[str]) -> str:
    """The name of a flow before the NAT."""
    name = NAMES[row["ip.proto"]]
    if name == "icmp":
        return f"{CLIENT} > {SERVER} icmp id {int(row['icmp.ident'])}"
    return f"{CLIENT}:{row[f'{name}.srcport']} > {SERVER}:{row[f'{name}.dstport']} {name}"


def numbered(net: Network) -> None:
    send_numbered(net, SERVER)


def tcp_of_iperf3(net: Network) -> None:
    iperf3(net, "-n", "6M", "-P", "2")


def udp_of_iperf3(net: Network) -> None:
    """Twice as much as the shaper lets through."""
    iperf3(net, "-u", "-b", "40M", "-l", "1000", "-t", "1.5")


@AS_ROOT
@pytest.mark.long
@pytest.mark.parametrize(
    ("rules", "source", "traffic"),
    [
        ("", CLIENT, (numbered, ping, curl, tcp_of_iperf3)),
        # Behind a NAT a segment that was lost and its repetition are alike: no TCP here.
        (MASQUERADE, ROUTER, (numbered, ping, udp_of_iperf3)),
    ],
    ids=["router", "NAT"],
)
def test_flows_and_losses_of_a_shaper(
    tmp_path: Path, tailscope: Tailscope, rules: str, source: str, traffic: Sequence[Send]
) -> None:
    pd = pytest.importorskip("pandas")
    needed(*TOOLS, "iperf3", "ping", "curl", "dumpcap", "tshark", "tc")
    files, dropped = capture(tmp_path, rules, traffic)
    assert len(files["tap-in"]) > 5
    assert dropped > 10
    before = seen_by_tshark(files["tap-in"], CLIENT)
    behind = seen_by_tshark(files["tap-out"], source)
    before["flow"] = before.apply(flow_of, axis=1)
    pairs = before.merge(behind[[*IDENTITY, "ts"]], on=IDENTITY, how="left", suffixes=("", "_out"))
    came = pairs["ts_out"].notna()
    pairs["latency"] = pairs["ts_out"] - pairs["ts"]
    assert int((~came).sum()) == dropped

    out = tmp_path / "run"
    words = ("--pre", tmp_path / "tap-in_*.pcapng", "--post", tmp_path / "tap-out_*.pcapng")
    summary = json.loads(tailscope("analyze", *words, "--out", out, "--json", "-").stdout)
    assert summary["lost"] == dropped
    lost = pq.read_table(out / "lost.parquet").to_pandas()
    expected = pairs[~came][["ts", "flow", "frame.len"]].astype({"frame.len": int})
    assert (
        lost[["pre_ns", "flow", "size_bytes"]].to_numpy().tolist() == expected.to_numpy().tolist()
    )

    flows = pd.read_csv(out / "flows.csv").set_index("flow")
    for flow, group in pairs.groupby("flow"):
        latency, row = group["latency"].dropna().astype("int64"), flows.loc[flow]
        assert (row["sent"], row["matched"]) == (len(group), len(latency)), flow
        assert row["lost"] == len(group) - len(latency), flow
        quantiles = np.quantile(latency, [0.5, 0.99, 1.0], method="inverted_cdf")
        got = [row[f"latency_ns_{name}"] for name in ("p50", "p99", "max")]
        assert got == quantiles.tolist(), flow
    assert len(pairs["flow"].unique()) >= 3
    if tcp_of_iperf3 in traffic:
        whole = mergecap(tmp_path / "whole.pcapng", *files["tap-in"])
        wanted = f"tcp.analysis.retransmission && ip.src == {CLIENT}"
        expected = len(run_tool("tshark", "-n", "-r", whole, "-Y", wanted).splitlines())
        patterns = json.loads(tailscope("explain", out, "--json", "-").stdout)["patterns"]
        (found,) = (
            each["figures"] for each in patterns["named"] if each["pattern"] == "retransmissions"
        )
        # Wireshark calls some of them out of order, and some probes retransmissions.
        assert abs(found["retransmitted_segments"] - expected) <= max(3, expected // 50)
        lost = int((~came & pairs["flow"].str.endswith("tcp")).sum())
        assert 0 < found["lost_between_captures"] <= lost
