use std::path::PathBuf;

/// Why a program could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command line cannot be understood.
    #[error("{0}")]
    Usage(String),
    /// An option has a value that makes no sense.
    #[error("{option}: got {got}, expected {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        got: String,
        /// What it should have been.
        expected: String,
    },
    /// A filter of packets is none.
    #[error("--filter: {0}")]
    Filter(#[from] probe::filter::Refused),
    /// DPDK refused.
    #[error(transparent)]
    Dpdk(#[from] dpdk::Error),
    /// There are too few ports or lcores.
    #[error("{program} needs {expected}, got {got}")]
    Too {
        /// The program.
        program: &'static str,
        /// What is there.
        got: String,
        /// What it needs.
        expected: String,
        /// What to do.
        hint: &'static str,
    },
    /// A link did not come up.
    #[error("the link of port {port} ({name}) did not come up within {waited}")]
    Link {
        /// The port's number.
        port: u16,
        /// The device's name.
        name: String,
        /// How long it was waited for.
        waited: units::Nanos,
    },
    /// A port does not stamp what arrives.
    #[error("port {port} ({name}, {driver}) does not stamp all frames that it receives")]
    NoTimestamps {
        /// The port's number.
        port: u16,
        /// The device's name.
        name: String,
        /// Its driver.
        driver: String,
    },
    /// A packet socket cannot be had, or fails.
    #[error("{link}: cannot {action}: {source}")]
    Socket {
        /// The link of the kernel.
        link: String,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// A UDP socket cannot be had, or fails.
    #[error("{name}: cannot {action}: {source}")]
    Udp {
        /// The socket.
        name: String,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// A card does not take times of packets.
    #[error("{link}: its card takes no times by a clock of its own: {source}")]
    Card {
        /// The card's link.
        link: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// A card promised times, and took none.
    #[error("{link}: its card took no time of a query to {to} and its answer")]
    CardSilent {
        /// The card's link.
        link: String,
        /// The other host and port.
        to: std::net::SocketAddr,
    },
    /// No queue of the system lets packets wait for their time.
    #[error("{to}: the queue of its interface sends each packet at once")]
    NoTxtime {
        /// The other host and port.
        to: std::net::SocketAddr,
    },
    /// A queue of the system lets packets wait by another clock.
    #[error("{to}: the queue of its interface (etf) drops packets without a time of CLOCK_TAI")]
    OtherTimes {
        /// The other host and port.
        to: std::net::SocketAddr,
    },
    /// The other host does not answer.
    #[error("{to}: no answer within {waited}{said}")]
    NoAnswer {
        /// The other host and port.
        to: std::net::SocketAddr,
        /// How long it was waited for.
        waited: units::Nanos,
        /// What somebody on the way, or the host itself, said; empty if nobody did.
        said: String,
    },
    /// A key that others may read is none.
    #[error("{path}: mode {mode:03o} lets others read the key, expected 600 or 400")]
    OpenKey {
        /// Its file.
        path: PathBuf,
        /// The rights on it.
        mode: u32,
    },
    /// A file has no key.
    #[error("{path}: expected a key of 32 to 128 hexadecimal digits, and nothing else")]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// It was built without BPF programs.
    #[cfg(not(feature = "stages"))]
    #[error("this tailscope-dp was built without BPF programs")]
    NoBpf,
    /// The kernel's BPF refuses.
    #[cfg(feature = "stages")]
    #[error("{0:#}")]
    Bpf(#[from] libbpf_rs::Error),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file says something that makes no sense.
    #[error("{path}:{line}: got {got:?}, expected {expected}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What it says.
        got: String,
        /// What it should have said.
        expected: &'static str,
    },
    /// A frame of a capture cannot be sent.
    #[error("{path}: packet {number}: got {got} bytes, expected {expected}")]
    Frame {
        /// The capture.
        path: PathBuf,
        /// The packet, from 1.
        number: usize,
        /// Bytes that were captured.
        got: usize,
        /// What they should have been.
        expected: String,
    },
    /// A capture has nothing to send.
    #[error("{path}: no packets")]
    Empty {
        /// The capture.
        path: PathBuf,
    },
    /// A capture could not be read or written.
    #[error(transparent)]
    Capture(#[from] capture::Error),
    /// What is heard of two links cannot be matched.
    #[error(transparent)]
    Analysis(#[from] analysis::Error),
    /// Memory that a run needs beforehand is not to be had.
    #[error("no memory to record {packets} packets: {bytes} bytes")]
    Memory {
        /// Packets of the run.
        packets: u64,
        /// Bytes that they need.
        bytes: u64,
    },
}

impl Error {
    /// Name of what is wrong.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Option { .. } | Self::Filter(_) => "option-value",
            Self::Dpdk(_) => "dpdk",
            Self::Too { .. } => "too-few-ports",
            Self::Link { .. } => "link-down",
            Self::NoTimestamps { .. } => "no-timestamps",
            Self::Socket { .. } => "packet-socket",
            Self::Udp { .. } => "udp-socket",
            Self::Card { .. } => "card-clock",
            Self::CardSilent { .. } => "card-silent",
            Self::NoTxtime { .. } => "no-txtime",
            Self::OtherTimes { .. } => "other-txtime",
            Self::NoAnswer { .. } => "no-answer",
            Self::OpenKey { .. } => "key-open-to-others",
            Self::Key { .. } => "key-file",
            #[cfg(not(feature = "stages"))]
            Self::NoBpf => "no-bpf",
            #[cfg(feature = "stages")]
            Self::Bpf(_) => "bpf",
            Self::File { .. } => "file",
            Self::Line { .. } => "file-line",
            Self::Frame { .. } => "frame-size",
            Self::Empty { .. } => "no-packets",
            Self::Capture(_) => "capture",
            Self::Analysis(error) => error.code(),
            Self::Memory { .. } => "no-memory",
        }
    }

    /// What can be done about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Usage(_) => Some("tailscope-dp PROGRAM [EAL options] -- [options]; try --help"),
            Self::Dpdk(error) => error.hint(),
            Self::Too { hint, .. } => Some(hint),
            Self::Link { .. } => {
                Some("is the other side running, with the same socket or cable and the other role?")
            }
            Self::NoTimestamps { .. } => {
                Some("--software takes the time when a frame is polled, or use ports that do")
            }
            Self::Socket { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    Some("packet sockets require root, or CAP_NET_RAW")
                }
                _ => Some("`ip link` lists the links, and whether they are up"),
            },
            Self::Udp { source, .. } => match source.raw_os_error() {
                Some(libc::EACCES) => Some(
                    "ports below 1024 require root, CAP_NET_BIND_SERVICE, or a lower net.ipv4.ip_unprivileged_port_start; --port takes another one",
                ),
                Some(libc::EADDRINUSE) => Some(
                    "another program listens there: `ss -lunp` shows it; --port takes another one",
                ),
                Some(libc::EADDRNOTAVAIL) => {
                    Some("this host has no such address: `ip addr` lists those that it has")
                }
                Some(libc::EMSGSIZE) => Some("choose a --size that the path carries in one packet"),
                _ => None,
            },
            Self::Card { .. } | Self::CardSilent { .. } => Some(
                "`ethtool -T LINK` shows what a card offers, and packets have to take this link; without --card the kernel takes the times",
            ),
            Self::OtherTimes { .. } => Some(
                "`tc qdisc replace dev LINK root fq` gives it one that lets packets wait by CLOCK_MONOTONIC; etf is for packets of programs that name times of CLOCK_TAI alone",
            ),
            Self::NoTxtime { .. } => Some(
                "`tc qdisc replace dev LINK root fq` gives it one that lets packets wait; without --txtime on, the sender waits itself",
            ),
            Self::NoAnswer { .. } => Some(
                "`tailscope reflect` has to run there, with the same key if it has one; it answers the prefixes of its --allow, and a firewall on the way must let UDP pass",
            ),
            Self::OpenKey { .. } => {
                Some("`chmod 600` makes it yours alone; make a new key if others read it")
            }
            Self::Key { .. } => Some(
                "`(umask 077; openssl rand -hex 32 > FILE)` makes one; both ends need the same",
            ),
            #[cfg(not(feature = "stages"))]
            Self::NoBpf => Some(
                "build it again with clang and libbpf-dev, in a folder without a space in its path",
            ),
            #[cfg(feature = "stages")]
            Self::Bpf(_) => Some(
                "stages require root, or CAP_BPF and CAP_PERFMON, and Linux 6.12 or newer with BTF; those of a flow root, and Linux 6.1 or newer with BTF",
            ),
            Self::Frame { .. } => Some("capture whole frames, without a snapshot length"),
            Self::Memory { .. } => Some("choose a shorter --duration or a lower --rate"),
            Self::Capture(error) => error.hint(),
            Self::Analysis(error) => error.hint(),
            _ => None,
        }
    }
}
