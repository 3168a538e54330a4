"""The testbed of a measurement: cores, processes of the data plane, and wires between them."""
