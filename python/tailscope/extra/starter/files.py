"""The files of ``tailscope init``: an experiment, a gate, its job, and what to do with them."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Literal, NamedTuple

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from tailscope.exceptions import UsageError
from tailscope.store.atomic import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FOLDER = "tail-latency"
"""Folder of the files, in the project."""
_HEADER = "# Every field, with its meaning and its values: `tailscope schema`.\n"


class Starter(NamedTuple):
    """A measurement, and the CI that its gate runs in."""

    fields: Mapping[str, object]
    """Fields of the experiment, by their names there."""
    service_levels: Sequence[str]
    """A term each."""
    ci: Literal["github", "gitlab"]

    def files(self) -> dict[str, str]:
        """The texts, by their paths in the project."""
        made = Environment(
            loader=PackageLoader("tailscope.extra.starter", ""),
            undefined=StrictUndefined,
            trim_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,  # noqa: S701 - no HTML
        )
        options = self.fields["dut_options"]
        assert isinstance(options, dict)
        needs_root = self.fields["wire"] == "veth"
        words = {
            "name": FOLDER,
            "folder": FOLDER,
            "ci": self.ci,
            "program": f"`{options['run'].split()[0]}`",
            "sudo": "sudo " if needs_root else "",
            # Root has another PATH.
            "as_root": 'sudo env "PATH=$PATH" ' if needs_root else "",
        }

        def text(template: str) -> str:
            return made.get_template(f"{template}.j2").render(words)

        job = {
            "github": {f".github/workflows/{FOLDER}.yml": "github.yml"},
            "gitlab": {f"{FOLDER}/gitlab.yml": "gitlab.yml"},
        }[self.ci]
        experiment = {
            "name": FOLDER,
            "service_levels": [*self.service_levels],
            "fixed": dict(self.fields),
            "repeats": 3,
        }
        gate = resources.files("tailscope.verdict") / "gate.sh"
        return {
            f"{FOLDER}/experiment.yaml": _HEADER + yaml.safe_dump(experiment, sort_keys=False),
            f"{FOLDER}/gate.sh": gate.read_text(),
            f"{FOLDER}/README.md": text("README.md"),
            **{path: text(template) for path, template in job.items()},
        }


def write(project: Path, files: Mapping[str, str]) -> None:
    """Write files into a project; none of them if another one is there already."""
    there = [path for path in files if _is_other(project / path, files[path])]
    if there:
        raise UsageError(
            f"{project / there[0]}: expected no file there",
            code="file-exists",
            hint="move it away, or give another folder",
        )
    for path, text in files.items():
        target = project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text)


def _is_other(path: Path, text: str) -> bool:
    """Whether something is there, and not what an interrupted command has written."""
    return path.exists() and not (path.is_file() and path.read_text(errors="replace") == text)
