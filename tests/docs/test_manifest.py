"""The manifest of a pod with CPUs of its own: its fields, its promises, and its command."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest
import yaml
from msgspec import Struct, field
from pages import ROOT

if TYPE_CHECKING:
    from measurements import Place

MANIFEST = ROOT / "docs" / "kubernetes" / "pod.yaml"


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of a manifest, by the names of Kubernetes' API (v1)."""


class Metadata(Strict):
    name: str
    labels: dict[str, str] = {}


class Variable(Strict):
    name: str
    value: str


class Amounts(Strict):
    cpu: str
    memory: str


class Resources(Strict):
    requests: Amounts
    limits: Amounts


class Mount(Strict):
    name: str
    mount_path: str


class Capabilities(Strict):
    drop: list[str]


class ContainerSecurity(Strict):
    allow_privilege_escalation: bool
    read_only_root_filesystem: bool
    capabilities: Capabilities


class Container(Strict):
    name: str
    image: str
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"]
    args: list[str]
    env: list[Variable]
    resources: Resources
    security_context: ContainerSecurity
    volume_mounts: list[Mount]


class EmptyFolder(Strict):
    medium: Literal["", "Memory"] = ""
    size_limit: str | None = None


class Claim(Strict):
    claim_name: str


class Volume(Strict):
    name: str
    empty_dir: EmptyFolder | None = None
    persistent_volume_claim: Claim | None = None


class Seccomp(Strict):
    type: Literal["RuntimeDefault", "Unconfined", "Localhost"]


class PodSecurity(Strict):
    run_as_non_root: bool
    run_as_user: int
    fs_group: int
    seccomp_profile: Seccomp


class Spec(Strict):
    restart_policy: Literal["Always", "OnFailure", "Never"]
    automount_service_account_token: bool
    security_context: PodSecurity
    containers: list[Container]
    volumes: list[Volume]


class Pod(Strict):
    api_version: Literal["v1"] = field(name="apiVersion")
    kind: Literal["Pod"]
    metadata: Metadata
    spec: Spec


@pytest.fixture(scope="module")
def pod() -> Pod:
    return msgspec.convert(yaml.safe_load(MANIFEST.read_text()), Pod)


def test_its_cpus_are_its_own(pod: Pod) -> None:
    """Guaranteed, and whole CPUs: the conditions of the kubelet's static policy."""
    for container in pod.spec.containers:
        assert container.resources.requests == container.resources.limits
        cpus = Decimal(container.resources.requests.cpu)
        # Generator, device, and one for everything else.
        assert cpus == cpus.to_integral_value() and cpus >= 3


def test_volumes_are_there_and_private(pod: Pod) -> None:
    [container] = pod.spec.containers
    mounted = {mount.name: mount.mount_path for mount in container.volume_mounts}
    assert set(mounted) == {volume.name for volume in pod.spec.volumes}
    folders = {variable.name: Path(variable.value) for variable in container.env}
    for folder in (*folders.values(), Path(container.args[container.args.index("--out") + 1])):
        assert any(folder.is_relative_to(path) for path in mounted.values()), folder
    assert container.security_context.capabilities.drop == ["ALL"]
    assert pod.spec.security_context.run_as_non_root


def test_its_command_can_be_planned(pod: Pod, tailscope: Any, place: Place) -> None:
    [container] = pod.spec.containers
    words = [word for word in container.args if word != "/runs/l2fwd"]
    words[words.index("--out") :] = ["--out", str(place.path / "out")]
    done = tailscope(*words, "--dry-run", env=place.environment)
    assert done.returncode == 0, done.stderr
    assert "l2fwd" in done.stdout
