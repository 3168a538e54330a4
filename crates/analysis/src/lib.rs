//! Matching of packets before and after a device, and exact figures of what happened in between.
