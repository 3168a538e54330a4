use crate::burst::{Burst, Mbuf};
use crate::error::{Error, last_reason};
use std::ffi::{CString, c_char};
use std::ptr::{self, NonNull};

/// Per-lcore packets that are at hand without touching the shared ring.
const CACHE: u32 = 256;
/// What DPDK keeps free in front of a packet.
const HEADROOM: u16 = dpdk_sys::RTE_PKTMBUF_HEADROOM as u16;
/// The size of a large page, and what such memory begins at a multiple of.
const LARGE: usize = 2 << 20;

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

    /// Makes a pool as [`new`](Self::new) does, for drivers that copy packets: in pages as large as
    /// the kernel gives. Without hugepages, DPDK's own memory is a file, and each 4 KiB of it cost a
    /// page fault.
    ///
    /// # Errors
    /// When there is not enough memory, or the name is taken.
    pub fn copied(name: &str, packets: u32, bytes: u16, socket: i32) -> Result<Self, Error> {
        let owned = CString::new(name).map_err(|_| Error::Text { got: name.into() })?;
        let each =
            size_of::<dpdk_sys::rte_mbuf>() as u32 + u32::from(bytes.saturating_add(HEADROOM));
        // No device reads the packets by itself.
        let flags = dpdk_sys::RTE_MEMPOOL_F_NO_IOVA_CONTIG;
        // SAFETY: the name is copied.
        let pool = unsafe {
            dpdk_sys::rte_mempool_create_empty(
                owned.as_ptr(),
                packets,
                each,
                CACHE.min(packets * 2 / 3),
                size_of::<dpdk_sys::rte_pktmbuf_pool_private>() as u32,
                socket,
                flags,
            )
        };
        // SAFETY: asks for a number.
        let room = unsafe { dpdk_sys::rte_mempool_calc_obj_size(each, flags, ptr::null_mut()) };
        // It aligns the first packet.
        let memory = large_pages((packets as usize + 1) * room as usize);
        let pool = NonNull::new(pool).zip(memory).filter(|(pool, (memory, len))| {
            let (pool, none) = (pool.as_ptr(), ptr::null_mut());
            let ops = dpdk_sys::RTE_MBUF_DEFAULT_MEMPOOL_OPS.as_ptr().cast();
            let init = Some(dpdk_sys::rte_pktmbuf_init as _);
            // SAFETY: the pool has nothing yet; the memory is its own from now on, and stays.
            unsafe {
                dpdk_sys::rte_mempool_set_ops_byname(pool, ops, none) == 0
                    && {
                        dpdk_sys::rte_pktmbuf_pool_init(pool, none);
                        dpdk_sys::rte_mempool_populate_virt(pool, *memory, *len, LARGE, None, none)
                            == packets as i32
                    }
                    && dpdk_sys::rte_mempool_obj_iter(pool, init, none) == packets
            }
        });
        pool.map(|(pool, _)| Self(pool)).ok_or_else(|| Error::Pool {
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

/// Maps at least so many bytes for as long as the process lives, in large pages where the kernel
/// gives some to who asks for them.
fn large_pages(bytes: usize) -> Option<(*mut c_char, usize)> {
    let len = bytes.next_multiple_of(LARGE);
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: maps new memory; what lies in front of the first large page is never touched.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), len + LARGE, access, kind, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: fewer bytes than were mapped beyond `len`.
    let memory = unsafe { mapped.byte_add(mapped.align_offset(LARGE)) };
    // SAFETY: of that memory. A kernel without large pages refuses, and gives small ones.
    unsafe { libc::madvise(memory, len, libc::MADV_HUGEPAGE) };
    Some((memory.cast(), len))
}
