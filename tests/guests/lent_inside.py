"""Cards lent to vfio-pci in the guest of `test_emulated_cards`, until SIGTERM."""

import signal
import sys

from tailscope.extra.laboratory.functions import lent_cards


def main(*cards: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with lent_cards(cards):
        print("lent", flush=True)
        signal.sigwait({signal.SIGTERM})
    print("given back", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
