"""Export of settings that need or should outlive a reboot, as text for the tools that keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.host.cpus import cpu_list
from tailscope.host.knobs.catalogue import KNOBS
from tailscope.host.knobs.knob import PerCpuFile
from tailscope.units import refuse_unknown

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus, Lasting
    from tailscope.host.machine import Machine

_GRUB = "/etc/default/grub.d/tailscope.cfg"
_SYSCTL = "/etc/sysctl.d/90-tailscope.conf"
_TMPFILES = "/etc/tmpfiles.d/tailscope.conf"


@dataclass(frozen=True)
class _Lasting:
    """Lasting settings, by the tool that keeps them."""

    cpus: Cpus
    boot: list[str]
    sysctl: dict[str, str]
    sysfs: dict[str, str]
    tuned: dict[str, tuple[str, str]]
    advice: list[str]

    @property
    def head(self) -> list[str]:
        """Return the comments at the top: the command, and the steps to do by hand."""
        by_hand = [f"# by hand: {each}" for each in self.advice]
        return [f"# tailscope host export --cpus {cpu_list(self.cpus)}", *by_hand]


def export(machine: Machine, cpus: Cpus, name: str) -> str:
    """Write the settings that should outlive a reboot, in one of `FORMATS`."""
    refuse_unknown("--format", name, FORMATS, "export-format")
    return FORMATS[name](_collected(machine, cpus)) + "\n"


def _collected(machine: Machine, cpus: Cpus) -> _Lasting:
    lasting = _Lasting(cpus, [], {}, {}, {}, [])
    for knob in KNOBS:
        if knob.recommended(machine, cpus) is None:
            continue
        for setting in knob.lasting(machine, cpus):
            if setting.how == "advice" and not knob.is_good(machine, cpus):
                lasting.advice.append(f"{knob.name}: {setting.value}")
            _collect(lasting, setting)
        if isinstance(knob, PerCpuFile) and knob.tuned:
            lasting.tuned[knob.pattern.rpartition("/")[2]] = (knob.tuned, knob.want)
    return lasting


def _collect(lasting: _Lasting, setting: Lasting) -> None:
    if setting.how == "boot" and setting.parameter not in lasting.boot:
        lasting.boot.append(setting.parameter)
    if setting.how == "sysctl":
        lasting.sysctl[setting.name] = setting.value
    if setting.how == "sysfs":
        lasting.sysfs[setting.name] = setting.value


def _cmdline(lasting: _Lasting) -> str:
    return " ".join(lasting.boot)


def _grub(lasting: _Lasting) -> str:
    variable = "GRUB_CMDLINE_LINUX_DEFAULT"
    where = f"# {_GRUB}; then run update-grub and reboot"
    return "\n".join([*lasting.head, where, f'{variable}="${variable} {_cmdline(lasting)}"'])


def _tuned(lasting: _Lasting) -> str:
    """Write a TuneD profile; ``[sysfs]`` omits what its section ``[cpu]`` sets."""
    files = {
        path: text
        for path, text in lasting.sysfs.items()
        if path.rpartition("/")[2] not in lasting.tuned
    }
    devices = ",".join(f"cpu{cpu}" for cpu in lasting.cpus)
    sections = {
        "main": {"summary": f"low latency on CPUs {cpu_list(lasting.cpus)}"},
        "bootloader": {"cmdline_tailscope": f"+{_cmdline(lasting)}"},
        "sysctl": lasting.sysctl,
        "sysfs": files,
        "cpu": {"devices": devices, **dict(lasting.tuned.values()), "force_latency": "0"},
    }
    lines = [*lasting.head, "# /etc/tuned/tailscope/tuned.conf; then tuned-adm profile tailscope"]
    for section, options in sections.items():
        lines += ["", f"[{section}]", *(f"{name}={value}" for name, value in options.items())]
    return "\n".join(lines)


def _ansible(lasting: _Lasting) -> str:
    """Write an Ansible playbook of three files, each with the handler that runs when it changes."""
    import yaml

    sysctl = "\n".join(f"{name} = {value}" for name, value in lasting.sysctl.items())
    sysfs = "\n".join(f"w {path} - - - - {value}" for path, value in lasting.sysfs.items())
    files = {
        _GRUB: (_grub(lasting), "update-grub"),
        _SYSCTL: (sysctl, f"sysctl --load={_SYSCTL}"),
        _TMPFILES: (sysfs, f"systemd-tmpfiles --create {_TMPFILES}"),
    }
    play: dict[str, object] = {
        "name": f"Low latency on CPUs {cpu_list(lasting.cpus)}",
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
        """A YAML dumper that keeps blocks of text as blocks."""

    def block(dumper: yaml.SafeDumper, text: _Block) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")

    Dumper.add_representer(_Block, block)
    head = [*lasting.head, "# ansible-playbook --inventory HOSTS FILE; then reboot"]
    width = 1 << 16
    body = yaml.dump([play], Dumper=Dumper, sort_keys=False, width=width, allow_unicode=True)
    return "\n".join([*head, body.rstrip()])


class _Block(str):
    """A text of several lines."""


FORMATS = {"cmdline": _cmdline, "grub": _grub, "tuned": _tuned, "ansible": _ansible}
"""Functions that write each format."""
