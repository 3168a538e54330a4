"""Platforms of a device under test: the machine itself, a container, or a virtual machine."""
