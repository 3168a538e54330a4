"""The causes that keep a CPU from its work, and the packets that waited for them."""
