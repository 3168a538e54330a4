"""Virtual functions of cards in the guest of `test_emulated_cards`, until SIGINT."""

import json
import signal
import sys
from contextlib import suppress

from tailscope.extra.laboratory.functions import virtual_functions


def main(driver: str, address: str, *links: str) -> None:
    with suppress(KeyboardInterrupt), virtual_functions(links, driver, address) as made:
        print(json.dumps(made), flush=True)
        signal.pause()
    print("removed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
