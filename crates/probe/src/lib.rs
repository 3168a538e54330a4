//! Frame headers, the probe payload, packet keys and send schedules.
