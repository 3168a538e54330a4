use crate::error::{Error, last_reason};
use dpdk_sys::MbufHead;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A packet that this thread owns. Goes back to its pool when it is dropped.
#[derive(Debug)]
#[repr(transparent)]
pub struct Mbuf(NonNull<dpdk_sys::rte_mbuf>);

const _: () = assert!(size_of::<Mbuf>() == size_of::<*mut dpdk_sys::rte_mbuf>());

// SAFETY: a packet belongs to whoever holds it; pools take packets from any thread.
unsafe impl Send for Mbuf {}

impl Mbuf {
    #[inline(always)]
    fn head(&self) -> &MbufHead {
        // SAFETY: a valid packet, which starts with these fields (proved in the shim).
        unsafe { self.0.cast::<MbufHead>().as_ref() }
    }

    /// Its bytes, as far as they lie in one piece: all of them unless frames are larger than a pool's room.
    #[inline(always)]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        let head = self.head();
        // SAFETY: the driver or `set_len` says that so many bytes are there.
        unsafe {
            let start = head.buf_addr.add(head.data_off.into());
            std::slice::from_raw_parts(start, head.data_len.into())
        }
    }

    /// Its bytes, to be changed.
    #[inline(always)]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let head = self.head();
        // SAFETY: as in `data`; the packet is borrowed mutably.
        unsafe {
            let start = head.buf_addr.add(head.data_off.into());
            std::slice::from_raw_parts_mut(start, head.data_len.into())
        }
    }

    /// The length of the whole frame, without its checksum.
    #[inline(always)]
    #[must_use]
    pub fn frame_len(&self) -> u32 {
        self.head().pkt_len
    }

    /// Makes the packet `len` bytes long; bytes that it did not have before are whatever they are.
    ///
    /// # Panics
    /// When `len` is more than the pool's room.
    #[inline]
    pub fn set_len(&mut self, len: u16) {
        // SAFETY: a valid packet.
        let room = unsafe { dpdk_sys::ts_room(self.0.as_ptr()) };
        assert!(len <= room, "a packet of {len} bytes in room for {room}");
        // SAFETY: a valid packet of our own.
        let head = unsafe { self.0.cast::<MbufHead>().as_mut() };
        head.pkt_len = len.into();
        head.data_len = len;
    }

    /// What the driver says of it: `RTE_MBUF_F_RX_*` and flags registered at run time.
    #[inline(always)]
    #[must_use]
    pub fn flags(&self) -> u64 {
        self.head().ol_flags
    }

    /// What was noted of it; anything at all where nothing was since it was received.
    #[inline(always)]
    #[must_use]
    pub fn mark(&self, mark: Mark) -> u32 {
        // SAFETY: DPDK gave this offset, aligned and within every packet.
        unsafe { self.0.cast::<u8>().add(mark.offset).cast::<u32>().read() }
    }

    /// Notes a number.
    #[inline(always)]
    pub fn set_mark(&mut self, mark: Mark, number: u32) {
        // SAFETY: as in `mark`; the packet is borrowed mutably.
        unsafe { self.0.cast::<u8>().add(mark.offset).cast::<u32>().write(number) };
    }

    /// A field that was registered at run time at this offset.
    #[inline(always)]
    pub(crate) fn dynamic_u64(&self, offset: usize) -> u64 {
        // SAFETY: DPDK gave this offset, aligned and within every packet.
        unsafe { self.0.cast::<u8>().add(offset).cast::<u64>().read() }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        let mut packet = self.0.as_ptr();
        // SAFETY: gives back a packet that is owned, once.
        unsafe { dpdk_sys::ts_free_bulk(&raw mut packet, 1) };
    }
}

/// Where a program notes a number in packets.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    offset: usize,
}

impl Mark {
    /// Registers the field, once a process or more often.
    ///
    /// # Errors
    /// When packets have no room for it.
    pub fn register() -> Result<Self, Error> {
        // SAFETY: takes a name of its own.
        let offset = unsafe { dpdk_sys::ts_mark_offset() };
        let offset = usize::try_from(offset).map_err(|_| Error::Mark { reason: last_reason() })?;
        Ok(Self { offset })
    }
}

/// Packets that are handled at once, in order; at most [`Burst::MOST`].
#[derive(Debug)]
pub struct Burst {
    packets: Box<[MaybeUninit<Mbuf>; Self::MOST]>,
    len: usize,
}

impl Burst {
    /// The largest burst.
    pub const MOST: usize = 512;

    /// An empty burst: the only allocation; everything below works in place.
    #[must_use]
    pub fn new() -> Self {
        Self { packets: Box::new([const { MaybeUninit::uninit() }; Self::MOST]), len: 0 }
    }

    /// How many packets there are.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The packets.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &[Mbuf] {
        // SAFETY: the first `len` are packets.
        unsafe { std::slice::from_raw_parts(self.packets.as_ptr().cast(), self.len) }
    }

    /// The packets, to be changed.
    #[inline(always)]
    pub fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.packets.as_mut_ptr().cast(), self.len) }
    }

    /// The packets in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Mbuf> {
        self.as_slice().iter()
    }

    /// The packets in order, to be changed.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Mbuf> {
        self.as_mut_slice().iter_mut()
    }

    /// Appends a packet; gives it back when the burst is full.
    ///
    /// # Errors
    /// The packet, when there is no room.
    #[inline]
    pub fn push(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        match self.spare().first_mut() {
            None => Err(packet),
            Some(room) => {
                room.write(packet);
                self.len += 1;
                Ok(())
            }
        }
    }

    /// Takes the packets out, one by one; those not taken are dropped.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Mbuf> + '_ {
        let taken = std::mem::take(&mut self.len);
        Drain { packets: &mut self.packets[..taken], next: 0 }
    }

    /// Gives all packets back to their pools and says how many there were.
    #[inline]
    pub fn clear(&mut self) -> usize {
        let len = std::mem::take(&mut self.len);
        if len > 0 {
            // SAFETY: the first `len` were packets; from now on they are not ours.
            unsafe { dpdk_sys::ts_free_bulk(self.packets.as_mut_ptr().cast(), len as u32) };
        }
        len
    }

    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<Mbuf>] {
        &mut self.packets[self.len..]
    }

    /// # Safety
    /// `more` packets were written to the spare room.
    pub(crate) unsafe fn grow(&mut self, more: usize) {
        self.len += more;
        assert!(self.len <= Self::MOST, "no more packets than there is room for");
    }

    /// Forgets the first `count` packets, which somebody else has taken, and moves up the others.
    ///
    /// # Safety
    /// They are owned by that somebody.
    pub(crate) unsafe fn taken(&mut self, count: usize) {
        assert!(count <= self.len, "no more packets are taken than there are");
        self.len -= count;
        if self.len > 0 {
            let start = self.packets.as_mut_ptr();
            // SAFETY: within the array; may overlap.
            unsafe { std::ptr::copy(start.add(count), start, self.len) };
        }
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.clear();
    }
}

struct Drain<'a> {
    packets: &'a mut [MaybeUninit<Mbuf>],
    next: usize,
}

impl Iterator for Drain<'_> {
    type Item = Mbuf;

    #[inline(always)]
    fn next(&mut self) -> Option<Mbuf> {
        let packet = self.packets.get(self.next)?;
        self.next += 1;
        // SAFETY: a packet that was not taken yet; the burst has forgotten it.
        Some(unsafe { packet.assume_init_read() })
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.by_ref().for_each(drop);
    }
}
