//! A seeded simulator of traffic, device, interrupts and clocks that knows the truth.
