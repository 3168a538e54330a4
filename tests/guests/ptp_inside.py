"""A card that stamps frames of PTP only, in the guest of `test_emulated_cards`."""

import json
import socket
import sys
import time
from pathlib import Path

from tailscope.extra.laboratory.stamps.packet_sockets import SocketRecorder
from tailscope.extra.laboratory.stamps.stamping import KernelLinks, stamping
from tailscope.testbed.places import Here

PTP_V2_EVENT = 12
FRAME = bytes.fromhex("ffffffffffff 020000000002 88b5") + bytes(46)
FRAMES = 10


def main(sending: str, receiving: str, beside: str) -> None:
    links, folder = KernelLinks(), Path("/run/ptp")
    (folder / "captures").mkdir(parents=True)
    with stamping((receiving, beside), links) as chosen:
        during = links.configuration(receiving)
    links.configure(receiving, (0, 0, PTP_V2_EVENT))
    place, pair = Here(folder), (receiving, beside)
    with SocketRecorder(
        pair, folder / "captures", place=place, by_cards=True, probes=False
    ) as recorder:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((sending, 0))
            for _ in range(FRAMES):
                raw.send(FRAME)
                time.sleep(0.05)
        counts = recorder.finish().socket.pre
    after = links.configuration(receiving)
    links.configure(receiving, (0, 0, 0))
    report = {
        "offer": links.offer(receiving)._asdict(),
        "by_cards": chosen.by_cards,
        "warnings": chosen.warnings,
        "during": during,
        "after": after,
        "counts": [counts.received, counts.written, counts.unstamped],
    }
    print("found", json.dumps(report), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
