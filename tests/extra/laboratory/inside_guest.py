"""The program of `test_card_of_a_guest` in the guest, which prints its report as one object."""

import json
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path


def main(package: str, dataplane: str, frames: str) -> None:
    sys.path.insert(0, package)
    from tailscope.extra.laboratory.stamps.phc import ClockReading, KernelClock, compare
    from tailscope.extra.laboratory.stamps.stamping import KernelLinks, stamping

    class Ticking:
        name = "ticking"

        def read(self) -> ClockReading:
            now_ns = time.time_ns()
            return ClockReading(now_ns, now_ns, 0)

    class WithClock(KernelLinks):
        """The real cards, with a clock that keeps time even if the emulated ones do not."""

        def clock(self, _number: int) -> Ticking:
            return Ticking()

    links, names = KernelLinks(), ("eth0", "eth1")
    for name in names:
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    offers = {name: links.offer(name) for name in names}
    printed = {
        name: subprocess.run(["ethtool", "-T", name], capture_output=True, text=True).stdout
        for name in names
    }
    clocks = [KernelClock(offer.clock) for offer in offers.values() if offer.clock is not None]
    with stamping(names, links) as chosen:
        during = [links.configuration(name) for name in names]
    for name in names:
        links.configure(name, (0, 1, 12))
    with stamping(names, WithClock()) as other:
        forced = [links.configuration(name) for name in names]
        counts = recorded(dataplane, int(frames))
    report = {
        "offers": {name: offer._asdict() for name, offer in offers.items()},
        "ethtool": printed,
        "readings": [clock.read()._asdict() for clock in clocks for _ in range(2)],
        "keep_time": [compare(clock, clock) is not None for clock in clocks],
        "chosen": {"by_cards": chosen.by_cards, "warnings": chosen.warnings},
        "during": during,
        "with_clock": other.by_cards,
        "forced": forced,
        "after": [links.configuration(name) for name in names],
        "counts": counts,
    }
    print("found", json.dumps(report), flush=True)


def recorded(dataplane: str, frames: int) -> dict[str, object]:
    """Record frames from one card to the other, with the cards' timestamps."""
    Path("/tmp/captures").mkdir()
    command = [dataplane, "socket", "--", "--pre=eth0", "--post=eth1", "--captures=/tmp/captures"]
    with subprocess.Popen([*command, "--hardware"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("eth0", 0))
            for _ in range(frames):
                raw.send(bytes.fromhex("ffffffffffff 020000000002 88b5") + bytes(46))
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        result: dict[str, object] = json.loads(process.stdout.read())["socket"]["post"]
        return result


if __name__ == "__main__":
    main(*sys.argv[1:])
