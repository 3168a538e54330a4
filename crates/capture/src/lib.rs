//! Reading and writing of pcap and pcapng captures with integer timestamps.
//!
//! [`Reader`] walks a capture record by record, plain or compressed (gzip, zstd, xz, lz4, bzip2), from
//! a file or from standard input. A plain file is memory mapped and its packets are handed out
//! without a copy; anything else is read (and decompressed) by a thread of its own. [`Writer`] writes
//! nanosecond captures.
//!
//! Whoever reads sees Ethernet only: packets of other link types (`link.rs`) are given an Ethernet
//! header, and a frame check sequence is taken off. [`InterfaceChoice`] says whose packets are read,
//! and [`interfaces`] lists what there is to choose from.
//!
//! Timestamps are integers from the first byte: pcap in microseconds or nanoseconds, pcapng in any
//! resolution of which a second holds at most 2^64 − 1 units. A time that falls between two
//! nanoseconds is rounded down.
//!
//! Nothing in a capture is trusted. What was cut off at its end is a [`Cut`]: the packets before it
//! are good. Whatever else would make an answer wrong is an [`Error`] that names the place.
//!
//! Start reading in `reader.rs`, which merges files, and `file.rs`: it joins the bytes (`window.rs`, over `map.rs` or `stream.rs`) with
//! the formats (`pcap.rs`, `pcapng.rs`), which know nothing of files.

mod decode;
mod draft;
mod erf;
mod error;
mod file;
mod info;
mod interface;
mod link;
mod map;
mod mscap;
mod option;
mod pcap;
mod pcapng;
mod reader;
mod retime;
mod snoop;
mod step;
mod stream;
mod time;
mod trailer;
mod walk;
mod window;
mod writer;

pub use draft::Draft;
pub use error::{Error, Place};
pub use file::{Cut, Mark, Packet, interfaces, read_whole};
pub use info::{ByteOrder, ChosenInterface, Compression, Format, Info, Stamps, TrailerKind};
pub use interface::{Device, Interface, InterfaceChoice};
pub use link::LinkType;
pub use reader::{Files, Reader};
pub use retime::retime;
pub use time::Resolution;
pub use trailer::Trailer;
pub use writer::Writer;
