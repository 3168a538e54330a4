"""The package of this machine as files of a guest, in which it runs as it does here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import tailscope
from tailscope.testbed.process import find_binary
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterable

_PACKAGES = (
    *("annotated_doc", "jinja2", "markupsafe", "msgspec", "numpy", "numpy.libs", "pyroute2"),
    *("rich", "shellingham", "typer", "typing_extensions.py", "yaml"),
)
"""What a measurement imports."""
_SITE, _LIBRARY = (Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib"))

TOOLS = ("ethtool", "setpriv", "taskset")
"""Programs in place of smaller ones of busybox, which have the same path."""


def tools(folder: Path) -> Path:
    """Copy the tools into a folder of their own."""
    folder.mkdir()
    for tool in TOOLS:
        path = which(tool)
        assert path is not None
        shutil.copy(path, folder)
    return folder


def environment(folder: Path) -> list[str]:
    """Return the variables by which a guest finds the package, and tools in their folder."""
    package = Path(tailscope.__file__).parent.parent
    return [f"PYTHONPATH={package}:{_SITE}", f"PATH={folder}:/usr/bin:/usr/sbin:/bin:/sbin"]


def python_files(programs: Iterable[Path] = ()) -> list[Path]:
    """Return the package, what it imports, and the libraries of both and of other programs."""
    folders = [_LIBRARY, Path(tailscope.__file__).parent, *(_SITE / name for name in _PACKAGES)]
    folders = [folder for folder in folders if folder.exists()]
    extensions = [*(_LIBRARY / "lib-dynload").glob("*.so"), *(_SITE / "numpy").rglob("*.so")]
    return [*folders, *libraries([*extensions, *programs, find_binary()[0]])]


def libraries(programs: Iterable[Path]) -> list[Path]:
    """Return the libraries that programs are linked with, links on the way included."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    paths = {Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}
    return sorted(path for path in paths | {path.resolve() for path in paths} if path.exists())
