"""A card that stamps frames of PTP only, in the guest of `test_emulated_cards`."""

import base64
import json
import socket
import sys
import time
from pathlib import Path

from tailscope.extra.laboratory.stamps.packet_sockets import SocketRecorder
from tailscope.extra.laboratory.stamps.phc import KernelClock
from tailscope.extra.laboratory.stamps.stamping import KernelLinks, stamping
from tailscope.testbed.places import Here

PTP_V2_EVENT = 12
FRAME = bytes.fromhex("020000000001 020000000002 88b5") + bytes(46)
"""A frame for another machine."""
SYNC = bytes.fromhex("011b19000000 020000000002 88f7 0002") + bytes(44)
"""A message of PTP, of version 2, to all of its participants."""
FRAMES = 10


def main(sending: str, receiving: str, beside: str) -> None:
    links = KernelLinks()
    with stamping((receiving, beside), links) as chosen:
        during = links.configuration(receiving)
    offer = links.offer(receiving)
    assert offer.clock is not None
    clock, pair = KernelClock(offer.clock), (receiving, beside)
    links.configure(receiving, (0, 0, PTP_V2_EVENT))
    report = {
        "offer": offer._asdict(),
        "by_cards": chosen.by_cards,
        "warnings": chosen.warnings,
        "during": during,
        "ordinary": recorded(FRAME, sending, pair, clock),
        "ptp": recorded(SYNC, sending, pair, clock),
        "after": links.configuration(receiving),
    }
    links.configure(receiving, (0, 0, 0))
    print("found", json.dumps(report), flush=True)


def recorded(
    frame: bytes, sending: str, pair: tuple[str, str], clock: KernelClock
) -> dict[str, object]:
    """Record frames, each sent between two readings of the card's clock."""
    folder, between = Path(f"/run/{time.monotonic_ns()}"), []
    (folder / "captures").mkdir(parents=True)
    with SocketRecorder(
        pair, folder / "captures", place=Here(folder), by_cards=True, probes=False
    ) as recorder:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((sending, 0))
            for _ in range(FRAMES):
                before_ns = clock.read().clock_ns
                raw.send(frame)
                time.sleep(0.05)
                between.append((before_ns, clock.read().clock_ns))
        counts = recorder.finish().socket.pre
    capture = folder / "captures" / "pre.pcapng.zst"
    return {
        "counts": [counts.received, counts.written, counts.unstamped],
        "between": between,
        "capture": base64.b64encode(capture.read_bytes()).decode(),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
