"""``tailscope host``: how this machine is set, and how it should be."""

COMMANDS = {
    "audit": "Report the value of each knob, and the value it should have; change nothing.",
    "apply": "Set the knobs of the running machine, as root, until `host revert`.",
    "revert": "Restore exactly the settings before `host apply`, as root; also after a crash.",
    "export": "Write settings that need a reboot or should last, for GRUB, TuneD or Ansible.",
}
"""The commands, by name, with a summary of each."""
