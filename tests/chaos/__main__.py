"""Attack measurements at random, and print what came of them: ``python -m tests.chaos``."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from .attack import SETTINGS, Attack, BrokenPromiseError, home
from .scenarios import SCENARIOS, Scenario

KEPT = ("whole", "partial", "unfinished", "nothing")


def attempt(scenario: Scenario, seed: int) -> tuple[str, str, str | None]:
    """Carry out one attack: the setting, what became of it, and what promise was broken."""
    chance = random.Random(seed)
    setting = chance.choice([each for each in SETTINGS if each.is_there])
    with home() as place:
        attack = Attack(chance, setting, place)
        said, broken = "broken", None
        try:
            said = scenario.carry_out(attack)
        except BrokenPromiseError as error:
            broken = str(error)
        try:
            attack.check_clean()
        except BrokenPromiseError as error:
            broken = "; ".join(filter(None, (broken, str(error))))
    return setting.name, said, broken


def main() -> int:
    """Attack until the time is up; exit status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1, help="of the first attack")
    parser.add_argument("--only", help="scenarios whose names hold this text")
    asked = parser.parse_args()
    there = [each for each in SCENARIOS if each.is_there and (asked.only or "") in each.name]
    left_out = [each.name for each in SCENARIOS if not each.is_there]
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    broken: list[str] = []
    ends_s = time.monotonic() + 60 * asked.minutes
    seed = asked.seed
    while time.monotonic() < ends_s:
        scenario = there[seed % len(there)]
        setting, said, promise = attempt(scenario, seed)
        outcomes[scenario.name][said] += 1
        if promise is not None:
            broken.append(f"{scenario.name}, {setting}, seed {seed}: {promise}")
            print(f"broken: {broken[-1]}", file=sys.stderr, flush=True)
        seed += 1
    print(f"| attack | times | {' | '.join(KEPT)} | other | broken |")
    print("|---" * (len(KEPT) + 4) + "|")
    for each in there:
        counts = outcomes[each.name]
        kept = [str(counts[name]) for name in KEPT]
        others = ", ".join(f"{n} {what}" for what, n in counts.items() if what not in KEPT)
        promises = sum(line.startswith(f"{each.name}, ") for line in broken)
        cells = [each.name, str(counts.total()), *kept, others or "-", str(promises)]
        print(f"| {' | '.join(cells)} |")
    print(f"{seed - asked.seed} attacks, seeds {asked.seed} to {seed - 1}; {len(broken)} broken")
    if left_out:
        print(f"left out here: {', '.join(left_out)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
