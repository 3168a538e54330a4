"""Real proxies that write heads of HTTP anew: bodies that they pass on are matched byte by byte."""

from __future__ import annotations

import hashlib
import random
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from runs import AS_ROOT, needed

from tailscope.engine.analysis import analyze

from .frames import SERVER
from .network import routed_network
from .proxies import HAPROXY, PORT, ROUTER, serve
from .test_proxies import Stream, streams

if TYPE_CHECKING:
    from pathlib import Path

ANSWERING = """
import hashlib, http.server, sys
class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(hashlib.shake_128(body).digest(len(body)))
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Answers)
print("ready", flush=True)
server.serve_forever()
"""
"""A server that answers each body by one as long, which follows from it."""

HTTP_HAPROXY = HAPROXY.replace("mode tcp", "mode http\n    option forwardfor")
NGINX = """
daemon off;
user root;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    proxy_request_buffering off;
    server {{ listen {router}:{port}; location / {{ proxy_pass $scheme://{server}:{port}; }} }}
}}
"""
COMMANDS = {
    "nginx": (NGINX, "nginx", "-c"),
    "haproxy": (HTTP_HAPROXY, "haproxy", "-db", "-f"),
}
LINKS, POSTS = 3, 8
PROOF = 1000
"""Bytes of a body that is long enough to be known."""
HEAD = re.compile(rb"POST /\S+ HTTP/1\.|HTTP/1\.1 \d")
REQUEST, REPLY = rb"\APOST (/\S+) ", rb"(?s)\AHTTP/1.1 200 OK\r\n.*?\r\n\r\n(.{16})"


def posted(
    kind: str, folder: Path, sizes: tuple[int, ...]
) -> tuple[list[bytes], tuple[Path, Path]]:
    """Post bodies through a proxy by curl; the bodies, and the captures of both sides."""
    template, *command = COMMANDS[kind]
    config = folder / "proxy.conf"
    config.write_text(template.format(router=ROUTER, server=SERVER, port=PORT, folder=folder))
    chance = random.Random(5)
    bodies = [chance.randbytes(size) for size in sizes]
    for number, body in enumerate(bodies):
        (folder / f"{number}.body").write_bytes(body)
    with routed_network() as net:
        net.start("server", sys.executable, "-c", ANSWERING, SERVER, PORT, ready="ready")
        serve(net, *command, config)
        with net.tapped(folder) as taps:
            for link in range(LINKS):
                words: list[object] = []
                for number in range(link, len(bodies), LINKS):
                    data = ("--data-binary", f"@{folder}/{number}.body", "-o", "/dev/null")
                    words += ["--next", "-sS", *data, f"{ROUTER}:{PORT}/{number}"]
                net.run("client", "curl", *words[1:])
    return bodies, taps


class Body(NamedTuple):
    """A body in a stream, with what is the same around it on both sides."""

    start: int
    end: int
    shift: int
    behind: Stream


def lying(body: bytes, mine: Stream, other: Stream) -> Body:
    """Where a body lies in two streams, as far as they are equal around it in its message."""
    start, there = mine.content.index(body), other.content.index(body)
    shift, end = there - start, start + len(body)
    heads = [head.start() for head in HEAD.finditer(mine.content)]
    first = max((head for head in heads if head < start), default=0)
    while (
        start > first
        and start + shift
        and mine.content[start - 1] == other.content[start + shift - 1]
    ):
        start -= 1
    next_head = min((head for head in heads if head >= end), default=len(mine.content))
    last = min(next_head, len(other.content) - shift)
    while end < last and mine.content[end] == other.content[end + shift]:
        end += 1
    return Body(start, end, shift, other)


def truth(
    bodies: list[bytes], taps: tuple[Path, Path], begin: re.Pattern[bytes], port: str
) -> list[tuple[int, int]]:
    """Time and latency in ns of each segment that ends within a body."""
    sides = [list(streams(tap, begin, port).values()) for tap in taps]
    found = []
    for mine in sides[0]:
        parts = [
            lying(body, mine, other)
            for body in bodies
            if body in mine.content
            for other in sides[1]
            if body in other.content
        ]
        for ts, start, end in mine.segments:
            # A segment of which some bytes came before counts for the others.
            is_new = mine.first_ns[start:end] == ts
            within = [part for part in parts if part.start < end <= part.end]
            if is_new[-1] and within:
                times = [
                    int(part.behind.first_ns[at + part.shift])
                    for part in within
                    for at in range(max(start, part.start), min(end, part.end))
                    if is_new[at - start]
                ]
                found.append((ts, max(times) - ts))
    return sorted(found)


@AS_ROOT
@pytest.mark.parametrize("kind", ["nginx", pytest.param("haproxy", marks=pytest.mark.long)])
def test_bodies_through_a_proxy_of_http_take_as_long_as_tshark_says(
    kind: str, scratch: Path
) -> None:
    needed("ip", "ethtool", "tcpdump", "tshark", "curl", kind)
    chance = random.Random(9)
    sizes = tuple(PROOF + int(chance.expovariate(1 / 4000)) for _ in range(LINKS * POSTS))
    bodies, (client_side, server_side) = posted(kind, scratch, sizes)
    answers = [hashlib.shake_128(body).digest(len(body)) for body in bodies]
    ways = (
        (bodies, (client_side, server_side), REQUEST, "dstport"),
        (answers, (server_side, client_side), REPLY, "srcport"),
    )
    for content, taps, begin, port in ways:
        expected = truth(content, taps, re.compile(begin), port)
        found = analyze(*taps)
        summary, series = found.summary, found.series
        assert summary["match_on"] == "tcp-bytes"
        times = zip(series.pre_ns.tolist(), series.latency_ns.tolist(), strict=True)
        assert sorted(times) == expected
        assert len(expected) >= len(bodies)
        assert (summary["lost"], summary["ambiguous"], summary["negative"]) == (0, 0, 0)
        assert summary["tcp_stretches"] == len(bodies)
