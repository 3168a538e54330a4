//! A packet socket on a link of the kernel, and the ring through which frames come (`TPACKET_V3`).

use crate::error::Error;
use crate::recorder::KEPT_BYTES;
use libc::{c_int, c_uint, c_void};
use probe::filter::Instruction;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// 32 MiB: about 160 000 frames of which 128 bytes are kept.
const BLOCKS: usize = 128;
const BLOCK_BYTES: usize = 256 * 1024;
/// The kernel hands over a block that is not full after this time.
const HAND_OVER: Duration = Duration::from_millis(10);
/// Ethernet addresses, behind which the kernel takes a VLAN tag out of the frame.
const TAG_AT: usize = 12;
const TAG_BYTES: usize = 4;
const VLAN: u16 = 0x8100;
/// `BPF_RET | BPF_K`: accept the first bytes of each frame, as many as the constant says.
const ACCEPT: u16 = 0x06;
/// `BPF_LD | BPF_H | BPF_ABS` of `SKF_AD_OFF + SKF_AD_PKTTYPE`: which way a frame goes.
const LOAD_WAY: Instruction = Instruction { code: 0x28, jt: 0, jf: 0, k: 0xffff_f004 };
/// `BPF_JMP | BPF_JEQ | BPF_K`: skip the next instruction if it leaves (`PACKET_OUTGOING`).
const SKIP_IF_LEAVING: Instruction = Instruction { code: 0x15, jt: 1, jf: 0, k: 4 };

/// Accepts the first bytes of a frame.
fn accept(bytes: u32) -> Instruction {
    Instruction { code: ACCEPT, jt: 0, jf: 0, k: bytes }
}

/// What is heard of a link.
#[derive(Clone, Debug, Default)]
pub struct Hearing {
    /// The card takes times, where it does; else the kernel.
    pub by_card: bool,
    /// Frames that leave by the link; else those that come in.
    pub leaving: bool,
    /// A program that accepts frames; an empty one accepts all.
    pub filter: Vec<Instruction>,
}

impl Hearing {
    /// Returns a program that accepts the first bytes of what is to be heard.
    fn program(&self) -> Vec<Instruction> {
        let way = [LOAD_WAY, SKIP_IF_LEAVING, accept(0)];
        let mut program = if self.leaving { way.to_vec() } else { Vec::new() };
        let kept = accept(KEPT_BYTES as u32);
        if self.filter.is_empty() {
            program.push(kept);
        }
        program.extend(self.filter.iter().map(|instruction| match *instruction {
            Instruction { code: ACCEPT, k: 1.., .. } => kept,
            other => other,
        }));
        program
    }
}

/// A frame in the ring.
#[derive(Debug)]
pub struct Frame<'a> {
    /// When it arrived, in ns, on the clock that took the time.
    pub time_ns: u64,
    /// Whether the card took the time; else the kernel did.
    pub by_card: bool,
    /// The frame's length, a VLAN tag included.
    pub len: u32,
    /// The bytes kept, without the tag.
    data: &'a [u8],
    tag: Option<[u8; TAG_BYTES]>,
}

impl Frame<'_> {
    /// Copies the bytes kept as they were on the wire, and says how many there are.
    pub fn copy(&self, kept: &mut [u8; KEPT_BYTES]) -> usize {
        let at = TAG_AT.min(self.data.len());
        let tag = self.tag.as_ref().map_or(&[][..], |tag| tag);
        let mut copied = 0;
        for part in [&self.data[..at], tag, &self.data[at..]] {
            let room = &mut kept[copied..];
            let fits = part.len().min(room.len());
            room[..fits].copy_from_slice(&part[..fits]);
            copied += fits;
        }
        copied
    }
}

/// Frames that the kernel counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Those that came, dropped ones included.
    pub received: u64,
    /// Those for which the ring had no room.
    pub dropped: u64,
}

/// What is heard of one link.
pub struct Ring {
    link: String,
    socket: OwnedFd,
    blocks: NonNull<u8>,
    /// The block that the kernel hands over next.
    next: usize,
    counted: Counted,
}

// SAFETY: the mapped ring belongs to this value alone; the kernel shares it by atomic words.
unsafe impl Send for Ring {}

impl Ring {
    /// Listens on a link.
    pub fn open(link: &str, hearing: &Hearing) -> Result<Self, Error> {
        let failed = |action| move |source| Error::Socket { link: link.to_owned(), action, source };
        let index = index_of(link).map_err(failed("find the link"))?;
        // SAFETY: makes a socket that receives nothing until it is bound.
        let socket =
            unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let socket = checked(socket).map_err(failed("open a packet socket"))?;
        // SAFETY: a new descriptor, of which nobody else knows.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        prepare(&socket, hearing).map_err(failed("prepare a packet socket"))?;
        let blocks = map(&socket).map_err(failed("map a packet socket"))?;
        let ring =
            Self { link: link.to_owned(), socket, blocks, next: 0, counted: Counted::default() };
        hear_all(&ring.socket, index).map_err(failed("hear frames for others"))?;
        bind(&ring.socket, index).map_err(failed("listen"))?;
        Ok(ring)
    }

    /// Waits for frames, or for a while.
    pub fn wait(&self, most: Duration) -> Result<(), Error> {
        let mut poll =
            libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which outlives the call.
        match checked(unsafe { libc::poll(&raw mut poll, 1, most.as_millis() as c_int) }) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(self.failed("listen", error))
            }
            _ if poll.revents & (libc::POLLERR | libc::POLLNVAL) != 0 => {
                Err(self.failed("listen", self.pending_error()))
            }
            _ => Ok(()),
        }
    }

    /// Shows each frame of the blocks that are there, and gives these back to the kernel.
    pub fn drain(&mut self, mut each: impl FnMut(Frame<'_>)) {
        loop {
            // SAFETY: `next` is below BLOCKS, so that the block lies within the ring.
            let block = unsafe { self.blocks.add(self.next * BLOCK_BYTES) };
            let header = block.cast::<libc::tpacket_block_desc>().as_ptr();
            // SAFETY: the kernel writes this word as a whole, and reads it so.
            let status = unsafe { AtomicU32::from_ptr(&raw mut (*header).hdr.bh1.block_status) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return;
            }
            // SAFETY: the block is ours until its status says otherwise.
            unsafe { show(block, &mut each) };
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % BLOCKS;
        }
    }

    /// Listens no longer. What came until now is handed over soon.
    pub fn close_ears(&self) -> Result<(), Error> {
        attach(&self.socket, &[accept(0)]).map_err(|source| self.failed("stop listening", source))
    }

    /// Reads what the kernel counted until now.
    pub fn count(&mut self) -> Result<Counted, Error> {
        // Reading sets the kernel's numbers back.
        let mut news = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut size = size_of_val(&news) as libc::socklen_t;
        // SAFETY: the structure of this option, and its size.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut news).cast::<c_void>(),
                &raw mut size,
            )
        };
        checked(done).map_err(|source| self.failed("count frames", source))?;
        self.counted.received += u64::from(news.tp_packets);
        self.counted.dropped += u64::from(news.tp_drops);
        Ok(self.counted)
    }

    fn pending_error(&self) -> io::Error {
        let (mut code, mut size): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
        // SAFETY: a word for the option, and its size.
        unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut code).cast::<c_void>(),
                &raw mut size,
            )
        };
        io::Error::from_raw_os_error(code)
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Socket { link: self.link.clone(), action, source }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: maps exactly this; nobody borrows from it any more.
        unsafe { libc::munmap(self.blocks.as_ptr().cast::<c_void>(), BLOCKS * BLOCK_BYTES) };
    }
}

/// Shows each frame of a block.
///
/// # Safety
/// The kernel has filled the block and handed it over.
unsafe fn show(block: NonNull<u8>, each: &mut impl FnMut(Frame<'_>)) {
    // SAFETY: as promised; all offsets in it are the kernel's, and stay within the block.
    unsafe {
        let block_header = (*block.cast::<libc::tpacket_block_desc>().as_ptr()).hdr.bh1;
        let mut at = block.add(block_header.offset_to_first_pkt as usize);
        for _ in 0..block_header.num_pkts {
            let header = at.cast::<libc::tpacket3_hdr>().read();
            let start = at.add(usize::from(header.tp_mac)).as_ptr();
            let data = std::slice::from_raw_parts(start, header.tp_snaplen as usize);
            let tag = tag_of(&header);
            each(Frame {
                time_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
                by_card: header.tp_status & libc::TP_STATUS_TS_RAW_HARDWARE != 0,
                len: header.tp_len + tag.map_or(0, |tag| tag.len() as u32),
                data,
                tag,
            });
            at = at.add(header.tp_next_offset as usize);
        }
    }
}

/// The VLAN tag that the kernel has taken out of a frame.
fn tag_of(header: &libc::tpacket3_hdr) -> Option<[u8; TAG_BYTES]> {
    if header.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let kind = match header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
        0 => VLAN,
        _ => header.hv1.tp_vlan_tpid,
    };
    let ([kind_high, kind_low], tci) = (kind.to_be_bytes(), header.hv1.tp_vlan_tci as u16);
    let [high, low] = tci.to_be_bytes();
    Some([kind_high, kind_low, high, low])
}

fn index_of(link: &str) -> io::Result<c_uint> {
    let name = CString::new(link).map_err(io::Error::other)?;
    // SAFETY: a string that ends with 0.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Says what the socket shall hear, who takes times, and how large its ring is.
fn prepare(socket: &OwnedFd, hearing: &Hearing) -> io::Result<()> {
    let version = libc::tpacket_versions::TPACKET_V3 as c_int;
    set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
    set(socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &i32::from(!hearing.leaving))?;
    let (takes, shows) = if hearing.by_card {
        (libc::SOF_TIMESTAMPING_RX_HARDWARE, libc::SOF_TIMESTAMPING_RAW_HARDWARE)
    } else {
        (libc::SOF_TIMESTAMPING_RX_SOFTWARE, libc::SOF_TIMESTAMPING_SOFTWARE)
    };
    // The kernel takes times as early as it can only while a socket asks for that.
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &(takes | shows))?;
    set(socket, libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &shows)?;
    attach(socket, &hearing.program())?;
    let ring = libc::tpacket_req3 {
        tp_block_size: BLOCK_BYTES as c_uint,
        tp_block_nr: BLOCKS as c_uint,
        // What the kernel wants to know, although frames take as much room as they need.
        tp_frame_size: 2048,
        tp_frame_nr: (BLOCK_BYTES / 2048 * BLOCKS) as c_uint,
        tp_retire_blk_tov: HAND_OVER.as_millis() as c_uint,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &ring)
}

/// Accepts what a program accepts.
fn attach(socket: &OwnedFd, program: &[Instruction]) -> io::Result<()> {
    let filter =
        |&Instruction { code, jt, jf, k }: &Instruction| libc::sock_filter { code, jt, jf, k };
    let mut rules: Vec<_> = program.iter().map(filter).collect();
    let len = u16::try_from(rules.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: rules.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn map(socket: &OwnedFd) -> io::Result<NonNull<u8>> {
    // SAFETY: maps the whole ring that was asked for, wherever there is room.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            BLOCKS * BLOCK_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            socket.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(mapped.cast()).expect("a mapping is nowhere near 0"))
}

/// Has a card pass on what is for other machines, as long as the socket is there.
fn hear_all(socket: &OwnedFd, index: c_uint) -> io::Result<()> {
    let wanted = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &wanted)
}

fn bind(socket: &OwnedFd, index: c_uint) -> io::Result<()> {
    // SAFETY: 0 is a value for every field.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: an address of this family, and its size.
    let done = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast::<libc::sockaddr>(), size)
    };
    checked(done).map(drop)
}

fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let (value, size) = (std::ptr::from_ref(value).cast::<c_void>(), size_of::<T>());
    // SAFETY: the value outlives the call, and has this size.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, value, size as libc::socklen_t)
    };
    checked(done).map(drop)
}

fn checked(done: c_int) -> io::Result<c_int> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame<'a>(data: &'a [u8], tag: Option<[u8; TAG_BYTES]>) -> Frame<'a> {
        Frame { time_ns: 0, by_card: false, len: data.len() as u32, data, tag }
    }

    #[test]
    fn a_tag_stands_where_it_was_on_the_wire() {
        let data: Vec<u8> = (0..60).collect();
        let mut kept = [0; KEPT_BYTES];
        assert_eq!(frame(&data, None).copy(&mut kept), 60);
        assert_eq!(kept[..60], data);
        assert_eq!(frame(&data, Some([0x81, 0, 0, 7])).copy(&mut kept), 64);
        assert_eq!(kept[..12], data[..12]);
        assert_eq!(kept[12..16], [0x81, 0, 0, 7]);
        assert_eq!(kept[16..64], data[12..]);
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let data = [9; KEPT_BYTES];
        let mut kept = [0; KEPT_BYTES];
        assert_eq!(frame(&data, Some([1; TAG_BYTES])).copy(&mut kept), KEPT_BYTES);
        assert_eq!(frame(&data[..3], Some([1; TAG_BYTES])).copy(&mut kept), 7);
    }

    #[test]
    fn a_filter_keeps_as_much_of_a_frame_and_asks_which_way_it_goes() {
        let all = Hearing::default().program();
        assert_eq!(all, [accept(KEPT_BYTES as u32)]);
        let load = Instruction { code: 0x28, jt: 0, jf: 0, k: 12 };
        let filter = vec![load, accept(262_144), accept(0)];
        let program = Hearing { leaving: true, filter, ..Hearing::default() }.program();
        let kept = accept(KEPT_BYTES as u32);
        let expected = [LOAD_WAY, SKIP_IF_LEAVING, accept(0), load, kept, accept(0)];
        assert_eq!(program, expected);
    }

    #[test]
    fn a_link_that_is_not_there_is_named() {
        let error = Ring::open("no-such-link", &Hearing::default()).err().expect("there is none");
        assert!(error.to_string().starts_with("no-such-link: cannot find the link: "), "{error}");
    }
}
