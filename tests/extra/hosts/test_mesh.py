"""A mesh: each host watches its paths to all others, and tells of them."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from between import FAR, NEAR, PORT, Between
from errors import raises
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from runs import AS_ROOT, needed

from tailscope.exceptions import UsageError
from tailscope.extra.watch.mesh import MeshHost, own_name, read_mesh
from tailscope.extra.watch.mesh_figures import LATENCY, LOST, SENT, UP, MeshFigures
from tailscope.extra.watch.mesh_page import MeshPage, mesh_page
from tailscope.testbed.process import find_binary

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = {name: MeshHost(reflect=f"192.0.2.{number}") for number, name in enumerate("abc", 1)}


def values(figures: MeshFigures) -> dict[tuple[str, ...], float]:
    """Return what a scraper reads, by name and labels."""
    text = generate_latest(figures).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in text_string_to_metric_families(text)
        for sample in metric.samples
    }


def told() -> MeshFigures:
    """Figures of host a, which reaches b, and not c."""
    figures = MeshFigures("a", "bc")
    for lost in (1, 4):
        quantiles_ns = {"0.5": 20_000 * lost, "0.99": 1_500_000}
        figures.answered(
            "b",
            sent=100,
            lost=lost,
            lost_in_ends=1,
            lost_where_unknown=lost // 4,
            quantiles_ns=quantiles_ns,
        )
    figures.silent("c")
    return figures


def test_counts_grow_and_latencies_are_those_of_the_last_measurement() -> None:
    found = values(told())
    assert found[f"{SENT}_total", "a", "b"] == 200
    assert found[f"{LOST}_total", "a", "b", "network"] == 2
    assert found[f"{LOST}_total", "a", "b", "unknown"] == 1
    assert found[f"{LOST}_total", "a", "b", "ends"] == 2
    assert found[LATENCY, "a", "0.5", "b"] == 80e-6
    assert found[LATENCY, "a", "0.99", "b"] == 1.5e-3
    assert (found[UP, "a", "b"], found[UP, "a", "c"]) == (1, 0)
    assert (LATENCY, "a", "0.5", "c") not in found


def test_the_page_has_a_cell_for_each_pair() -> None:
    page = mesh_page(HOSTS, "a", told())
    [cell] = re.findall("<td>(p50 .*)</td>", page)
    shown = re.sub("<[^>]*>", "", cell.partition("</td>")[0])
    assert shown == "p50 80.00 µs, p99 1.500 ms, lost 1.50%"
    assert page.count("<td>no answer</td>") == 1
    # Nobody tells of the paths from b and from c.
    assert page.count("<td>-</td>") == 4
    assert page.count("<td></td>") == 3


def test_many_who_want_the_page_ask_other_hosts_once() -> None:
    """Twenty at once, of a mesh whose other hosts count those who ask."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def count() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()
                    asked.append(threading.active_count())

        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        metrics = f"127.0.0.1:{server.getsockname()[1]}"
        others = {f"h{number}": MeshHost(reflect="a", metrics=metrics) for number in range(40)}
        page = MeshPage({"a": HOSTS["a"], **others}, "a", MeshFigures("a", others))
        with ThreadPoolExecutor(20) as pool:
            pages = set(pool.map(lambda _: page(), range(20)))
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert len(pages) == 1
    assert len(asked) == 40
    assert max(asked) < 20 + 20


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hosts: 3",
        "hosts: {a: {reflect: 192.0.2.1}}",
        "hosts: {a: {reflect: 192.0.2.1}, b: {}}",
        "hosts: {a: {reflect: 192.0.2.1}, b: {reflect: 7}}",
        "hosts: {a: {reflect: 192.0.2.1}, b: {reflect: 192.0.2.2, metric: 1}}",
    ],
)
def test_a_file_without_hosts_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(text)
    with raises(UsageError, "mesh-file"):
        read_mesh(file)


def test_a_host_must_be_in_its_mesh() -> None:
    assert own_name(HOSTS, "b") == "b"
    with raises(UsageError, "no-mesh-host"):
        own_name(HOSTS, "d")


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_a_mesh_of_two_hosts_and_one_that_is_gone(tmp_path: Path) -> None:
    needed("ip")
    file = tmp_path / "hosts.yaml"
    file.write_text(
        f"hosts:\n"
        f"  near: {{reflect: {NEAR}, metrics: '{NEAR}:9464'}}\n"
        f"  far: {{reflect: '{FAR}:{PORT}', metrics: '{FAR}:9464'}}\n"
        f"  gone: {{reflect: 10.99.0.3}}\n"
    )
    read = (
        "import sys, http.client as h; c = h.HTTPConnection(sys.argv[1]);"
        " c.request('GET', sys.argv[2]); print(c.getresponse().read().decode())"
    )
    with Between() as between:
        between.reflect()
        between.start("near", str(find_binary()[0]), "reflect", "--")
        watches = []
        for side, address in (("near", NEAR), ("far", FAR)):
            words = ["watch", "--mesh", str(file), "--as", side, "--every", "300ms"]
            words += ["--rate", "100", "--listen", f"{address}:9464"]
            watches.append(between.start(side, sys.executable, "-m", "tailscope", *words))

        deadline_s = time.monotonic() + 60
        page = ""
        while page.count("p50") < 2 or page.count("no answer") < 2:
            assert time.monotonic() < deadline_s, page
            time.sleep(0.5)
            done = subprocess.run(
                between.command("near", sys.executable, "-c", read, f"{NEAR}:9464", "/"),
                capture_output=True,
                text=True,
                check=False,
            )
            page = done.stdout
        address = f"{FAR}:9464"
        metrics = between.run("near", sys.executable, "-c", read, address, "/metrics")
        for watch in watches:
            watch.send_signal(signal.SIGTERM)
            output, _ = watch.communicate(timeout=60)
            assert watch.returncode == 0, output
    assert page.count("<td>-</td>") == 2
    assert f'{UP}{{from="far",to="near"}} 1.0' in metrics
    assert f'{UP}{{from="far",to="gone"}} 0.0' in metrics
