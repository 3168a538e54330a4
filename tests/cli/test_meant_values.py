"""A value that is like one which is allowed: the error asks whether that was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from synthetic import write_run

from tailscope.cli import application

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXPERIMENT = """
name: e
fixed: {rate: 10k, %s}
vary: {wire: [memif]}
profiles: {quick: {}}
"""
VALUES = [
    ("run --dut l2fw --dry-run", "l2fwd"),
    ("run --dut delay --dut-option lwa=x --dry-run", "law"),
    ("run --dut l2fwd --wire vet --dry-run", "veth"),
    ("run --dut router --wire veht --dry-run", "veth"),
    ("run --dut l2fwd --platform podmn --dry-run", "podman"),
    ("run --dut l2fwd --platform-option partion=x --platform lxc --dry-run", "partition"),
    ("run --dut l2fwd --pattern poison --dry-run", "poisson"),
    ("run --dut l2fwd --kernel vanila --dry-run", "vanilla"),
    ("run --dut l2fwd --noise event --dry-run", "events"),
    ("run --dut router --wire veth --stages offf --dry-run", "off"),
    ("run --dut l2fwd --power ipmy --dry-run", "ipmi"),
    ("run --dut l2fwd --co-runner cpuu=1 --dry-run", "cpu"),
    ("run --dut l2fwd --protocol upd --dry-run", "udp"),
    ("run e.yaml --profile quik --dry-run", "quick"),
    ("run e.yaml --only wier=memif --dry-run", "wire"),
    ("run e.yaml --only wire=memi --dry-run", "memif"),
    ("run wrong.yaml --dry-run", "l2fwd"),
    ("search standard 2554 --dut l2fwd", "2544"),
    ("search standard tst09 --dut l2fwd", "tst009"),
    ("search --dut l2fw --dry-run", "l2fwd"),
    ("verify run --slo urllc-itv", "urllc-itu"),
    ("verify run --slo los<1e-3", "loss"),
    ("verify run --slo p50<1s --format githb", "github"),
    ("report run --format svgg", "svg"),
    ("report run --style papr", "paper"),
    ("runs list dutt=l2fwd", "dut"),
    ("runs show rn", "run"),
    ("model tail run --law equation1", "equation-1"),
    ("noise --cpus 0 --noise stals", "stalls"),
    ("calibrate --wire mmif", "memif"),
    ("host export --cpus 0 --format grubb", "grub"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("meant")
    write_run(made / "runs" / "run", np.arange(2_000, 5_000, dtype=np.int64))
    (made / "run").symlink_to("runs/run")
    (made / "e.yaml").write_text(EXPERIMENT % "dut: l2fwd")
    (made / "wrong.yaml").write_text(EXPERIMENT % "dut: l2fw")
    return made


@pytest.mark.parametrize(
    ("words", "meant"),
    [each for each in VALUES if each[0].split()[0] in application().commands],
)
def test_a_value_of_a_similar_name_is_suggested(
    words: str, meant: str, folder: Path, tailscope: Callable[..., Any]
) -> None:
    done = tailscope(*words.split(), cwd=folder)
    assert done.returncode == 1
    assert "did you mean" in done.stderr
    assert meant in done.stderr.partition("did you mean ")[2].partition("?")[0].split(" or ")


def test_a_quantile_below_the_median_is_doubted(
    folder: Path, tailscope: Callable[..., Any]
) -> None:
    done = tailscope("verify", "run", "--slo", "p9.9<1s", cwd=folder)
    assert "p9.9 is below the median; did you mean p99.9 or" in done.stderr
    assert "below" not in tailscope("verify", "run", "--slo", "p50<1s", cwd=folder).stderr
