//! snoop (RFC 1761): a header of 16 bytes, then records of 24 bytes and the packet.

use units::Nanos;

use crate::error::Error;
use crate::info::ByteOrder;
use crate::interface::{Description, Interfaces};
use crate::link::{LinkType, Shape, lengths_hold};
use crate::step::{Record, Site, Step};
use crate::time::Resolution;

pub(crate) const MAGIC: &[u8; 4] = b"snoo";

const HEADER: usize = 16;
const WHOLE_MAGIC: &[u8; 8] = b"snoop\0\0\0";
const VERSION: u32 = 2;
const ETHERNET: u32 = 4;
const RECORD: usize = 24;
/// The longest record that is believed, as of the other formats.
const MAX_RECORD: u32 = 16 * 1024 * 1024;
const MICROS_PER_SECOND: u32 = 1_000_000;

#[derive(Default)]
pub(crate) struct Snoop {
    is_begun: bool,
}

impl Snoop {
    pub fn step(
        &mut self,
        ahead: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<Step, Error> {
        if !self.is_begun {
            return self.begin(ahead, interfaces, site);
        }
        let Some(header) = ahead.get(..RECORD) else { return Ok(Step::Need(RECORD)) };
        let [orig_len, captured, record_bytes, drops, seconds, micros] =
            ByteOrder::Big.words(header);
        let shape = Shape::PLAIN;
        if !lengths_hold(captured, orig_len) {
            return Err(site.bad_lengths(shape, captured, orig_len));
        }
        let least = RECORD as u32 + captured;
        if !(least..=MAX_RECORD).contains(&record_bytes) {
            let expected = format!("{least} to {MAX_RECORD}");
            return Err(site.corrupt("length of the record", record_bytes, expected));
        }
        if micros >= MICROS_PER_SECOND {
            let expected = format!("less than {MICROS_PER_SECOND}");
            return Err(site.corrupt("microseconds", micros, expected));
        }
        let len = record_bytes as usize;
        if ahead.len() < len {
            return Ok(Step::Need(len));
        }
        interfaces.dropped_in_all(0, drops.into());
        let ts = Nanos(u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1_000);
        let data = RECORD..RECORD + captured as usize;
        Ok(Step::Packet(Record { ts, orig_len, data, len, shape }))
    }

    fn begin(
        &mut self,
        ahead: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<Step, Error> {
        let Some(header) = ahead.get(..HEADER) else { return Ok(Step::Need(HEADER)) };
        if !header.starts_with(WHOLE_MAGIC) {
            return Err(site.corrupt("first bytes", format!("{:02x?}", &header[..8]), "snoop's"));
        }
        let [version, link] = ByteOrder::Big.words(&header[8..]);
        if version != VERSION {
            return Err(site.corrupt("version of snoop", version, VERSION));
        }
        if link != ETHERNET {
            let expected = format!("{ETHERNET} (Ethernet)");
            return Err(site.corrupt("link type of snoop", link, expected));
        }
        let found = Description::of_format(LinkType::ETHERNET, Resolution::MICRO, 0);
        interfaces.describe(0, found, site)?;
        interfaces.decide(site)?;
        self.is_begun = true;
        Ok(Step::Header(HEADER))
    }
}
