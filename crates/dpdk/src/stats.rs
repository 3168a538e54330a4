use crate::error::{Error, reason};
use crate::port::Port;
use std::ffi::CStr;

/// What a port has counted since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that arrived while the receive ring was full.
    pub rx_missed: u64,
    /// Packets that arrived damaged.
    pub rx_errors: u64,
    /// Packets that arrived while the pool was empty.
    pub rx_nombuf: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
}

impl Port {
    /// The counters that every driver has.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn stats(self) -> Result<Stats, Error> {
        let mut stats = dpdk_sys::rte_eth_stats::default();
        // SAFETY: writes to a struct of our own.
        let code = unsafe { dpdk_sys::rte_eth_stats_get(self.id(), &raw mut stats) };
        self.check("reading its counters", code)?;
        Ok(Stats {
            rx_packets: stats.ipackets,
            tx_packets: stats.opackets,
            rx_bytes: stats.ibytes,
            tx_bytes: stats.obytes,
            rx_missed: stats.imissed,
            rx_errors: stats.ierrors,
            rx_nombuf: stats.rx_nombuf,
            tx_errors: stats.oerrors,
        })
    }

    /// The counters that only this driver has, by name; those that are 0 are left out.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn xstats(self) -> Result<Vec<(String, u64)>, Error> {
        let failed = |code: i32| Error::Port {
            port: self.id(),
            call: "reading its extended counters",
            reason: reason(code),
        };
        // SAFETY: with no room given it only says how many there are.
        let count =
            unsafe { dpdk_sys::rte_eth_xstats_get_names(self.id(), std::ptr::null_mut(), 0) };
        let room = u32::try_from(count).map_err(|_| failed(count))?;
        let mut names = vec![dpdk_sys::rte_eth_xstat_name::default(); room as usize];
        let mut values = vec![dpdk_sys::rte_eth_xstat::default(); room as usize];
        // SAFETY: both have room for `room` entries.
        let (named, valued) = unsafe {
            (
                dpdk_sys::rte_eth_xstats_get_names(self.id(), names.as_mut_ptr(), room),
                dpdk_sys::rte_eth_xstats_get(self.id(), values.as_mut_ptr(), room),
            )
        };
        if named != count || valued != count {
            return Err(failed(named.min(valued)));
        }
        let name = |id: u64| {
            // SAFETY: DPDK writes a string that ends within the array.
            let name = unsafe { CStr::from_ptr(names[id as usize].name.as_ptr()) };
            name.to_string_lossy().into_owned()
        };
        let counted = values.iter().filter(|entry| entry.value > 0);
        Ok(counted.map(|entry| (name(entry.id), entry.value)).collect())
    }
}
