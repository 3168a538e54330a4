"""Proxies that terminate each TCP connection and open another: real programs on the router."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .frames import SERVER
from .network import READY_S, Network, routed_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROUTER = "10.1.0.1"
PORT = 8080
"""Where the server listens, and the proxies."""

ANSWERING = """
import hashlib, socket, sys, threading
def answer(link):
    with link, link.makefile("rb") as lines:
        for line in lines:
            size = int(line.split()[1])
            body = hashlib.shake_128(line).digest(size)
            link.sendall(b"%d\\n" % size + body)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""
"""A server that answers each line with as many bytes as it asks for, which follow from the line."""

ASKING = """
import random, socket, struct, sys, threading, time
host, port, socks = sys.argv[1], int(sys.argv[2]), sys.argv[3]
links, questions, seed = map(int, sys.argv[4:7])
def ask(number):
    chance = random.Random(seed + number)
    with socket.create_connection((host, port)) as link, link.makefile("rb") as answers:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if socks:
            target, target_port = socks.split(":")
            link.sendall(bytes([5, 1, 0]))
            assert answers.read(2) == bytes([5, 0])
            address = socket.inet_aton(target) + struct.pack(">H", int(target_port))
            link.sendall(bytes([5, 1, 0, 1]) + address)
            assert answers.read(10)[1] == 0
        for question in range(questions):
            size = int(chance.expovariate(1 / 4000)) + 1
            padding = "x" * int(chance.expovariate(1 / 300))
            link.sendall(f"{seed + number}.{question} {size} {padding}\\n".encode())
            assert int(answers.readline()) == size
            assert len(answers.read(size)) == size
            time.sleep(chance.expovariate(300))
threads = [threading.Thread(target=ask, args=(number,)) for number in range(links)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
"""A client that asks by several connections at once, through SOCKS if need be."""

HAPROXY = """
global
    maxconn 1000
defaults
    mode tcp
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend front
    bind {router}:{port}
    default_backend back
backend back
    server one {server}:{port}
"""
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
load_module modules/ngx_stream_module.so;
events {{ worker_connections 512; }}
stream {{ server {{ listen {router}:{port}; proxy_pass {server}:{port}; }} }}
"""
DANTE = """
logoutput: {folder}/dante.log
internal: {router} port = {port}
external: tap-out
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
"""
SYNPROXY = """
table ip protected {{
    chain arriving {{
        type filter hook prerouting priority raw;
        tcp dport {port} tcp flags syn notrack
    }}
    chain forwarded {{
        type filter hook forward priority filter;
        tcp dport {port} ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
        ct state invalid drop
    }}
}}
"""
REDIRECT = """
table ip translation {{
    chain before {{
        type nat hook prerouting priority -100;
        ip daddr {router} tcp dport {port} dnat to {server}:{port}
    }}
    chain behind {{
        type nat hook postrouting priority 100;
        oifname "tap-out" masquerade
    }}
}}
"""

LOSSY = """
table inet lossy {
    chain arriving {
        type filter hook input priority 0;
        tcp dport 8080 numgen inc mod 25 == 7 drop
        tcp sport 8080 numgen inc mod 25 == 9 drop
    }
}
"""


def _named(text: str, folder: Path) -> str:
    return text.format(router=ROUTER, server=SERVER, port=PORT, folder=folder)


def serve(net: Network, *words: object) -> None:
    """Start a proxy, and wait until it listens."""
    command = ["ip", "netns", "exec", net.names["router"], *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end() -> None:
        with suppress(ProcessLookupError):
            process.terminate()
        process.wait(READY_S)

    net.stack.callback(end)
    deadline = time.monotonic() + READY_S
    while str(PORT) not in net.run("router", "ss", "-Hltn", f"sport = :{PORT}"):
        assert process.poll() is None, command
        assert time.monotonic() < deadline, command
        time.sleep(0.02)


def haproxy(net: Network, folder: Path) -> None:
    """HAProxy in TCP mode."""
    config = folder / "haproxy.cfg"
    config.write_text(_named(HAPROXY, folder))
    serve(net, "haproxy", "-db", "-f", config)


def nginx(net: Network, folder: Path) -> None:
    """The module `stream` of nginx."""
    config = folder / "nginx.conf"
    config.write_text(_named(NGINX, folder))
    serve(net, "nginx", "-c", config)


def microsocks(net: Network, _folder: Path) -> None:
    """A SOCKS proxy."""
    serve(net, "microsocks", "-i", ROUTER, "-p", PORT)


def dante(net: Network, folder: Path) -> None:
    """The SOCKS proxy of Dante."""
    config = folder / "danted.conf"
    config.write_text(_named(DANTE, folder))
    serve(net, "danted", "-f", config, "-p", folder / "danted.pid")


def synproxy(net: Network, folder: Path) -> None:
    """A firewall that opens connections itself, and gives answers other sequence numbers."""
    net.write("router", "netfilter/nf_conntrack_tcp_loose", 0)
    net.run("router", "nft", "-f", "-", given=_named(SYNPROXY, folder))


def ssh(net: Network, folder: Path) -> None:
    """The SOCKS proxy of OpenSSH, with a private sshd in the same namespace."""
    for name in ("host", "user"):
        net.run("router", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    options = {
        "ListenAddress": "127.0.0.1:2222",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "PidFile": "none",
        "StrictModes": "no",
        "PermitRootLogin": "yes",
        "UsePAM": "no",
    }
    config = folder / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    os.makedirs("/run/sshd", exist_ok=True)  # noqa: PTH103
    net.start("router", "/usr/sbin/sshd", "-D", "-e", "-f", config, ready="Server listening")
    plain = ("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder}/known")
    identity = ("-i", folder / "user", "-p", 2222, "root@127.0.0.1")
    serve(net, "ssh", "-N", "-F", "none", "-D", f"{ROUTER}:{PORT}", *plain, *identity)


def translated(net: Network, folder: Path) -> None:
    """A translation of addresses by the kernel, which changes no segment."""
    net.run("router", "nft", "-f", "-", given=_named(REDIRECT, folder))


def lossy(net: Network, folder: Path) -> None:
    """HAProxy behind links that lose one segment in 25, so that many are sent again."""
    haproxy(net, folder)
    net.run("router", "nft", "-f", "-", given=LOSSY)


PROXIES: dict[str, Callable[[Network, Path], None]] = {
    "haproxy": haproxy,
    "nginx": nginx,
    "microsocks": microsocks,
    "dante": dante,
    "ssh": ssh,
    "synproxy": synproxy,
    "nat": translated,
    "lossy": lossy,
}
PROGRAMS = {
    "haproxy": ("haproxy",),
    "nginx": ("nginx",),
    "microsocks": ("microsocks",),
    "dante": ("danted",),
    "ssh": ("ssh", "sshd"),
    "lossy": ("haproxy",),
}
SOCKS = frozenset({"microsocks", "dante", "ssh"})


@contextmanager
def proxied_network(kind: str, folder: Path) -> Iterator[Network]:
    """A client, a proxy on the router, and a server that answers."""
    with routed_network() as net:
        net.start("server", sys.executable, "-c", ANSWERING, SERVER, PORT, ready="ready")
        PROXIES[kind](net, folder)
        yield net


def ask(net: Network, kind: str, links: int, questions: int, seed: int = 1) -> None:
    """Ask the server through the proxy."""
    socks = f"{SERVER}:{PORT}" if kind in SOCKS else ""
    host = SERVER if kind == "synproxy" else ROUTER
    net.run("client", sys.executable, "-c", ASKING, host, PORT, socks, links, questions, seed)


def captured(kind: str, folder: Path, links: int, questions: int) -> tuple[Path, Path]:
    """Captures of both sides of a proxy at work."""
    with proxied_network(kind, folder) as net, net.tapped(folder) as taps:
        ask(net, kind, links, questions)
    return taps
