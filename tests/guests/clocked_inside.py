"""The program of `test_known_clocks` in the guest: frames over the cards of the driver `clocked`.

The cables are 0-1 and 2-3. Each frame is sent on both, and recorded where it arrives: before a
device by port 1, and behind it by port 3.
"""

import base64
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tailscope.exceptions import TestbedError
from tailscope.extra.hosts.cards import stamping as stamping_of_hosts
from tailscope.extra.hosts.ends import Sender
from tailscope.extra.hosts.figures import hosts_record
from tailscope.extra.hosts.passages import read_passages
from tailscope.extra.laboratory.stamps.links import by_socket
from tailscope.extra.laboratory.stamps.packet_sockets import SocketRecorder
from tailscope.extra.laboratory.stamps.phc import KernelClock, compare
from tailscope.extra.laboratory.stamps.stamping import KernelLinks, stamping
from tailscope.store.records.base import as_content
from tailscope.testbed.places import Here

PORTS = [f"clocked{number}" for number in range(4)]
RECORDED = (PORTS[1], PORTS[3])
LOG = Path("/sys/kernel/debug/clocked/log")
TRUTH = struct.Struct("=IIQQQ")
NEAR, FAR, PORT = "10.9.0.1", "10.9.0.2", 8620
SO_TIMESTAMPING, TX_HARDWARE, RAW_HARDWARE = 37, 1 << 0, 1 << 6
TX_ON, ALL = 1, 1


def main(driver: str, frames: str, scenarios: str) -> None:
    # The kernel's own frames would be in the driver's log.
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    content = [bytes.fromhex(line) for line in Path(frames).read_text().split()]
    for name, (options, what, number, pause_s) in json.loads(Path(scenarios).read_text()).items():
        subprocess.run(["insmod", driver, *options], check=True)
        try:
            for port in PORTS:
                subprocess.run(["ip", "link", "set", port, "up"], check=True)
            time.sleep(0.5)
            found = globals()[what](content[:number], pause_s)
            found["log"] = [list(truth) for truth in TRUTH.iter_unpack(LOG.read_bytes())]
        finally:
            subprocess.run(["rmmod", "clocked"], check=True)
        print("found", json.dumps({"name": name, **found}), flush=True)


def send(frames: list[bytes], pause_s: float) -> None:
    with ExitStack() as stack:
        raw = [stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) for _ in "ab"]
        for handle, port in zip(raw, (PORTS[0], PORTS[2]), strict=True):
            handle.bind((port, 0))
        for frame in frames:
            for handle in raw:
                handle.send(frame)
            time.sleep(pause_s)


def captures(folder: Path) -> dict[str, str]:
    return {
        side: base64.b64encode((folder / f"{side}.pcapng.zst").read_bytes()).decode()
        for side in ("pre", "post")
    }


def folder() -> Path:
    path = Path(f"/run/{time.monotonic_ns()}")
    (path / "captures").mkdir(parents=True)
    return path


def as_it_comes(frames: list[bytes], pause_s: float) -> dict[str, object]:
    """Record with the cards' times, each by its own clock."""
    links, where = KernelLinks(), folder()
    before = [links.configuration(name) for name in RECORDED]
    for name in RECORDED:
        links.configure(name, (0, 0, ALL))
    place = Here(where)
    with SocketRecorder(RECORDED, where / "captures", place=place, by_cards=True) as recorder:
        send(frames, pause_s)
        result = recorder.finish().socket
    during = [links.configuration(name) for name in RECORDED]
    for name, configuration in zip(RECORDED, before, strict=True):
        links.configure(name, configuration)
    counts = [
        {
            name: getattr(link, name)
            for name in ("received", "written", "unstamped", "dropped", "foreign")
        }
        for link in (result.pre, result.post)
    ]
    return {"counts": counts, "during": during, "captures": captures(where / "captures")}


def on_one_clock(frames: list[bytes], pause_s: float) -> dict[str, object]:
    """Record as a laboratory does: it chooses the times, and converts them to one clock."""
    where, links = folder(), KernelLinks()
    offers = [links.offer(name)._asdict() for name in RECORDED]
    found: dict[str, object] = {"offers": offers}
    with stamping(RECORDED, links) as chosen:
        found["by_cards"] = chosen.by_cards
        found["warnings"] = chosen.warnings
        found["began_ns"] = time.time_ns()
        try:
            with by_socket(RECORDED, where / "captures", chosen, place=Here(where)) as recorded:
                found["entered_ns"] = time.time_ns()
                send(frames, pause_s)
        except TestbedError as error:
            return {**found, "code": error.code, "text": str(error)}
    clocks = recorded.port_clocks
    fields = ("offset_ns", "drift_ppb", "residual_ns", "error_ns", "readings", "left_out")
    if clocks is not None:
        found["clocks"] = {name: getattr(clocks, name) for name in fields}
    found["recorded_warnings"] = recorded.warnings
    found["after"] = [links.configuration(name) for name in RECORDED]
    return {**found, "type": recorded.timestamp_type, "captures": captures(where / "captures")}


def as_it_leaves(frames: list[bytes], _pause_s: float) -> dict[str, object]:
    """Read the times at which a card sent frames, and its clock before and after."""
    links = KernelLinks()
    number = links.offer(PORTS[0]).clock
    assert number is not None
    clock = KernelClock(number)
    links.configure(PORTS[0], (0, TX_ON, 0))
    times = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((PORTS[0], 0))
        raw.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_HARDWARE | RAW_HARDWARE)
        for frame in frames:
            before_ns = clock.read().clock_ns
            raw.send(frame)
            after_ns = clock.read().clock_ns
            _, control, *_ = raw.recvmsg(2048, 512, socket.MSG_ERRQUEUE)
            stamps = next(data for _, kind, data in control if kind == SO_TIMESTAMPING)
            seconds, ns = struct.unpack_from("=qq", stamps, 32)
            times.append((before_ns, seconds * 10**9 + ns, after_ns))
    return {"sent": times, "compared": [compare(clock, clock) is not None for _ in range(3)]}


def as_a_tap(frames: list[bytes], pause_s: float) -> dict[str, object]:
    """Match what both links see while it comes, by the cards' times."""
    said = folder() / "said.jsonl"
    options = ("--taps", "--stamps", "card", "--window", "200ms", "--json", str(said))
    command = [sys.executable, "-m", "tailscope", "tap", *RECORDED, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as tap:
        deadline = time.monotonic() + 120
        during: list[list[int]] = []
        while tap.poll() is None and len(Path("/proc/net/packet").read_text().splitlines()) < 3:
            assert time.monotonic() < deadline, "it does not begin"
            time.sleep(0.1)
        if tap.poll() is None:
            time.sleep(1)
            during = [list(KernelLinks().configuration(name)) for name in RECORDED]
            send(frames, pause_s)
            time.sleep(2)
            tap.send_signal(signal.SIGINT)
        told, _ = tap.communicate(timeout=120)
    lines = [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []
    after = [KernelLinks().configuration(name) for name in RECORDED]
    return {
        "status": tap.returncode,
        "text": told.decode(),
        "last": lines[-1] if lines else None,
        "during": during,
        "after": after,
    }


def as_two_sessions(_frames: list[bytes], _pause_s: float) -> dict[str, object]:
    """Return a card's settings while two use it, of whom the first ends first."""
    link = PORTS[0]
    settings = []
    with ExitStack() as second:
        with stamping_of_hosts(link):
            second.enter_context(stamping_of_hosts(link))
            settings.append(KernelLinks().configuration(link))
        settings.append(KernelLinks().configuration(link))
    return {"settings": [*settings, KernelLinks().configuration(link)]}


def as_a_path(frames: list[bytes], pause_s: float) -> dict[str, object]:
    """Measure from one end of a cable to the other, by the cards' times."""
    rate_pps, count = round(1 / pause_s), len(frames)
    ends = ((PORTS[0], NEAR, []), (PORTS[1], FAR, ["ip", "netns", "exec", "far"]))
    quiet = "ip netns exec far sysctl -w net.ipv6.conf.default.disable_ipv6=1"
    commands = ["ip netns add far", quiet, f"ip link set {PORTS[1]} netns far"]
    for command in commands:
        subprocess.run(command.split(), check=True)
    macs = {}
    for link, address, inside in ends:
        for words in (
            ["address", "add", f"{address}/24", "dev", link],
            ["link", "set", link, "up"],
        ):
            subprocess.run([*inside, "ip", *words], check=True)
        shown = [*inside, "cat", f"/sys/class/net/{link}/address"]
        macs[address] = subprocess.check_output(shown, text=True).strip()
    for (link, _, inside), other in zip(ends, (FAR, NEAR), strict=True):
        words = ["replace", other, "lladdr", macs[other], "dev", link, "nud", "permanent"]
        subprocess.run([*inside, "ip", "neigh", *words], check=True)
    command = [sys.executable, "-m", "tailscope", "reflect", "--port", str(PORT)]
    reflect = [*ends[1][2], *command, "--card", PORTS[1]]
    where, link = folder(), PORTS[0]
    recording = where / "recording"
    recording.mkdir()
    options = [
        f"--to={FAR}:{PORT}",
        f"--rate={rate_pps}",
        f"--duration={count * 10**9 // rate_pps}ns",
    ]
    options += [f"--record={recording}", f"--card={link}"]
    said = subprocess.PIPE
    with subprocess.Popen(reflect, stdout=said, stderr=subprocess.STDOUT, text=True) as reflector:
        assert reflector.stdout is not None
        line = reflector.stdout.readline()
        assert "answering" in line, line + reflector.stdout.read()
        try:
            with stamping_of_hosts(link), Sender(options, place=Here(where)) as sender:
                during = KernelLinks().configuration(link)
                result = sender.follow(lambda: False)
        finally:
            reflector.send_signal(signal.SIGINT)
        told = reflector.communicate(timeout=120)[0]
    passages = read_passages(recording)
    columns = ("seq", "departed_ns", "received_ns", "answered_ns", "arrived_ns", "exact")
    found = {name: getattr(passages, name).tolist() for name in columns}
    subprocess.run(["ip", "netns", "delete", "far"], check=True)
    record = hosts_record(FAR, FAR, passages, result.sender)
    after = KernelLinks().configuration(link)
    return {**found, "record": as_content(record), "told": told, "during": during, "after": after}


if __name__ == "__main__":
    main(*sys.argv[1:])
