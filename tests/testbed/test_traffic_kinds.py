"""`tailscope run` with traffic of every kind, its counts and its output."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from measurements import quick

import tailscope._engine as _engine
from tailscope.store.reader import read_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measurements import Place

pytestmark = pytest.mark.usefixtures("dataplane")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")


def conserved(figures: dict[str, Any], packets: int | None = 2000) -> None:
    """Check that every packet has exactly one fate."""
    assert packets is None or figures["sent"] + figures["unsent"] == packets
    assert figures["count"] > 0
    assert (
        figures["sent"] == figures["count"] + figures["lost"] + figures["late"] + figures["corrupt"]
    )
    parts = ("lost_in_dut", "lost_in_instrument", "lost_where_unknown")
    assert figures["lost"] == sum(figures[part] for part in parts)
    assert not figures["partial"]


@pytest.mark.parametrize(
    "options",
    [
        ("--size", "imix"),
        ("--size", "68:3,1518:1", "--vlan", 7),
        ("--protocol", "tcp", "--size", 100, "--src-port", "1024..1123"),
        ("--protocol", "icmp", "--src-ip", "10.0.0.1..10.0.0.9"),
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_packets_of_every_kind_are_accounted_for(
    measure: Callable[..., dict[str, Any]], options: Any
) -> None:
    figures = measure("--dut", "l3fwd", *options)
    conserved(figures)
    # The last cycle of a mix may be incomplete.
    assert figures["frame_bytes_mean"] == pytest.approx(figures["asked_frame_bytes_mean"], rel=0.02)


@pytest.mark.parametrize("pattern", ["cbr", "poisson"])
def test_what_was_sent_stands_beside_what_was_asked(
    measure: Callable[..., dict[str, Any]], tailscope: Callable[..., Any], pattern: str
) -> None:
    bursts = ("--burst", 8, "--burst-gap", "10us", "--pattern", pattern)
    figures = measure("--dut", "l2fwd", *bursts)
    conserved(figures, 2000 if pattern == "cbr" else None)
    assert figures["asked_burst_gap_ns"] == 10_000
    assert figures["asked_gap_ns_mean"] == 50_000
    assert figures["asked_burst_period_ns_mean"] == 400_000
    low, mean, high = (figures[f"burst_gap_ns_{name}"] for name in ("min", "mean", "max"))
    assert 0 <= low <= mean <= high
    summary = json.loads((figures["out"] / "summary.json").read_text())
    assert summary["burst_gap_ns_mean"] == mean
    sent = read_run(figures["out"]).info.instrument.traffic  # type: ignore[union-attr]
    assert sent is not None and sent.burst_gap_ns_mean == mean
    shown = tailscope("runs", "show", figures["out"], "-v").stdout
    for row in ("mean gap", "gap in bursts", "burst to burst", "mean frame"):
        line = next(line for line in shown.splitlines() if line.startswith(row))
        assert " asked " in line


@pytest.mark.parametrize(("options", "gap_ns"), [((), None), (("--rate", "30k"), 1e9 / 30_000)])
def test_a_capture_is_sent_again(
    tailscope: Callable[..., Any],
    place: Place,
    tmp_path: Path,
    options: tuple[str, ...],
    gap_ns: float | None,
) -> None:
    _engine.simulate(str(tmp_path), seed=5, packets=2000, rate_pps=10_000, pattern="poisson")
    (capture,) = tmp_path.glob("*-pre-*")
    out = place.path / "out"
    words = ("run", "--dut", "l2fwd", "--replay", capture, *options)
    done = tailscope(*words, "--out", out, "--json", "-", env=place.environment)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    conserved(figures, 2000)
    assert figures["asked_gap_ns_mean"] == pytest.approx(gap_ns or 100_000, rel=0.1)
    refused = tailscope(*words, "--duration", "10ms", env=place.environment, cwd=place.path)
    assert refused.returncode == 1
    assert "--duration 10ms" in refused.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--dut", "l3fwd"),
        pytest.param(
            ("--dut", "l2fwd", "--wire", "veth", "--warm-up", "1s"),
            marks=[needs_root, pytest.mark.long],
        ),
        pytest.param(
            ("--dut", "router", "--wire", "veth", "--warm-up", "1s", "--size", "imix"),
            marks=needs_root,
        ),
    ],
    ids=lambda options: " ".join(options),
)
def test_two_directions_have_books_of_their_own(
    tailscope: Callable[..., Any], place: Place, options: tuple[str, ...]
) -> None:
    out = place.path / "out"
    words = ("run", *quick(*options), "--direction", "both", "--captures")
    done = tailscope(*words, "--out", out, "--json", "-", env=place.environment)
    assert done.returncode == 0, done.stderr
    directions = json.loads(done.stdout)
    assert len(directions) == 2
    for name, figures in zip(("forth", "back"), directions, strict=True):
        conserved(figures)
        run = read_run(out / name)
        assert run.info.instrument is not None
        assert run.info.instrument.direction == name
        assert run.summary["count"] == figures["count"]
        captures = out / name / "captures"
        again = tailscope(
            "analyze", captures / "pre.pcapng.zst", captures / "post.pcapng.zst", "--json", "-"
        )
        assert json.loads(again.stdout)["count"] == figures["count"]
        shown = tailscope("runs", "show", out / name).stdout
        assert f"direction {name}, from the generator's" in shown
    compared = tailscope("compare", out / "forth", out / "back")
    # A busy machine may allow no decision.
    assert compared.returncode in (0, 3), compared.stderr
    page = tailscope("report", out / "forth", out / "back", "--out", place.path / "page.html")
    assert page.returncode == 0, page.stderr
    assert tailscope("explain", out / "back").returncode == 0
