//! The records of MoonSniff: the time of a packet in ns, and the number that identifies it.

use units::Nanos;

use crate::error::Error;
use crate::interface::{Description, Interfaces};
use crate::link::{LinkType, Shape};
use crate::step::{Record, Site, Step};
use crate::time::Resolution;

const RECORD: usize = 12;
const TIME: usize = 8;
/// Number of records that a file must have to be told from anything else.
const LEAST_RECORDS: usize = 4;
/// The longest time from one record to the next in what is taken for this format.
const MOST_APART_NS: u64 = 10_000_000_000;
/// The latest time that is believed: in the year 2262.
const LATEST_NS: u64 = i64::MAX as u64;

#[derive(Default)]
pub(crate) struct Mscap {
    is_described: bool,
}

fn time_ns(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[..TIME].try_into().expect("eight bytes"))
}

impl Mscap {
    /// Returns true if the beginning of a file is a series of times, each near the one before.
    pub fn detect(beginning: &[u8]) -> bool {
        let times: Vec<_> = beginning.chunks_exact(RECORD).map(time_ns).collect();
        times.len() >= LEAST_RECORDS
            && times.iter().all(|time| (1..=LATEST_NS).contains(time))
            && times.windows(2).all(|pair| pair[0].abs_diff(pair[1]) <= MOST_APART_NS)
    }

    pub fn step(
        &mut self,
        ahead: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<Step, Error> {
        let Some(record) = ahead.get(..RECORD) else { return Ok(Step::Need(RECORD)) };
        if !self.is_described {
            self.is_described = true;
            let found = Description::of_format(LinkType::ETHERNET, Resolution::NANO, 0);
            interfaces.describe(0, found, site)?;
            interfaces.decide(site)?;
        }
        let ts = time_ns(record);
        if ts > LATEST_NS {
            return Err(site.corrupt("time in ns", ts, format!("at most {LATEST_NS}")));
        }
        let (orig_len, data) = ((RECORD - TIME) as u32, TIME..RECORD);
        Ok(Step::Packet(Record {
            ts: Nanos(ts),
            orig_len,
            data,
            len: RECORD,
            shape: Shape::NUMBER,
        }))
    }
}
