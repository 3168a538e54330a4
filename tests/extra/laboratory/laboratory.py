"""A laboratory of three namespaces, each with an sshd, joined by veth and TAPs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SSHD = "/usr/sbin/sshd"
ADDRESSES = {"loadgen": "10.98.0.1", "dut": "10.98.0.2", "timestamper": "10.98.0.3"}
HUB = "10.98.0.254"
_NUMBERS = count()


@dataclass
class Laboratory:
    """The three machines, and a user who may log in."""

    path: Path
    home: Path
    names: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a command on the user's own machine."""
        return {**os.environ, "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home / "run")}

    @property
    def hosts(self) -> dict[str, dict[str, object]]:
        """Return the machines as in an experiment."""
        cards = {"loadgen": ["out0", "in0"], "dut": ["in1", "out1"], "timestamper": ["pre", "post"]}
        return {
            role: {"ssh": role, "cards": cards[role], "command": str(self.home / "tail scope")}
            for role in cards
        }

    def experiment(self, **content: object) -> Path:
        """Write an experiment for this laboratory."""
        path = self.path / "experiment.yaml"
        path.write_text(yaml.safe_dump({"name": "lab", **{"hosts": self.hosts} | content}))
        return path


def start(lab: Laboratory, *arguments: object, at: str = "hub") -> subprocess.Popen[str]:
    """Start tailscope on a machine; the hub is one in the management network alone."""
    in_machine = ["ip", "netns", "exec", lab.names[at]]
    return subprocess.Popen(
        [*in_machine, sys.executable, "-m", "tailscope", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=lab.environment,
        start_new_session=True,
    )


def run(lab: Laboratory, *arguments: object, at: str = "hub") -> subprocess.CompletedProcess[str]:
    process = start(lab, *arguments, at=at)
    out, err = process.communicate(timeout=200)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {words}: {done.stderr}"


@contextmanager
def laboratory(
    path: Path,
    disguise: Mapping[str, Mapping[Path, str]] | None = None,
    *,
    guest: str | None = None,
) -> Iterator[Laboratory]:
    """Build the laboratory in a private folder, and take it down.

    On a machine with a disguise, our files cover those of ``/proc`` that it names. The role of a
    guest gets no namespace: its links are the hub's taps ``mgmt``, ``pre-to`` and
    ``post-from``, for QEMU, and its sshd is configured but not started.
    """
    with ExitStack() as stack:
        prefix = f"lab-{os.getpid()}-{next(_NUMBERS)}"
        names = {role: f"{prefix}-{role[:4]}" for role in (*ADDRESSES, "hub")}
        for name in names.values():
            ip("netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True)
        _join(names, guest)
        home = _user(path)
        for role, address in ADDRESSES.items():
            covered = (disguise or {}).get(role, {})
            command = _sshd_of(path, home, role, address)
            if role != guest:
                stack.enter_context(_sshd(path, role, names[role], command, covered))
        yield Laboratory(path, home, names)


def _join(names: dict[str, str], guest: str | None) -> None:
    """Make the management network, and cables with TAPs that copy to the timestamper."""
    ip("-n", names["hub"], "link", "add", "name", "hub0", "type", "bridge")
    ip("-n", names["hub"], "link", "set", "hub0", "up")
    ip("-n", names["hub"], "addr", "add", f"{HUB}/24", "dev", "hub0")
    for role, address in ADDRESSES.items():
        own = names[role]
        if role == guest:
            _tap(names["hub"], "mgmt")
            ip("-n", names["hub"], "link", "set", "mgmt", "master", "hub0", "up")
            continue
        ip("-n", own, "link", "set", "lo", "up")
        ip("link", "add", "mgmt", "netns", own, "type", "veth", "peer", role, "netns", names["hub"])
        ip("-n", own, "addr", "add", f"{address}/24", "dev", "mgmt")
        ip("-n", own, "link", "set", "mgmt", "up")
        ip("-n", names["hub"], "link", "set", role, "master", "hub0", "up")
    _tapped(names, ("loadgen", "out0"), ("dut", "in1"), "pre", guest)
    _tapped(names, ("dut", "out1"), ("loadgen", "in0"), "post", guest)


def _tap(name: str, link: str) -> None:
    """Make a link whose other end is QEMU's."""
    ip("-n", name, "tuntap", "add", "dev", link, "mode", "tap")


def _tapped(
    names: dict[str, str],
    sender: tuple[str, str],
    receiver: tuple[str, str],
    tap: str,
    guest: str | None,
) -> None:
    """Make a cable through the hub, which copies the sender's frames to the timestamper."""
    hub = names["hub"]
    for (role, link), inner in ((sender, f"{tap}-from"), (receiver, f"{tap}-to")):
        if role == guest:
            _tap(hub, inner)
            continue
        ip("link", "add", link, "netns", names[role], "type", "veth", "peer", inner, "netns", hub)
    inner = f"{tap}-tap"
    ip(
        "link",
        "add",
        tap,
        "netns",
        names["timestamper"],
        "type",
        "veth",
        "peer",
        inner,
        "netns",
        hub,
    )
    for where, link in ((names["timestamper"], tap), (hub, inner)):
        ip("-n", where, "link", "set", link, "up")
    for suffix in ("from", "to"):
        ip("-n", hub, "link", "set", f"{tap}-{suffix}", "up")
    for role, link in (sender, receiver):
        if role != guest:
            ip("-n", names[role], "link", "set", link, "up")
    tc = ["ip", "netns", "exec", hub, "tc"]
    for source, target in (("from", "to"), ("to", "from")):
        add = [*tc, "qdisc", "add", "dev", f"{tap}-{source}", "ingress"]
        subprocess.run(add, check=True, capture_output=True)
        rule = [*tc, "filter", "add", "dev", f"{tap}-{source}", "parent", "ffff:"]
        rule += ["protocol", "all", "u32", "match", "u32", "0", "0"]
        if source == "from":
            rule += ["action", "mirred", "egress", "mirror", "dev", inner, "pipe"]
        rule += ["action", "mirred", "egress", "redirect", "dev", f"{tap}-{target}"]
        subprocess.run(rule, check=True, capture_output=True)


def _user(path: Path) -> Path:
    """Make a home with a key, and with tailscope under a name that needs quoting."""
    home = path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (home / "run").mkdir(mode=0o700)
    key = home / ".ssh" / "id_ed25519"
    _keygen(key)
    (path / "authorized").write_text((key.with_suffix(".pub")).read_text())
    command = home / "tail scope"
    # The package under test may not be the installed one.
    path_variable = f"PYTHONPATH={shlex.quote(os.environ.get('PYTHONPATH', ''))}"
    python = shlex.quote(sys.executable)
    command.write_text(f'#!/bin/sh\nexec env {path_variable} {python} -m tailscope "$@"\n')
    command.chmod(0o755)
    lines = [
        f"Host {role}\n  HostName {address}\n  User root\n  Port 2222\n"
        for role, address in ADDRESSES.items()
    ]
    (home / ".ssh" / "config").write_text("".join(lines))
    (home / ".ssh" / "known_hosts").touch()
    return home


def _keygen(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)


def _sshd_of(path: Path, home: Path, role: str, address: str) -> list[str]:
    """Configure a machine's sshd, which its user trusts, and return its command."""
    key = path / f"{role}.key"
    _keygen(key)
    public = key.with_suffix(".key.pub").read_text().split()
    with (home / ".ssh" / "known_hosts").open("a") as known:
        known.write(f"[{address}]:2222 {public[0]} {public[1]}\n")
    (path / f"{role}.run").mkdir(mode=0o700)
    lines = {
        "ListenAddress": f"{address}:2222",
        "HostKey": key,
        "AuthorizedKeysFile": path / "authorized",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "Subsystem": "sftp internal-sftp",
        # The level keeps bash from the user's start-up file, which may be slow.
        "SetEnv": f"XDG_RUNTIME_DIR={path / f'{role}.run'} SHLVL=1",
    }
    configuration = path / f"{role}.sshd"
    configuration.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    Path("/run/sshd").mkdir(exist_ok=True)
    return [SSHD, "-D", "-e", "-f", str(configuration)]


@contextmanager
def _sshd(
    path: Path, role: str, name: str, server: list[str], covered: Mapping[Path, str]
) -> Iterator[None]:
    # `ip netns exec` mounts /sys anew, without the control groups that containers need.
    groups = path / f"{role}.groups"
    groups.mkdir()
    script = 'mount --rbind "$1" "$2" && shift 2 && exec "$@"'
    keep = ["unshare", "-m", "sh", "-c", script, "sh", "/sys/fs/cgroup", str(groups)]
    bring = ["sh", "-c", script, "sh", str(groups), "/sys/fs/cgroup"]
    over = ["unshare", "-m"]
    for ours, theirs in covered.items():
        bind = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
        over += ["sh", "-c", bind, "sh", str(ours), theirs]
    command = [*over, *keep, "ip", "netns", "exec", name, *bring, *server]
    with (path / f"{role}.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, start_new_session=True)
    try:
        deadline_s = time.monotonic() + 10
        while "listening" not in (path / f"{role}.log").read_text():
            assert process.poll() is None and time.monotonic() < deadline_s, "sshd did not start"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(10)
