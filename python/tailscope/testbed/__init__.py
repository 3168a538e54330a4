"""What a measurement runs on: cores, processes of the data plane, and the wires between them."""
