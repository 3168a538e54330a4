//! UDP sockets: packets in batches, each with the times that the kernel took, hop limit and class of service.

use crate::error::Error;
use libc::{c_int, c_void, cmsghdr, mmsghdr, msghdr, sockaddr_storage, socklen_t};
use std::cell::Cell;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Packets of a batch, at most.
pub const BATCH: usize = 32;
/// Bytes of the longest packet that is taken: that of a jumbo frame.
pub const ROOM: usize = 9216;
/// Words of 8 bytes for what comes beside a packet.
const BESIDE: usize = 48;
/// Bytes that wait in a socket; the system may allow fewer.
const WAITING: c_int = 8 << 20;
/// One part in so many is kept for stamps: the kernel drops those for which a socket full of packets has no
/// room. It counts packets that were taken as there until they were a quarter of it, and more come meanwhile.
const FOR_STAMPS: c_int = 2;
const STAMPS: u32 = libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_RX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_CMSG;
const CARD_STAMPS: u32 = libc::SOF_TIMESTAMPING_RAW_HARDWARE
    | libc::SOF_TIMESTAMPING_RX_HARDWARE
    | libc::SOF_TIMESTAMPING_TX_HARDWARE
    | libc::SOF_TIMESTAMPING_OPT_CMSG;
/// `SCM_TSTAMP_SCHED`: the stamp is of the moment at which a packet came to the queue of its interface.
const AT_QUEUE: u32 = 1;
/// `SO_TXTIME` and `SCM_TXTIME`: a packet comes with the time at which a queue is to let it leave.
const TXTIME: c_int = 61;
/// `SO_EE_ORIGIN_TIMESTAMPING`: what comes by the queue of errors is a stamp.
const OF_STAMP: u8 = 4;
/// `SO_EE_ORIGIN_TXTIME` and `SO_EE_CODE_TXTIME_INVALID_PARAM`: the queue of the interface takes no times of this clock.
const OF_TIME: (u8, u8) = (6, 1);
/// `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6`: somebody on the way, or the other end, says it.
const OF_OTHERS: [u8; 2] = [2, 3];
/// Hop limit of packets that do not tell it.
const UNKNOWN_TTL: u8 = 255;

/// What comes beside a packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    /// When the kernel saw it: on its way in, or of a stamp, on its way out.
    pub kernel_ns: Option<u64>,
    /// When the card saw it, by its own clock.
    pub card_ns: Option<u64>,
    /// Hop limit.
    pub ttl: u8,
    /// Class of service and congestion bits.
    pub tos: u8,
    /// Packets for which the socket had no room until then; the kernel says it once there are some.
    pub dropped: Option<u32>,
    /// It is one that was sent, and comes back with the time at which it left,
    pub is_returned: bool,
    /// or at which it came to the queue of its interface.
    pub is_at_queue: bool,
    /// A queue dropped it, as its time is of another clock than the queue's.
    pub is_untimely: bool,
    /// It did not come through: the number of the error that somebody reported.
    pub refused: Option<i32>,
    local: Option<Local>,
}

/// The address to which a packet came, as the kernel takes it back for an answer.
#[derive(Clone, Copy, Debug)]
enum Local {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

/// A packet of a batch.
pub struct Packet {
    bytes: Box<[u8; ROOM]>,
    /// Bytes of it; more than there is room for if it was cut off.
    pub len: usize,
    name: sockaddr_storage,
    name_len: socklen_t,
    control: [u64; BESIDE],
    control_len: usize,
    pub beside: Beside,
}

impl Packet {
    fn new() -> Self {
        // SAFETY: a structure of numbers.
        let name = unsafe { zeroed() };
        Self {
            bytes: Box::new([0; ROOM]),
            len: 0,
            name,
            name_len: 0,
            control: [0; BESIDE],
            control_len: 0,
            beside: Beside::default(),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.min(ROOM)]
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// Who sent it.
    pub fn from(&self) -> Option<SocketAddr> {
        address(&self.name)
    }

    /// Makes it one to its sender, from the address to which it came, with a class of service.
    pub fn answer(&mut self, dscp: u8) {
        let is_v6 = c_int::from(self.name.ss_family) == libc::AF_INET6;
        let is_mapped = self.from().is_some_and(|from| from.is_ipv4());
        let class = c_int::from(dscp << 2);
        self.control_len = 0;
        match self.beside.local {
            Some(Local::V4(local)) => self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &local),
            Some(Local::V6(local)) => self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &local),
            None => {}
        }
        if is_v6 && !is_mapped {
            self.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
        } else {
            self.put(libc::IPPROTO_IP, libc::IP_TOS, &class);
        }
    }

    /// Lets it wait in a queue of the system until a time of the monotonic clock.
    pub fn leave_at(&mut self, monotonic_ns: u64) {
        self.put(libc::SOL_SOCKET, TXTIME, &monotonic_ns);
    }

    /// Has the kernel take the time, too, at which it comes to the queue of its interface.
    pub fn stamp_at_queue(&mut self) {
        let stamps = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_TX_SCHED;
        self.put(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &stamps);
    }

    fn put<T: Copy>(&mut self, level: c_int, kind: c_int, value: &T) {
        // SAFETY: the macros only compute; there is room for the few that are put, which are aligned to words.
        unsafe {
            let bytes = libc::CMSG_SPACE(size_of::<T>() as u32) as usize;
            assert!(self.control_len + bytes <= size_of_val(&self.control), "few are put");
            let header = self.control.as_mut_ptr().byte_add(self.control_len).cast::<cmsghdr>();
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as usize;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(*value);
            self.control_len += bytes;
        }
    }
}

/// Packets that come or leave at once.
pub struct Batch {
    packets: Vec<Packet>,
}

impl Batch {
    /// Room for a batch.
    pub fn new() -> Self {
        Self { packets: (0..BATCH).map(|_| Packet::new()).collect() }
    }

    /// A packet of it.
    pub fn packet(&mut self, at: usize) -> &mut Packet {
        &mut self.packets[at]
    }

    /// Makes a packet of it one of so many bytes, to whom the socket is connected.
    pub fn write(&mut self, at: usize, len: usize) -> &mut [u8] {
        let packet = &mut self.packets[at];
        (packet.len, packet.name_len, packet.control_len) = (len, 0, 0);
        packet.bytes_mut()
    }
}

/// A UDP socket.
#[derive(Debug)]
pub struct Udp {
    socket: OwnedFd,
    name: String,
    room: Room,
}

/// The room of a socket for what waits in it.
#[derive(Debug)]
struct Room {
    bytes: c_int,
    /// Whether stamps have their part beside packets, which are many.
    is_whole: Cell<bool>,
}

impl Udp {
    /// Listens at a port: at one address, or at all of both families.
    pub fn listen(address: Option<IpAddr>, port: u16) -> Result<Self, Error> {
        let all = || open(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        let (socket, at) = match address {
            Some(address) => (open(address, port), SocketAddr::new(address, port)),
            // A kernel without IPv6 has the other.
            None => (
                all().or_else(|_| open(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)),
                SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
            ),
        };
        let name = format!("UDP {at}");
        match socket {
            Ok(socket) => Ok(Self { room: Room::of(&socket), socket, name }),
            Err(source) => Err(Error::Udp { name, action: "listen", source }),
        }
    }

    /// Sends to an address, and hears of nobody else.
    pub fn connect(to: SocketAddr, port: u16, dscp: u8) -> Result<Self, Error> {
        let any = match to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let name = format!("UDP to {to}");
        let failed = |source| Error::Udp { name: name.clone(), action: "connect", source };
        let socket = open(any, port).map_err(failed)?;
        let class = c_int::from(dscp << 2);
        let (level, kind, fragments, never) = match to {
            SocketAddr::V4(_) => {
                (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
            }
            SocketAddr::V6(_) => (
                libc::IPPROTO_IPV6,
                libc::IPV6_TCLASS,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_DO,
            ),
        };
        set(&socket, level, kind, class).map_err(failed)?;
        // A packet that is too long for the path is an error, and not several packets.
        set(&socket, level, fragments, never).map_err(failed)?;
        let (storage, len) = storage(to);
        // SAFETY: an address that outlives the call.
        let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const storage).cast(), len) };
        checked(done as isize).map_err(failed)?;
        Ok(Self { room: Room::of(&socket), socket, name })
    }

    /// Has a card take the times of packets, in the place of the kernel.
    pub fn stamp_by_card(&self) -> Result<(), Error> {
        set(&self.socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, CARD_STAMPS)
            .map_err(|source| self.failed("take times of a card", source))
    }

    /// Lets packets say when they are to leave; false if the kernel knows no such thing.
    pub fn allow_times(&self) -> bool {
        let flags = libc::SOF_TXTIME_REPORT_ERRORS;
        let allowed = libc::sock_txtime { clockid: libc::CLOCK_MONOTONIC, flags };
        set(&self.socket, libc::SOL_SOCKET, TXTIME, allowed).is_ok()
    }

    /// Its own port.
    pub fn port(&self) -> u16 {
        // SAFETY: fills in an address that outlives the call.
        let storage = unsafe {
            let mut storage = zeroed::<sockaddr_storage>();
            let mut len = size_of::<sockaddr_storage>() as socklen_t;
            libc::getsockname(self.socket.as_raw_fd(), (&raw mut storage).cast(), &raw mut len);
            storage
        };
        address(&storage).map_or(0, |address| address.port())
    }

    /// Takes what has come, without waiting; says how many.
    pub fn receive(&self, batch: &mut Batch) -> Result<usize, Error> {
        let taken = self.take(batch, 0)?;
        self.room.keep_for_stamps(&self.socket, taken == BATCH);
        Ok(taken)
    }

    /// Takes packets that have left, with their headers and times, without waiting; says how many.
    pub fn returned(&self, batch: &mut Batch) -> Result<usize, Error> {
        self.take(batch, libc::MSG_ERRQUEUE)
    }

    fn take(&self, batch: &mut Batch, flags: c_int) -> Result<usize, Error> {
        let mut parts =
            [const { libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 } }; BATCH];
        // SAFETY: a structure of numbers and pointers.
        let mut headers = [unsafe { zeroed::<mmsghdr>() }; BATCH];
        for ((packet, part), header) in batch.packets.iter_mut().zip(&mut parts).zip(&mut headers) {
            packet.name_len = size_of::<sockaddr_storage>() as socklen_t;
            packet.control_len = size_of_val(&packet.control);
            packet.len = ROOM;
            *header = header_of(packet, part);
        }
        let flags = flags | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let fd = self.socket.as_raw_fd();
        // SAFETY: headers whose parts outlive the call.
        let taken = unsafe {
            libc::recvmmsg(fd, headers.as_mut_ptr(), BATCH as u32, flags as _, std::ptr::null_mut())
        };
        let taken = match checked(taken as isize) {
            Ok(taken) => taken as usize,
            Err(error) if is_nothing(&error) => 0,
            // Somebody on the way, or the other end, refused one of the packets before.
            Err(error) if is_refusal(&error) || error.raw_os_error() == Some(libc::EMSGSIZE) => 0,
            Err(error) => return Err(self.failed("receive", error)),
        };
        for (packet, header) in batch.packets.iter_mut().zip(&headers).take(taken) {
            packet.len = header.msg_len as usize;
            packet.name_len = header.msg_hdr.msg_namelen;
            packet.beside = beside(&header.msg_hdr);
        }
        Ok(taken)
    }

    /// Sends these packets of a batch, without waiting; says how many left, and why the next one did not.
    pub fn send(&self, batch: &mut Batch, which: &[usize]) -> (usize, Option<io::Error>) {
        // One by one: `sendmmsg` keeps the error of a packet behind others to itself.
        for (sent, at) in which.iter().enumerate() {
            let mut part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
            let header = header_of(&mut batch.packets[*at], &mut part).msg_hdr;
            let fd = self.socket.as_raw_fd();
            // SAFETY: a header whose parts outlive the call.
            let done = unsafe { libc::sendmsg(fd, &raw const header, libc::MSG_DONTWAIT) };
            if let Err(error) = checked(done) {
                return (sent, Some(error));
            }
        }
        (which.len(), None)
    }

    /// The error where the system refuses something.
    pub fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Udp { name: self.name.clone(), action, source }
    }
}

/// Waits until one of the sockets has something, or for a while.
pub fn wait<'a>(sockets: impl Iterator<Item = &'a Udp>, most: Duration) {
    let poll = |socket: &Udp| libc::pollfd {
        fd: socket.socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut all: Vec<_> = sockets.map(poll).collect();
    let time = libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: most.subsec_nanos().into(),
    };
    // SAFETY: structures that outlive the call. What interrupts it is looked at by the caller anyway.
    unsafe {
        libc::ppoll(all.as_mut_ptr(), all.len() as libc::nfds_t, &raw const time, std::ptr::null());
    }
}

/// Lets this thread sleep exactly as long as it asks for.
pub fn sleep_exactly() {
    // SAFETY: an attribute of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

fn open(address: IpAddr, port: u16) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: makes a socket.
    let socket = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    checked(socket as isize)?;
    // SAFETY: a new descriptor, of which nobody else knows.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let (general, v4, v6) = (libc::SOL_SOCKET, libc::IPPROTO_IP, libc::IPPROTO_IPV6);
    if family == libc::AF_INET6 {
        set(&socket, v6, libc::IPV6_V6ONLY, 0)?;
        for kind in [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVTCLASS] {
            set(&socket, v6, kind, 1)?;
        }
    } else {
        set(&socket, v4, libc::IP_PKTINFO, 1)?;
    }
    // What a queue on its way out drops is an error only for those who want to hear of errors.
    set(&socket, v4, libc::IP_RECVERR, 1)?;
    if family == libc::AF_INET6 {
        set(&socket, v6, libc::IPV6_RECVERR, 1)?;
    }
    for kind in [libc::IP_RECVTTL, libc::IP_RECVTOS] {
        set(&socket, v4, kind, 1)?;
    }
    set(&socket, general, libc::SO_RCVBUF, WAITING)?;
    set(&socket, general, libc::SO_RXQ_OVFL, 1)?;
    set(&socket, general, libc::SO_TIMESTAMPING, STAMPS)?;
    let (storage, len) = storage(SocketAddr::new(address, port));
    // SAFETY: an address that outlives the call.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const storage).cast(), len) };
    checked(done as isize)?;
    Ok(socket)
}

impl Room {
    fn of(socket: &OwnedFd) -> Self {
        let (mut bytes, mut len): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
        let place = (&raw mut bytes).cast::<c_void>();
        let (level, kind) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
        // SAFETY: fills in a number that outlives the call.
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, kind, place, &raw mut len) };
        // The kernel says twice what it was asked for.
        let room = Self { bytes: bytes / 2, is_whole: Cell::new(true) };
        room.keep_for_stamps(socket, false);
        room
    }

    /// Gives stamps their part of the room once there are many packets, and takes it back then.
    fn keep_for_stamps(&self, socket: &OwnedFd, are_many: bool) {
        if self.is_whole.replace(are_many) != are_many {
            let part = if are_many { 0 } else { self.bytes / FOR_STAMPS };
            // A socket that keeps its room only loses stamps.
            let _ = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, self.bytes - part);
        }
    }
}

fn set<T>(socket: &OwnedFd, level: c_int, kind: c_int, value: T) -> io::Result<()> {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: a value that outlives the call.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, kind, (&raw const value).cast::<c_void>(), len)
    };
    checked(done as isize).map(drop)
}

fn header_of(packet: &mut Packet, part: &mut libc::iovec) -> mmsghdr {
    part.iov_base = packet.bytes.as_mut_ptr().cast();
    part.iov_len = packet.len;
    // SAFETY: a structure of numbers and pointers.
    let mut header = unsafe { zeroed::<msghdr>() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    if packet.name_len > 0 {
        header.msg_name = (&raw mut packet.name).cast();
        header.msg_namelen = packet.name_len;
    }
    if packet.control_len > 0 {
        header.msg_control = packet.control.as_mut_ptr().cast();
        header.msg_controllen = packet.control_len as _;
    }
    mmsghdr { msg_hdr: header, msg_len: 0 }
}

fn beside(header: &msghdr) -> Beside {
    let mut beside = Beside { ttl: UNKNOWN_TTL, ..Beside::default() };
    // SAFETY: the kernel has filled in the header; the macros stay within its length.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(one) = next.as_ref() {
            let data = libc::CMSG_DATA(next);
            match (one.cmsg_level, one.cmsg_type) {
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => {
                    let [kernel, _, card] = data.cast::<[libc::timespec; 3]>().read_unaligned();
                    let ns = |time: libc::timespec| {
                        let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
                        (ns > 0).then_some(ns)
                    };
                    (beside.kernel_ns, beside.card_ns) = (ns(kernel), ns(card));
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    beside.dropped = Some(data.cast::<u32>().read_unaligned());
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    beside.ttl = data.cast::<c_int>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => beside.tos = data.read(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    beside.tos = data.cast::<c_int>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let mut local = data.cast::<libc::in_pktinfo>().read_unaligned();
                    local.ipi_ifindex = 0;
                    beside.local = Some(Local::V4(local));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let mut local = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    // Routes choose the link, of which an address of one link alone says nothing.
                    if !Ipv6Addr::from(local.ipi6_addr.s6_addr).is_unicast_link_local() {
                        local.ipi6_ifindex = 0;
                    }
                    beside.local = Some(Local::V6(local));
                }
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    let error = data.cast::<libc::sock_extended_err>().read_unaligned();
                    beside.is_returned = error.ee_origin == OF_STAMP;
                    beside.is_at_queue = beside.is_returned && error.ee_info == AT_QUEUE;
                    beside.is_untimely = (error.ee_origin, error.ee_code) == OF_TIME;
                    beside.refused =
                        OF_OTHERS.contains(&error.ee_origin).then_some(error.ee_errno as i32);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    beside
}

/// An address as the kernel wants it.
fn storage(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: structures of numbers, of which the one has room for the other.
    unsafe {
        let mut storage = zeroed::<sockaddr_storage>();
        let place = &raw mut storage;
        let len = match address {
            SocketAddr::V4(address) => {
                let name = place.cast::<libc::sockaddr_in>();
                (*name).sin_family = libc::AF_INET as libc::sa_family_t;
                (*name).sin_port = address.port().to_be();
                (*name).sin_addr.s_addr = u32::from(*address.ip()).to_be();
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(address) => {
                let name = place.cast::<libc::sockaddr_in6>();
                (*name).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                (*name).sin6_port = address.port().to_be();
                (*name).sin6_addr.s6_addr = address.ip().octets();
                (*name).sin6_scope_id = address.scope_id();
                size_of::<libc::sockaddr_in6>()
            }
        };
        (storage, len as socklen_t)
    }
}

/// An address as the kernel has it; one of IPv4 that comes as IPv6 is what it is.
fn address(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let place = &raw const *storage;
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure it is.
            let name = unsafe { place.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says which structure it is.
            let name = unsafe { place.cast::<libc::sockaddr_in6>().read() };
            let (ip, port) = (Ipv6Addr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port));
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddrV4::new(ip, port).into(),
                None => SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into(),
            })
        }
        _ => None,
    }
}

fn checked(answer: isize) -> io::Result<isize> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Whether somebody on the way, or the other end, says that packets do not come through.
pub fn is_refusal(error: &io::Error) -> bool {
    let refusals = [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::ENONET,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::EPROTO,
        libc::ENETDOWN,
        libc::EACCES,
        libc::EPERM,
    ];
    error.raw_os_error().is_some_and(|number| refusals.contains(&number))
}

/// Whether the system refuses this packet itself, and no error of one before it is told.
pub fn is_of_this_packet(error: &io::Error) -> bool {
    let own = [libc::EPERM, libc::ENOBUFS, libc::EAGAIN];
    error.raw_os_error().is_some_and(|number| own.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe::returned::datagrams;

    fn once(
        socket: &Udp,
        batch: &mut Batch,
        take: fn(&Udp, &mut Batch) -> Result<usize, Error>,
    ) -> usize {
        for _ in 0..200 {
            let taken = take(socket, batch).unwrap();
            if taken > 0 {
                return taken;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        0
    }

    /// Waits until packets have times: the kernel begins some time after it is asked to.
    fn begin(listener: &Udp, to: SocketAddr) {
        let (sender, mut batch) = (Udp::connect(to, 0, 0).unwrap(), Batch::new());
        let comes_with_time = (0..200).any(|_| {
            batch.write(0, 50);
            sender.send(&mut batch, &[0]);
            once(listener, &mut batch, Udp::receive);
            let comes_with_time = batch.packet(0).beside.kernel_ns.is_some();
            if !comes_with_time {
                std::thread::sleep(Duration::from_millis(5));
            }
            comes_with_time
        });
        assert!(comes_with_time);
    }

    #[test]
    fn packets_come_with_their_times_and_answers_go_back() {
        for host in ["127.0.0.1", "::1"] {
            let listener = match Udp::listen(None, 0) {
                // QEMU's emulation of programs has no timestamps of sockets.
                Err(Error::Udp { source, .. })
                    if cfg!(target_arch = "aarch64")
                        && source.raw_os_error() == Some(libc::ENOPROTOOPT) =>
                {
                    return;
                }
                listener => listener.unwrap(),
            };
            let to = SocketAddr::new(host.parse().unwrap(), listener.port());
            let Ok(sender) = Udp::connect(to, 0, 46) else { continue };
            begin(&listener, to);
            let mut batch = Batch::new();
            batch.write(0, 50).fill(7);
            batch.write(1, 60).fill(8);
            assert_eq!(sender.send(&mut batch, &[0, 1]).0, 2);
            let mut seen = Vec::new();
            while seen.len() < 2 {
                let taken = once(&listener, &mut batch, Udp::receive);
                assert!(taken > 0);
                for at in 0..taken {
                    let packet = batch.packet(at);
                    assert_eq!(packet.from(), Some(SocketAddr::new(to.ip(), sender.port())));
                    assert!(packet.beside.kernel_ns.is_some());
                    // Routes choose the link on which the answer leaves.
                    let Some(Local::V6(local)) = packet.beside.local else { panic!("of IPv6") };
                    assert_eq!(local.ipi6_ifindex, 0);
                    assert_eq!((packet.beside.tos, packet.beside.ttl), (46 << 2, 64));
                    seen.push(packet.len);
                    packet.answer(10);
                    assert_eq!(listener.send(&mut batch, &[at]).0, 1);
                }
            }
            assert_eq!(seen, [50, 60]);
            let mut returned = Vec::new();
            while returned.len() < 2 {
                let taken = once(&sender, &mut batch, Udp::returned);
                assert!(taken > 0);
                for at in 0..taken {
                    let packet = batch.packet(at);
                    assert!(packet.beside.is_returned && packet.beside.kernel_ns.is_some());
                    let sent = datagrams(packet.bytes()).next().unwrap();
                    assert_eq!((sent.to, sent.port), (to.ip(), to.port()));
                    returned.push(sent.payload.to_vec());
                }
            }
            assert_eq!(returned, [vec![7; 50], vec![8; 60]]);
            assert!(once(&sender, &mut batch, Udp::receive) > 0);
            assert_eq!((batch.packet(0).len, batch.packet(0).beside.tos), (50, 10 << 2));
        }
    }
}
