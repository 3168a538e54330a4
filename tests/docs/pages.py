"""The pages of the documentation, and how what they show is run.

A page is run from its top to its end in a private folder, where ``experiments`` and ``.venv`` are
those of the project. README and the guide are run one after the other in the same folder, as a
person reads them, and none may touch what another one has made:

- blocks of ``sh`` are commands; in blocks of ``console`` these follow ``$``, and the rest is what
  they say: of the same shape, where numbers, times, bounds and rules of tables may differ, and a
  line of ``...`` stands for any lines;
- every command must end with status 0, or with one of those that a comment behind it names:
  ``# exit status 2``, ``# exit status 0 or 3``;
- the database ``lab`` is a server that exists for the page alone;
- what the papers' authors have published is in ``authors``, if it is there;
- a block of ``yaml`` whose first line is ``# NAME.yaml`` becomes that file, other first lines of
  ``# NAME`` likewise; blocks of ``python`` are run;
- a line of a first page of `docs/extra` that begins with ``These pages name commands of other
  additions:`` lists these, as they go when the other folder is deleted;
- a paragraph ``Needs: root, Suricata.`` before a block says what it takes. Where that is not there
  (`NEEDS`) the block is not run: its commands are only parsed, and planned by ``--dry-run`` where
  they have that and root is not what is missing; tests list it as skipped, with the reason.

To be quick, what measures does so for a shorter time (`_SHORTER`), experiments of such pages
included; commands are the same otherwise.
As root ``sudo`` is left out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import postgres_server
from errors import unwrapped

from tailscope.registry import additions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
SERVER = "a PostgreSQL server"
AUTHORS = ROOT.parent / "shared" / "data"
"""What the papers' authors have published, where it is there."""

WING = ROOT / "docs" / "extra"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = [
    ROOT / "README.md",
    *(ROOT / found for found in re.findall(r"\((docs/guide/.+?\.md)\)", PAGES[0].read_text())),
]
"""What a person reads first, in its order."""
LANGUAGES = ("sh", "console", "yaml", "python", "text", "json", "sql")
LIMIT_S = 300
"""A page that takes longer hangs."""

_SHORTER = (
    (r"(tailscope watch\b.*?)--for [0-9]\w+", r"\1--every 500ms --warm-up 50ms --for 1s"),
    (r"(tailscope compare duet\b.*?)--rate", r"\1--block 100ms --warm-up 50ms --for 5s --rate"),
    (r"(tailscope run\b.*?)(?:--duration|-d) [0-9]\w+", r"\1--duration 250ms --warm-up 50ms"),
    (r"(--duration|--trial-duration|--power-phase) [0-9]\w+", r"\1 250ms"),
    (r"\b(duration|power_phase): [0-9]\w+", r"\1: 250ms"),
    (r"\bwarm_up: [0-9]\w+", "warm_up: 100ms"),
)
_MEASURING = re.compile(
    r"tailscope (run|calibrate|noise|search|host tune|compare duet|watch)\b"
    r"(?!.*--dry-run)"
    r"|python -m experiments\."
)
_ALONE = re.compile(
    r"tailscope (host apply|host revert|host tune|calibrate|model overload|run\b.*--tune)\b"
    r"(?!.*--dry-run)"
)
_STATUS = re.compile(r"#.*exit status (\d+(?:(?:, | or )\d+)*)")
_NAMED = re.compile(r"# ([\w.-]+\.\w+)$")
_VARIABLE = re.compile(r"\$\w+")
_FENCE = re.compile(r"^```(.*)$")
_OF_OTHERS = re.compile(r"^These pages name commands of other additions: (.+)\.$", re.M)


def _without(*programs: str) -> str | None:
    """What is said where a program is not there."""
    missing = [name for name in programs if not shutil.which(name)]
    return f"no {missing[0]}" if missing else None


def _not_root() -> str | None:
    return None if os.geteuid() == 0 else "root"


def _no_guest() -> str | None:
    kernels = Path(sys.prefix, "share", "tailscope", "kernels")
    return _without("qemu-system-x86_64") or (None if kernels.is_dir() else "no kernels for guests")


def _no_user_namespaces() -> str | None:
    own = ["unshare", "--user", "--map-current-user", "--keep-caps", "--net", "--mount"]
    # Some systems let anybody make them, and nobody do anything in them.
    made = subprocess.run([*own, "mount", "-t", "tmpfs", "tmpfs", "/run"], capture_output=True)
    return made.stderr.decode().strip() or None


def _never(what: str) -> Callable[[], str | None]:
    return lambda: what


NEEDS: dict[str, Callable[[], str | None]] = {
    "root": _not_root,
    "Suricata": lambda: _without("suricata"),
    "LXC": lambda: _not_root() or _without("lxc-execute"),
    "stress-ng": lambda: _without("stress-ng"),
    "a guest": _no_guest,
    "user namespaces": _no_user_namespaces,
    SERVER: lambda: None if postgres_server.programs() else "none is installed",
    "the authors' data": lambda: None if AUTHORS.is_dir() else "none of it",
    **{
        name: _never(name)
        for name in (
            "a fresh checkout",
            "a laboratory",
            "a machine that may be changed",
            "a power meter",
            "a release",
            "a workflow of GitHub",
            "another kernel",
            "a browser",
            "a cluster",
            "captures of your own",
            "hours",
            "minutes",
            "network cards",
            "RAPL",
            "Snort 3",
            "two hosts",
            "two terminals",
            "xdp-tools",
        )
    },
}
"""What a block may need, and how to see that it is not there: what is missing, or None."""


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes
    ----------
    page : str
    line : int
        Of its fence.
    language : str
    text : str
    needs : tuple of str
    """

    page: str
    line: int
    language: str
    text: str
    needs: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def missing(self) -> str | None:
        """Why it cannot be run here; None if it can."""
        return next(filter(None, (NEEDS[name]() for name in self.needs)), None)


@dataclass(frozen=True)
class Command:
    """A command of a block, the statuses it may end with, and what it says if that is shown."""

    place: str
    text: str
    statuses: tuple[int, ...]
    shown: tuple[str, ...] | None = None


def blocks(path: Path) -> list[Block]:
    """All fenced blocks of a page."""
    page = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    found, start, before, inside = [], 0, "", []
    language = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if language is None and fence:
            language, start, inside = fence[1].strip(), number, []
        elif language is not None and fence:
            found.append(Block(page, start, language, "\n".join(inside), _needs(before)))
            language, before = None, ""
        elif language is not None:
            inside.append(line)
        elif line.strip():
            before = line
    assert language is None, f"{page}:{start}: a block that does not end"
    return found


def _needs(paragraph: str) -> tuple[str, ...]:
    if not paragraph.startswith("Needs: "):
        return ()
    said = paragraph.removeprefix("Needs: ").split(". ")[0].split(" (")[0].rstrip(".")
    return tuple(re.split(", | and ", said))


def measures(path: Path) -> bool:
    """Whether a page sends packets or watches CPUs."""
    return _does(path, _MEASURING)


def needs_the_machine(path: Path) -> bool:
    """Whether a page changes settings of the host, or depends on times."""
    return _does(path, _ALONE)


def _does(path: Path, what: re.Pattern[str]) -> bool:
    return any(
        what.search(block.text)
        for block in blocks(path)
        if block.language in ("sh", "console") and block.missing() is None
    )


def commands(block: Block) -> list[Command]:
    """The commands of a block, in their order."""
    if block.language == "console":
        return list(_console(block))
    return [
        Command(f"{block.page}:{block.line + at}", text, _statuses(text))
        for at, text in _statements(block.text.splitlines(), 1)
    ]


def _console(block: Block) -> Iterator[Command]:
    lines = block.text.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"{block.place}: a console block begins with `$ `"
    for first, end in pairwise([*starts, len(lines)]):
        own = [lines[first].removeprefix("$ ")]
        rest = lines[first + 1 : end]
        while rest and (own[-1].endswith("\\") or rest[0].startswith("> ")):
            own.append(rest.pop(0).removeprefix("> "))
        text = "\n".join(own)
        place = f"{block.page}:{block.line + 1 + first}"
        yield Command(place, text, _statuses(text), tuple(rest))


def _statements(lines: list[str], number: int) -> Iterator[tuple[int, str]]:
    """Join lines that are one command: continued ones, documents, loops."""
    pending: list[str] = []
    for at, line in enumerate(lines, number):
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        pending.append(line)
        if _is_whole("\n".join(pending)):
            yield at - len(pending) + 1, "\n".join(pending)
            pending = []
    assert not pending, f"not a whole command: {pending}"


def _is_whole(text: str) -> bool:
    if text.endswith("\\"):
        return False
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0 and not done.stderr


def _statuses(text: str) -> tuple[int, ...]:
    found = _STATUS.search(text)
    return tuple(map(int, re.findall(r"\d+", found[1]))) if found else (0,)


def adapted(text: str) -> str:
    """The same for a shorter time."""
    for pattern, by in _SHORTER if "--dry-run" not in text else ():
        text = re.sub(pattern, by, text)
    return text


def rehearsed(block: Block) -> Iterator[Command]:
    """What can be tried of a block that is not run: parse all commands, plan those that can be."""
    for command in commands(block):
        for words in _simple_commands(command.text):
            parsed = _parsed(command.place, words)
            may_plan = "root" not in block.needs or _not_root() is None
            if may_plan and any("--dry-run" in each.opts for each in parsed.params):
                # What an earlier command would have made is not there to be resumed.
                plan = [word for word in words if word not in ("--dry-run", "--resume")]
                plan.append("--dry-run")
                yield Command(command.place, shlex.join(plan), (0,))


def understood(path: Path) -> None:
    """Parse the commands of a page, whatever its blocks need; variables stand for numbers."""
    for block in blocks(path):
        if block.language in ("sh", "console"):
            for command in commands(block):
                text = _VARIABLE.sub("1", command.text).replace("\\\n", " ").replace("\n", ";")
                for words in _simple_commands(text):
                    if not is_of_a_deleted_folder(path, words[1:]):
                        _parsed(command.place, words)


def named(path: Path) -> set[str]:
    """The commands of folders of the wing that a page names, in its sentences and blocks."""
    lines = [text.split() for text in re.findall(r"`tailscope ([^`\n]+)`", path.read_text())]
    for block in blocks(path):
        if block.language in ("sh", "console"):
            for command in commands(block):
                lines += [words[1:] for words in _simple_commands(command.text)]
    return {name for name in _added() for words in lines if _calls(words, name)}


def of_others(path: Path) -> set[str]:
    """What the first page beside a page tells to be commands of other folders of the wing."""
    first = path.parent / "index.md"
    if path.parent.parent != WING or (told := _OF_OTHERS.search(first.read_text())) is None:
        return set()
    return set(re.findall(r"`tailscope ([^`]+)`", told[1]))


def is_of_a_deleted_folder(path: Path, words: list[str]) -> bool:
    """Whether a page may name a command that is not there."""
    return any(_calls(words, name) for name in of_others(path) - _added())


def _added() -> set[str]:
    return {command.words for addition in additions().values() for command in addition.commands}


def _calls(words: list[str], name: str) -> bool:
    """Whether a line calls ``model tail``, or ``run --to``: that option may stand anywhere."""
    own = [word for word in name.split() if not word.startswith("-")]
    options = {word for word in name.split() if word.startswith("-")}
    return words[: len(own)] == own and options <= set(words)


def _simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each call of tailscope in a line."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= set("();<>|&"):
            words.append(word)
            continue
        names = [Path(each).name for each in words]
        if "tailscope" in names:
            yield ["tailscope", *words[names.index("tailscope") + 1 :]]
        words = []


def _parsed(place: str, words: list[str]) -> Any:
    """The command that these words call, if they can be parsed."""
    import typer

    from tailscope.cli import application

    command, rest = application(), words[1:]
    while hasattr(command, "commands"):
        if rest and rest[0] in command.commands:
            command, rest = command.commands[rest[0]].way(rest[1:]).load(), rest[1:]
        else:
            assert hasattr(command, "default"), f"{place}: no command {' '.join(words)}"
            command = command.default
    try:
        command.make_context("tailscope", list(rest))
    except typer.TyperException as error:
        raise AssertionError(f"{place}: {error.format_message()}") from None
    return command


class Folder:
    """Where pages are run, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path / "page"
        self._said = path / "said"
        for folder in (self.path, path / "run", path / "state"):
            folder.mkdir(mode=0o700)
        (self.path / "experiments").symlink_to(ROOT / "experiments")
        (self.path / ".venv").symlink_to(sys.prefix)
        if AUTHORS.is_dir():
            (self.path / "authors").symlink_to(AUTHORS)
        self._environment = {
            **os.environ,
            "HOME": str(path),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(path / "run"),
            "XDG_STATE_HOME": str(path / "state"),
            "COLUMNS": "200",
        }

    def run(self, path: Path) -> None:
        """Run a page; what it shows must be what comes, and what was there must stay as it was."""
        shutil.rmtree(self._said, ignore_errors=True)
        self._said.mkdir(mode=0o700)
        there = self._made()
        script, known = ["exec </dev/null"], []
        if os.geteuid() == 0:
            script.append('sudo() { "$@"; }')
        for block in blocks(path):
            for command in self._of(block, is_short=measures(path)):
                known.append(command)
                script += self._wrapped(len(known) - 1, command)
        if known:
            with self._server(path):
                self._execute(script)
            for number, command in enumerate(known):
                self._check(number, command)
        assert not list(self.path.parent.glob("run/tailscope-*")), "left behind"
        now = self._made()
        touched = [str(name) for name, when in there.items() if now.get(name) != when]
        assert not touched, f"{path.name}: writes to what another page has made: {touched}"

    def _made(self) -> dict[Path, int]:
        """Files and folders that pages have made, and when they were changed last."""
        found = [*self.path.glob("*"), *self.path.glob("runs/*")]
        return {
            each.relative_to(self.path): each.stat().st_mtime_ns
            for each in found
            if each.name != "runs" and not each.is_symlink()
        }

    @contextmanager
    def _server(self, path: Path) -> Iterator[None]:
        """The database that pages call ``lab``, where a page needs one and there is one."""
        needed = any(SERVER in block.needs and not block.missing() for block in blocks(path))
        if not needed:
            yield
            return
        with postgres_server.server() as server:
            service = self.path.parent / "services.conf"
            service.write_text(
                f"[lab]\nhost={server.folder}\nuser={server.user}\ndbname=postgres\n"
            )
            self._environment["PGSERVICEFILE"] = str(service)
            yield

    def _of(self, block: Block, *, is_short: bool) -> Iterator[Command]:
        """What is run of a block."""
        first = block.text.partition("\n")[0]
        if named := _NAMED.match(first):
            text = adapted(block.text) if is_short else block.text
            (self.path / named[1]).write_text(text + "\n")
        elif block.language == "python" and block.missing() is None:
            python = shlex.quote(sys.executable)
            yield Command(block.place, f"{python} - <<'PYTHON'\n{block.text}\nPYTHON", (0,))
        elif block.language in ("sh", "console"):
            yield from commands(block) if block.missing() is None else rehearsed(block)

    def _wrapped(self, number: int, command: Command) -> list[str]:
        said, status = self._said / f"{number}", self._said / f"{number}.status"
        errors = self._said / f"{number}.errors"
        expected = " || ".join(f"[ $status = {each} ]" for each in command.statuses)
        return [
            "{",
            adapted(command.text),
            f"}} >{said} 2>{errors}; status=$?; echo $status >{status}",
            f"{{ {expected}; }} || exit 1",
        ]

    def _execute(self, script: list[str]) -> None:
        text = "\n".join(script)
        process = subprocess.Popen(
            ["bash", "-c", text], cwd=self.path, env=self._environment, start_new_session=True
        )
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 15)
            process.wait()

    def _check(self, number: int, command: Command) -> None:
        said, status = self._said / f"{number}", self._said / f"{number}.status"
        assert status.exists(), f"{command.place}: it did not end\n{command.text}"
        # A page has whole lines, a pipe has lines that fit.
        ended, output = int(status.read_text()), unwrapped(said.read_text()).splitlines()
        errors = unwrapped(said.with_suffix(".errors").read_text()).splitlines()
        assert ended in command.statuses, "\n".join(
            [f"{command.place}: status {ended}", command.text, *output, *errors]
        )
        if command.shown is not None:
            # What goes on is told to people who wait; a result or an error is told to all.
            came = [*output, *(line for line in errors if line.startswith(("error:", "hint:")))]
            shown = unwrapped("\n".join(command.shown)).splitlines()
            assert alike(shown, came), "\n".join(
                [
                    f"{command.place}: what is shown",
                    *map(shape, shown),
                    "is not what came",
                    *map(shape, came),
                ]
            )


def alike(shown: tuple[str, ...], said: list[str]) -> bool:
    """Whether lines are of the shape that is shown; ``...`` is any text, by itself any lines."""
    pattern = ""
    for line in shown:
        if line.strip() in ("...", "…"):
            pattern += r"(?:.*\n)*?"
        else:
            pattern += re.escape(shape(line)).replace(r"\.\.\.", ".*") + r"\n"
    return bool(re.fullmatch(pattern, "".join(shape(line) + "\n" for line in said)))


def shape(line: str) -> str:
    """A line without what differs from run to run: numbers, times, bounds, widths."""
    line = re.sub(r"─+", "─", line)
    line = re.sub(r"-?\d[\d,.]*(?:e-?\d+)?", "0", line.replace("≥", " "))
    line = re.sub(r"\b0 (?:ns|µs|ms|s|min|h)\b", "T", line)
    line = re.sub(r"\b(?:0 to )?T ~", "T", line)
    line = re.sub(r"(?:sample )?\bT\b(?: to T)?", "T", line.replace(" *", ""))
    # Where there is none, a dash stands for a figure.
    return re.sub(r"(?<= )(?:-|p0)(?=[ ,]|$)", "T", " ".join(line.split()))
