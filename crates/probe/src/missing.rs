//! Reason why a packet has no key.

/// The reason why a packet has no key.
pub(crate) enum Missing {
    /// The packet has no such bytes.
    NotThere,
    /// The bytes are beyond what the capture kept, which should be so many.
    Short(u32),
}
