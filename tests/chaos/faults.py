"""The n-th file operation of each command goes wrong: ``python -m tests.chaos.faults``.

After each try, four questions are answered: is every directory whole or refused, is an earlier byte
harmed, is a measurement gone, does the message say what to do. Then the command is repeated without
a fault: what it makes must be whole, and nothing may be left beside it.

Tries that a file of results already has are not repeated: what was cut short goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from forked import ONE_THREAD, import_everything

from .commands import COMMANDS, furnish, make_workshop
from .judged import ANSWERS, Judge
from .shim import FAULTS, Action, Kind, Shim
from .tries import Bench, Try

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .commands import Command
    from .shim import Operation

TOGETHER = {"two at once": 2, "six at once": 6}
STEPS_S = (-3600, 86_400, -400 * 86_400)
_SPREAD = 0x9E3779B1
"""Odd, so that a share of all places is spread over them, whatever it is."""


def tries_of(command: Command, operations: list[Operation], *, together: int) -> list[Try]:
    """All tries of a command: each fault at each operation that it suits."""
    found = [
        Try(command.name, fault.name, number, f"{operation.kind.name.lower()} {operation.name}")
        for number, operation in enumerate(operations, 1)
        for fault in FAULTS
        if fault.suits(operation)
        # Traffic goes on while a process is stopped; another measurement takes its time.
        and not (command.measures and fault.action == Action.STOP)
    ]
    found += [
        Try(command.name, name, number, "")
        for name in TOGETHER
        for number in range(1, together + 1)
        if not command.measures
    ]
    return found


def chosen(every: int, tries: list[Try]) -> Iterator[Try]:
    """One of so many, spread over faults and operations."""
    for at, each in enumerate(tries):
        if (at * _SPREAD & 0xFFFFFFFF) % every == 0:
            yield each


def attempt(bench: Bench, judge: Judge, command: Command, each: Try) -> dict[str, Any]:
    """Carry out a try: a row of the results."""
    furnish(bench.workshop, bench.work, command)
    before = judge.before()
    bench.commands = 0
    fault = next((fault for fault in FAULTS if fault.name == each.fault), None)
    if fault is None:
        ended = bench.together(command, TOGETHER[each.fault])
    elif fault.action == Action.STOP:
        ended = bench.beside(command, fault, each.number)
    else:
        step_ns = STEPS_S[each.number % len(STEPS_S)] * 10**9
        ended = [bench.run(command, fault, each.number, step_ns=step_ns)]
    fired = bench.shim.fired if fault else 1
    taken = command.measures and _was_taken(bench, each.number)
    answers, said = judge.judge(command, before, ended, taken=taken)
    return {
        **each._asdict(),
        "fired": bool(fired),
        "commands": bench.commands,
        "status": [one.status for one in ended],
        "answers": answers,
        "said": said,
        "errors": [one.errors.strip()[-600:] for one in ended],
    }


def _was_taken(bench: Bench, number: int) -> bool:
    """Whether the command had begun to read what its generator recorded.

    It first looks at the arrays when they are empty, and then says what will be in them.
    """
    before = bench.shim.operations()[: number - 1]
    own = [each for each in before if each.pid == before[0].pid and "/recording/" in each.name]
    said = [at for at, each in enumerate(own) if each.kind == Kind.RENAME]
    return bool(said) and any(each.name.endswith(".npy") for each in own[said[0] :])


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Results of earlier tries; a line that was cut off is none."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def print_tables(rows: list[dict[str, Any]]) -> None:
    """Print tries, and how many of them got a bad answer: by command, by fault, and by both."""
    tried = [row for row in rows if row["fired"]]
    _print_table(tried, "command")
    _print_table(tried, "fault")
    _print_table(tried, "command", "fault")
    bad = sum(map(_bad, tried))
    print(f"{len(tried)} tries, {sum(row['commands'] for row in tried)} commands, {bad} bad")


def _print_table(tried: list[dict[str, Any]], *by: str) -> None:
    table: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in tried:
        table[tuple(row[name] for name in by)].append(row)
    print(f"| {' | '.join((*by, 'tries', *ANSWERS))} |")
    print("|---" * (len(by) + 1 + len(ANSWERS)) + "|")
    for names, of in table.items():
        bad = [sum(not row["answers"][answer] for row in of) for answer in ANSWERS]
        print(f"| {' | '.join((*names, str(len(of)), *map(str, bad)))} |")
    print()


def main() -> int:
    """Try all that is asked for; exit status 1 if an answer is bad."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.faults", description=__doc__)
    parser.add_argument("--commands", default="", help="names, with commas; all by default")
    parser.add_argument("--faults", default="", help="names, with commas; all by default")
    parser.add_argument("--every", type=int, default=1, help="only one of so many tries")
    parser.add_argument("--number", type=int, help="only at this operation")
    parser.add_argument("--together", type=int, default=5, help="tries of several at once")
    parser.add_argument("--json", type=Path, help="results, a line each; taken up again")
    parser.add_argument("--table", action="store_true", help="only print the tables of --json")
    asked = parser.parse_args()
    if asked.table:
        print_tables(rows_of(asked.json))
        return 0
    if "LD_PRELOAD" not in os.environ:
        return _with_shim()
    import_everything()
    rows = rows_of(asked.json) if asked.json else []
    done = {(row["command"], row["fault"], row["number"]) for row in rows}
    commands = [each for each in COMMANDS if _asked(asked.commands, each.name)]
    file = Path(os.environ["CHAOS_FAULTS"])
    bench = Bench(file.parent, Shim(file))
    make_workshop(bench.workshop, commands, bench.cut_short)
    judge = Judge(bench)
    for command in commands:
        tries = tries_of(command, judge.learn(command), together=asked.together)
        for each in chosen(asked.every, tries):
            is_asked = _asked(asked.faults, each.fault) and asked.number in (None, each.number)
            if is_asked and (each.command, each.fault, each.number) not in done:
                row = attempt(bench, judge, command, each)
                rows.append(row)
                _say(row, asked.json)
    print_tables(rows)
    return int(any(_bad(row) for row in rows))


def _with_shim() -> int:
    """Begin again with the library loaded, and without threads: that process is forked.

    So its folder is removed here: what is forked ends, too.
    """
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        loaded = {**os.environ, **ONE_THREAD, **Shim.environment(Path(folder))}
        pid = os.spawnvpe(os.P_NOWAIT, sys.executable, sys.orig_argv, loaded)
        while True:
            try:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            except KeyboardInterrupt:
                continue


def _asked(names: str, name: str) -> bool:
    return not names or name in names.split(",")


def _bad(row: Mapping[str, Any]) -> bool:
    return row["fired"] and not all(row["answers"].values())


def _say(row: dict[str, Any], path: Path | None) -> None:
    if path:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
    if _bad(row):
        where = f"{row['command']}: {row['fault']} at {row['number']} ({row['operation']})"
        print(f"{where}: {'; '.join(row['said'])}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Not `sys.exit`: libraries that were imported and not used complain.
    os._exit(status)
