"""What a device under test runs on: the machine itself, a container, or a virtual machine."""
