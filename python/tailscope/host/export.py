"""What needs a reboot or should outlive one, as text for the tools that keep such things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError
from tailscope.host.cpus import cpu_list
from tailscope.host.knobs.catalogue import KNOBS
from tailscope.host.knobs.knob import PerCpuFile

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus, Lasting
    from tailscope.host.machine import Machine

_GRUB = "/etc/default/grub.d/tailscope.cfg"
_SYSCTL = "/etc/sysctl.d/90-tailscope.conf"
_TMPFILES = "/etc/tmpfiles.d/tailscope.conf"


@dataclass(frozen=True)
class _Lasting:
    """What makes knobs last, by the way in which it does."""

    cpus: Cpus
    boot: list[str]
    sysctl: dict[str, str]
    sysfs: dict[str, str]
    tuned: dict[str, tuple[str, str]]
    advice: list[str]

    @property
    def head(self) -> list[str]:
        """Comments: where it comes from, and what is to be done by hand."""
        by_hand = [f"# by hand: {each}" for each in self.advice]
        return [f"# tailscope host export --cpus {cpu_list(self.cpus)}", *by_hand]


def export(machine: Machine, cpus: Cpus, name: str) -> str:
    """Write what should last."""
    if name not in FORMATS:
        raise UsageError(
            f"--format: got {name!r}, expected one of {', '.join(FORMATS)}", code="export-format"
        )
    return FORMATS[name](_collected(machine, cpus)) + "\n"


def _collected(machine: Machine, cpus: Cpus) -> _Lasting:
    found = _Lasting(cpus, [], {}, {}, {}, [])
    for knob in KNOBS:
        if knob.recommended(machine, cpus) is None:
            continue
        for each in knob.lasting(machine, cpus):
            if each.how == "advice" and not knob.is_good(machine, cpus):
                found.advice.append(f"{knob.name}: {each.value}")
            _collect(found, each)
        if isinstance(knob, PerCpuFile) and knob.tuned:
            found.tuned[knob.pattern.rpartition("/")[2]] = (knob.tuned, knob.want)
    return found


def _collect(found: _Lasting, each: Lasting) -> None:
    if each.how == "boot" and each.parameter not in found.boot:
        found.boot.append(each.parameter)
    if each.how == "sysctl":
        found.sysctl[each.name] = each.value
    if each.how == "sysfs":
        found.sysfs[each.name] = each.value


def _cmdline(found: _Lasting) -> str:
    return " ".join(found.boot)


def _grub(found: _Lasting) -> str:
    variable = "GRUB_CMDLINE_LINUX_DEFAULT"
    where = f"# {_GRUB}; then run update-grub and reboot"
    return "\n".join([*found.head, where, f'{variable}="${variable} {_cmdline(found)}"'])


def _tuned(found: _Lasting) -> str:
    """A profile; what its section ``[cpu]`` does is left out of ``[sysfs]``."""
    files = {
        path: text
        for path, text in found.sysfs.items()
        if path.rpartition("/")[2] not in found.tuned
    }
    devices = ",".join(f"cpu{cpu}" for cpu in found.cpus)
    sections = {
        "main": {"summary": f"low latency on CPUs {cpu_list(found.cpus)}"},
        "bootloader": {"cmdline_tailscope": f"+{_cmdline(found)}"},
        "sysctl": found.sysctl,
        "sysfs": files,
        "cpu": {"devices": devices, **dict(found.tuned.values()), "force_latency": "0"},
    }
    lines = [*found.head, "# /etc/tuned/tailscope/tuned.conf; then tuned-adm profile tailscope"]
    for section, options in sections.items():
        lines += ["", f"[{section}]", *(f"{name}={value}" for name, value in options.items())]
    return "\n".join(lines)


def _ansible(found: _Lasting) -> str:
    """A playbook of three files, each with what has to run when it changes."""
    import yaml

    sysctl = "\n".join(f"{name} = {value}" for name, value in found.sysctl.items())
    sysfs = "\n".join(f"w {path} - - - - {value}" for path, value in found.sysfs.items())
    files = {
        _GRUB: (_grub(found), "update-grub"),
        _SYSCTL: (sysctl, f"sysctl --load={_SYSCTL}"),
        _TMPFILES: (sysfs, f"systemd-tmpfiles --create {_TMPFILES}"),
    }
    play: dict[str, object] = {
        "name": f"Low latency on CPUs {cpu_list(found.cpus)}",
        "hosts": "all",
        "become": True,
        "tasks": [
            {
                "name": f"Write {path}",
                "ansible.builtin.copy": {
                    "dest": path,
                    "content": _Block(f"{content}\n"),
                    "mode": "0644",
                },
                "notify": f"Run {command}",
            }
            for path, (content, command) in files.items()
        ],
        "handlers": [
            {"name": f"Run {command}", "ansible.builtin.command": command}
            for _, command in files.values()
        ],
    }

    class Dumper(yaml.SafeDumper):
        """Blocks of text stay blocks."""

    def block(dumper: yaml.SafeDumper, text: _Block) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")

    Dumper.add_representer(_Block, block)
    head = [*found.head, "# ansible-playbook --inventory HOSTS FILE; then reboot"]
    width = 1 << 16
    body = yaml.dump([play], Dumper=Dumper, sort_keys=False, width=width, allow_unicode=True)
    return "\n".join([*head, body.rstrip()])


class _Block(str):
    """A text of several lines."""


FORMATS = {"cmdline": _cmdline, "grub": _grub, "tuned": _tuned, "ansible": _ansible}
"""What can be written."""
