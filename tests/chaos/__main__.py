"""Attack measurements at random, and print what came of them: ``python -m tests.chaos``."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from .attack import SETTINGS, Attack, BrokenPromiseError, Setting, home
from .machine import be_apart, setting_paths, settings
from .scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEPT = ("whole", "partial", "recorded", "unfinished", "nothing")


class Ended(NamedTuple):
    """What became of one attack; `promise` is what was broken, if anything."""

    attack: str
    setting: str
    kept: str
    promise: str | None


def attempt(
    scenario: Scenario, there: Sequence[Setting], seed: str, host: Mapping[str, str]
) -> Ended:
    """Carry out one attack on one of the settings that are there."""
    chance = random.Random(seed)
    [setting] = chance.choices(there, [1 / each.takes_s for each in there])
    with home() as place:
        attack = Attack(chance, setting, place, host)
        kept, promises = "-", []
        try:
            kept = scenario.carry_out(attack)
        except BrokenPromiseError as error:
            promises.append(str(error))
        except Exception as error:  # noqa: BLE001
            promises.append(f"the attack itself failed: {type(error).__name__}: {error}")
        attack.give_up()
        try:
            attack.check_clean()
        except BrokenPromiseError as error:
            promises.append(str(error))
    return Ended(scenario.name, setting.name, kept, "; ".join(promises) or None)


def print_table(head: str, rows: Mapping[str, list[Ended]]) -> None:
    """A row for each kind: how often, and what was kept."""
    print(f"| {head} | times | {' | '.join(KEPT)} | other | broken |")
    print("|---" * (len(KEPT) + 4) + "|")
    for name, ended in rows.items():
        counts = Counter(each.kept for each in ended if each.kept != "-")
        others = [f"{times} {what}" for what, times in counts.items() if what not in KEPT]
        cells = [name, len(ended), *(counts[what] for what in KEPT), ", ".join(others) or "-"]
        cells.append(sum(each.promise is not None for each in ended))
        print(f"| {' | '.join(map(str, cells))} |")
    print()


def main() -> int:
    """Attack until the time is up; exit status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, help="only this attack of the seed")
    parser.add_argument("--only", default="", help="attacks whose names hold this text")
    parser.add_argument("--on", default="", help="settings whose names hold this text")
    asked = parser.parse_args()
    be_apart()
    host = settings(setting_paths())
    there = [each for each in SETTINGS if each.is_there and asked.on in each.name]
    found: list[Ended] = []
    ends_s = time.monotonic() + 60 * asked.minutes
    numbers = count() if asked.number is None else [asked.number]
    if not there:
        parser.error(f"--on: no setting here has {asked.on!r} in its name")
    for number in numbers:
        if time.monotonic() > ends_s:
            break
        scenario = SCENARIOS[number % len(SCENARIOS)]
        if not scenario.is_there or asked.only not in scenario.name:
            continue
        began_s = time.monotonic()
        found.append(ended := attempt(scenario, there, f"{asked.seed}-{number}", host))
        result = f"BROKEN: {ended.promise}" if ended.promise else ended.kept
        lasted_s = time.monotonic() - began_s
        what = f"{ended.attack}, {ended.setting}: {result} ({lasted_s:.0f} s)"
        print(f"seed {asked.seed}, number {number}: {what}", file=sys.stderr, flush=True)
    by_attack, by_setting = defaultdict(list), defaultdict(list)
    for ended in found:
        by_attack[ended.attack].append(ended)
        by_setting[ended.setting].append(ended)
    print_table("attack", by_attack)
    print_table("setting", by_setting)
    broken = [ended for ended in found if ended.promise]
    print(f"seed {asked.seed}: {len(found)} attacks, {len(broken)} broken")
    for ended in broken:
        print(f"broken: {ended.attack}, {ended.setting}: {ended.promise}")
    absent = [each.name for each in (*SCENARIOS, *SETTINGS) if not each.is_there]
    if absent:
        print(f"left out here: {'; '.join(absent)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
