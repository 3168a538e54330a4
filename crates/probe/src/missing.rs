//! Why a packet has no key.

/// Why there is no key.
pub(crate) enum Missing {
    /// The packet has no such bytes.
    NotThere,
    /// It had them, but the capture should have kept so many bytes of it.
    Short(u32),
}
