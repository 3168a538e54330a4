use crate::burst::{Burst, Mbuf};
use crate::error::{Error, last_reason};
use std::ffi::CString;
use std::ptr::NonNull;

/// Per-lcore packets that are at hand without touching the shared ring.
const CACHE: u32 = 256;
/// What DPDK keeps free in front of a packet.
const HEADROOM: u16 = dpdk_sys::RTE_PKTMBUF_HEADROOM as u16;

/// Memory for packets. Lives as long as the process: drivers keep packets of it.
#[derive(Clone, Copy, Debug)]
pub struct Mempool(NonNull<dpdk_sys::rte_mempool>);

// SAFETY: DPDK's pools are made to be shared between threads.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

impl Mempool {
    /// Makes a pool of `packets` packets, each with room for `bytes` bytes in one piece.
    ///
    /// # Errors
    /// When there is not enough memory, or the name is taken.
    pub fn new(name: &str, packets: u32, bytes: u16, socket: i32) -> Result<Self, Error> {
        let owned = CString::new(name).map_err(|_| Error::Text { got: name.into() })?;
        // SAFETY: the name is copied.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(
                owned.as_ptr(),
                packets,
                CACHE.min(packets * 2 / 3),
                0,
                bytes.saturating_add(HEADROOM),
                socket,
            )
        };
        NonNull::new(pool).map(Self).ok_or_else(|| Error::Pool {
            packets,
            bytes,
            reason: last_reason(),
        })
    }

    pub(crate) fn as_ptr(self) -> *mut dpdk_sys::rte_mempool {
        self.0.as_ptr()
    }

    /// Fills `burst` up to `count` packets, or leaves it as it is when there are not that many.
    #[inline]
    pub fn fill(self, burst: &mut Burst, count: usize) -> bool {
        let more = count.saturating_sub(burst.len());
        let spare = burst.spare();
        assert!(more <= spare.len(), "a burst has room for {}", Burst::MOST);
        // SAFETY: writes `more` valid packets to the spare room, or nothing.
        let code = unsafe {
            dpdk_sys::ts_alloc_bulk(self.as_ptr(), spare.as_mut_ptr().cast(), more as u32)
        };
        if code == 0 {
            // SAFETY: so many were written.
            unsafe { burst.grow(more) };
        }
        code == 0
    }

    /// Calls `f` once with each of all its packets. For filling in what stays the same.
    pub fn for_each(self, packets: u32, mut f: impl FnMut(&mut Mbuf)) {
        let mut taken = Vec::new();
        for _ in 0..packets {
            let mut burst = Burst::new();
            if !self.fill(&mut burst, 1) {
                break;
            }
            burst.iter_mut().for_each(&mut f);
            taken.push(burst);
        }
    }
}
