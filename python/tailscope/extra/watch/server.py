"""Metrics over HTTP, for whoever scrapes them."""

from __future__ import annotations

import errno
import threading
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.openmetrics.exposition import (
    CONTENT_TYPE_LATEST,
    CONTENT_TYPE_LATEST_2_0,
    generate_latest,
)

from tailscope.exceptions import UsageError
from tailscope.extra.watch.protobuf import CONTENT_TYPE, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIEnvironment

    from prometheus_client.registry import Collector

    App = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]

_BINARY = CONTENT_TYPE.partition(";")[0]
_WAIT_S = 10.0


def application(metrics: Collector, page: Callable[[], str] | None = None) -> App:
    """Answer with metrics in the format that is asked for first, and with a page at ``/``.

    The formats are OpenMetrics and Prometheus' binary one.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return []
        asked = environ.get("HTTP_ACCEPT", "").partition(",")[0]
        if page is not None and environ["PATH_INFO"] == "/":
            kind, content = "text/html; charset=utf-8", page().encode()
        elif _BINARY in asked:
            kind, content = CONTENT_TYPE, encoded(metrics)
        elif "version=2" in asked:
            # Text has native histograms from this version on.
            kind, content = CONTENT_TYPE_LATEST_2_0, generate_latest(metrics, version="2.0.0")
        else:
            kind, content = CONTENT_TYPE_LATEST, generate_latest(metrics)
        start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(content)))])
        return [content]

    return answer


@contextmanager
def serving(
    metrics: Collector, host: str, port: int, page: Callable[[], str] | None = None
) -> Iterator[int]:
    """Serve metrics within a block, and a page of them."""
    try:
        app = application(metrics, page)
        server = make_server(host, port, app, _server(host), _QuietHandler)
    except (OSError, OverflowError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        is_foreign = isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL
        hint = "`ip addr` lists the addresses of this host" if is_foreign else "choose another port"
        raise UsageError(
            f"--listen: {host}:{port}: {said}", code="listen-failed", hint=hint
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request, none of which keeps the process alive."""

    daemon_threads = True
    block_on_close = False


def _server(host: str) -> type[_Server]:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return type("_ServerOfFamily", (_Server,), {"address_family": family})


class _QuietHandler(WSGIRequestHandler):
    """Says nothing of requests, and waits for none that does not come."""

    timeout = _WAIT_S

    def log_message(self, *_: object) -> None:
        pass
