"""The manifest of a mesh of nodes: its parts agree, and its command lines run as they stand."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from between import NEAR, Between
from runs import AS_ROOT, needed

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST = Path(__file__).parents[3] / "docs" / "kubernetes" / "mesh.yaml"
KEY = "0123456789abcdef" * 4
NODE = "node-a"
NO_RIGHTS = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.fixture(scope="module")
def parts() -> Mapping[str, Any]:
    return {part["kind"]: part for part in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.fixture(scope="module")
def pod(parts: Mapping[str, Any]) -> Any:
    return parts["DaemonSet"]["spec"]["template"]["spec"]


def test_parts_belong_together(parts: Mapping[str, Any], pod: Any) -> None:
    daemons, hosts = parts["DaemonSet"], parts["ConfigMap"]
    namespace = parts["Namespace"]["metadata"]["name"]
    assert {part["metadata"]["namespace"] for part in (daemons, hosts)} == {namespace}
    labels = daemons["spec"]["template"]["metadata"]["labels"]
    assert daemons["spec"]["selector"]["matchLabels"].items() <= labels.items()
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["mesh"]["configMap"]["name"] == hosts["metadata"]["name"]
    used = [
        mount["name"]
        for container in (*pod["initContainers"], *pod["containers"])
        for mount in container["volumeMounts"]
    ]
    assert set(used) == set(volumes)


def test_no_container_has_rights(pod: Any) -> None:
    assert pod["securityContext"]["runAsNonRoot"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"] == NO_RIGHTS, container["name"]
        assert container["resources"]["limits"].keys() == {"memory"}


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_its_command_lines_measure(parts: Mapping[str, Any], pod: Any, tmp_path: Path) -> None:
    """On one machine, of which both nodes have the address: each path is through its reflector."""
    needed("ip")
    folders = {volume["name"]: tmp_path / volume["name"] for volume in pod["volumes"]}
    for folder in folders.values():
        folder.mkdir()
    (folders["secret"] / "key").write_text(KEY)
    text = parts["ConfigMap"]["data"]["hosts.yaml"]
    for host in yaml.safe_load(text)["hosts"].values():
        text = text.replace(host["reflect"].partition(":")[0], NEAR)
    (folders["mesh"] / "hosts.yaml").write_text(text)
    [prepare] = pod["initContainers"]
    subprocess.run(_placed(prepare, prepare["command"], folders), check=True)
    containers = {container["name"]: container for container in pod["containers"]}
    with Between() as between:
        for name, container in containers.items():
            environment = [f"{each['name']}={folders[name]}" for each in container["env"][:2]]
            words = _placed(container, container["args"], folders)
            more = ["--every", "300ms", "--rate", "50"] if name == "watch" else []
            command = [sys.executable, "-m", "tailscope", *words, *more]
            between.start("near", "env", *environment, *command)
        port = containers["watch"]["ports"][0]["containerPort"]
        found = _metrics(between, port, f'tailscope_path_up{{from="{NODE}",to="node-b"}} 1.0')
    assert f'tailscope_path_latency_seconds{{from="{NODE}",quantile="0.99",to="node-b"}}' in found


def _placed(container: Any, words: list[str], folders: Mapping[str, Path]) -> list[str]:
    """Return words of a container as they are outside of it."""
    placed = []
    for word in words:
        text = word.replace("$(NODE_NAME)", NODE).replace("$(NODE_IP)", NEAR)
        for mount in container["volumeMounts"]:
            text = text.replace(f"{mount['mountPath']}/", f"{folders[mount['name']]}/")
        placed.append(text)
    return placed


def _metrics(between: Between, port: int, awaited: str) -> str:
    """Read metrics until they have what is awaited."""
    read = (
        "import sys, http.client as h; to = h.HTTPConnection(*sys.argv[1:], timeout=5);"
        "to.request('GET', '/metrics'); print(to.getresponse().read().decode())"
    )
    deadline_s, content = time.monotonic() + 60, ""
    while awaited not in content:
        assert time.monotonic() < deadline_s, content
        time.sleep(0.3)
        content = between.run("near", sys.executable, "-c", read, NEAR, str(port), check=False)
    return content
