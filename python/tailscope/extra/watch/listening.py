"""Where metrics are told."""

from __future__ import annotations

from tailscope.exceptions import UsageError

_NOWHERE = "none"


def place_of(listen: str) -> tuple[str, int] | None:
    """Read where to listen; None for nowhere."""
    if listen == _NOWHERE:
        return None
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and colon and port.isascii() and port.isdecimal()):
        raise UsageError(
            f"--listen: got {listen!r}, expected ADDRESS:PORT or {_NOWHERE}", code="listen"
        )
    return host, int(port)


def address_text(host: str, port: int) -> str:
    """Write an address and port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
