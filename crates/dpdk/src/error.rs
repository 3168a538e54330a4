use std::ffi::CStr;

/// What DPDK refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment could not be set up.
    #[error("DPDK did not start with {args:?}: {reason}")]
    Eal {
        /// The options as given.
        args: Vec<String>,
        /// What DPDK says.
        reason: String,
    },
    /// A call failed.
    #[error("port {port}: {call}: {reason}")]
    Port {
        /// The port's number.
        port: u16,
        /// The function that failed.
        call: &'static str,
        /// What DPDK says.
        reason: String,
    },
    /// Memory for packets could not be had.
    #[error("no memory for {packets} packets of {bytes} bytes: {reason}")]
    Pool {
        /// Packets asked for.
        packets: u32,
        /// Room for each.
        bytes: u16,
        /// What DPDK says.
        reason: String,
    },
    /// A table of routes could not be made or added to.
    #[error("route table of {routes} routes: {reason}")]
    Routes {
        /// Routes that it shall hold, or holds.
        routes: u32,
        /// What DPDK says.
        reason: String,
    },
    /// Packets have no room for a mark.
    #[error("no room for a mark in packets: {reason}")]
    Mark {
        /// What DPDK says.
        reason: String,
    },
    /// An lcore could not be started.
    #[error("lcore {lcore}: {reason}")]
    Lcore {
        /// The lcore's number.
        lcore: u32,
        /// What DPDK says.
        reason: String,
    },
    /// A text holds a zero byte.
    #[error("{got:?} holds a zero byte")]
    Text {
        /// The text as given.
        got: String,
    },
}

impl Error {
    /// What can be done about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Eal { .. } => Some(
                "the lines above are DPDK's own: a socket that is in use, a --file-prefix that \
                 another process has, a core or device that is not there",
            ),
            Self::Pool { .. } | Self::Routes { .. } => {
                Some("give DPDK more memory: -m MEGABYTES before --")
            }
            _ => None,
        }
    }
}

/// The text of one of DPDK's error numbers, of either sign.
pub(crate) fn reason(code: i32) -> String {
    // SAFETY: rte_strerror returns a valid string for every number; it is copied at once.
    let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(code.saturating_abs())) };
    text.to_string_lossy().into_owned()
}

/// The text of the error number that DPDK has left behind for this thread.
pub(crate) fn last_reason() -> String {
    // SAFETY: reads a thread-local number.
    reason(unsafe { dpdk_sys::ts_errno() })
}
