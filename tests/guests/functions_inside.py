"""Virtual functions of cards in the guest of `test_emulated_cards`, until SIGTERM."""

import json
import signal
import sys

from tailscope.extra.laboratory.functions import virtual_functions


def main(driver: str, address: str, *links: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with virtual_functions(links, driver, address) as made:
        print(json.dumps(made), flush=True)
        signal.sigwait({signal.SIGTERM})
    print("removed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
