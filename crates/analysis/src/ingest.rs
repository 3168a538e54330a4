//! From a capture to keyed packets in order of time, in a thread of its own.

use std::sync::mpsc::{Receiver, SyncSender};

use capture::{Cut, Info, Packet, Reader};
use probe::key::{Key, Keyed, Keyer};
use units::Nanos;

use crate::error::Error;
use crate::side::Side;

/// Packets a batch. Disorder within this many packets is mended; what goes further back is refused.
pub(crate) const BATCH: usize = 4096;

/// A packet reduced to what matching needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped {
    pub ts: u64,
    hi: u64,
    lo: u32,
    keyed: bool,
}

const _: () = assert!(size_of::<Stamped>() == 24);

impl Stamped {
    #[inline]
    pub fn new(ts: u64, key: Option<Key>) -> Self {
        let Key { hi, lo } = key.unwrap_or(Key { hi: 0, lo: 0 });
        Self { ts, hi, lo: lo as u32, keyed: key.is_some() }
    }

    /// What [`Matcher::warm_up`](crate::matcher::Matcher::warm_up) wants to know.
    #[inline]
    pub fn slot(&self) -> u32 {
        self.lo
    }

    #[inline]
    pub fn key(&self) -> Option<Key> {
        self.keyed.then_some(Key { hi: self.hi, lo: u64::from(self.lo) })
    }
}

/// What an ingest thread sends.
pub(crate) enum Message {
    Batch { packets: Vec<Stamped>, consumed_bytes: u64 },
    End(Box<Result<End, Error>>),
}

/// What is known of a capture once all of it was read.
#[derive(Debug)]
pub(crate) struct End {
    pub side: Side,
    pub info: Info,
    pub cut: Option<Cut>,
}

/// A packet that was read ahead.
pub(crate) struct Ahead {
    ts: Nanos,
    orig_len: u32,
    offset: u64,
    pub data: Vec<u8>,
}

impl Ahead {
    /// Reads the first packets of a capture, at most `most`.
    pub fn read(reader: &mut Reader, most: usize) -> Result<Vec<Self>, Error> {
        let mut ahead = Vec::new();
        while ahead.len() < most {
            let Some(packet) = reader.next()? else { break };
            let Packet { ts, orig_len, offset, data } = packet;
            ahead.push(Self { ts, orig_len, offset, data: data.to_vec() });
        }
        Ok(ahead)
    }

    fn packet(&self) -> Packet<'_> {
        Packet { ts: self.ts, orig_len: self.orig_len, data: &self.data, offset: self.offset }
    }
}

/// Reads one capture.
pub(crate) struct Ingest {
    pub name: String,
    pub keyer: Keyer,
    pub side: Side,
    pub batches: SyncSender<Message>,
    pub used: Receiver<Vec<Stamped>>,
    held: Vec<Stamped>,
    filling: Vec<Stamped>,
    ordered: bool,
    read: u64,
    newest_ns: u64,
    sent_ns: u64,
}

/// The other side has stopped listening.
struct Hangup;

impl Ingest {
    pub fn new(
        name: String,
        keyer: Keyer,
        side: Side,
        batches: SyncSender<Message>,
        used: Receiver<Vec<Stamped>>,
    ) -> Self {
        Self {
            name,
            keyer,
            side,
            batches,
            used,
            held: Vec::with_capacity(BATCH),
            filling: Vec::with_capacity(BATCH),
            ordered: true,
            read: 0,
            newest_ns: 0,
            sent_ns: 0,
        }
    }

    /// Reads `ahead`, then all of `reader`, and sends what it finds.
    pub fn run(mut self, ahead: &[Ahead], mut reader: Reader) {
        match self.read_all(ahead, &mut reader) {
            Ok(Err(Hangup)) => {}
            Ok(Ok(())) => {
                let (info, cut) = (reader.info().clone(), reader.cut().cloned());
                let end = End { side: self.side, info, cut };
                let _ = self.batches.send(Message::End(Box::new(Ok(end))));
            }
            Err(error) => {
                let _ = self.batches.send(Message::End(Box::new(Err(error))));
            }
        }
    }

    fn read_all(
        &mut self,
        ahead: &[Ahead],
        reader: &mut Reader,
    ) -> Result<Result<(), Hangup>, Error> {
        for packet in ahead {
            self.take(packet.packet())?;
        }
        loop {
            while self.filling.len() < BATCH {
                let Some(packet) = reader.next()? else { return Ok(self.flush(reader)) };
                self.take(packet)?;
            }
            if let Err(Hangup) = self.send_held(reader) {
                return Ok(Err(Hangup));
            }
        }
    }

    #[inline]
    fn take(&mut self, packet: Packet<'_>) -> Result<(), Error> {
        self.read += 1;
        let ts = packet.ts.0;
        if ts < self.newest_ns {
            self.note_disorder(&packet)?;
        } else {
            self.newest_ns = ts;
        }
        let key = match self.keyer.key(packet.data, packet.orig_len) {
            Keyed::Key(key) => Some(key),
            Keyed::None => None,
            Keyed::Short { need } => return Err(self.short(&packet, need)),
        };
        self.filling.push(Stamped::new(ts, key));
        Ok(())
    }

    #[cold]
    fn note_disorder(&mut self, packet: &Packet<'_>) -> Result<(), Error> {
        let ts = packet.ts.0;
        if ts < self.sent_ns {
            return Err(Error::TimeGoesBack {
                file: self.name.clone(),
                offset: packet.offset,
                packet: self.read,
                got_ns: ts,
                expected_ns: self.sent_ns,
            });
        }
        self.ordered = false;
        self.side.disordered += 1;
        self.side.disorder_ns_max = self.side.disorder_ns_max.max(self.newest_ns - ts);
        Ok(())
    }

    #[cold]
    fn short(&self, packet: &Packet<'_>, need: u32) -> Error {
        Error::ShortCapture {
            file: self.name.clone(),
            offset: packet.offset,
            packet: self.read,
            got: packet.data.len(),
            need,
        }
    }

    /// Sends the batch before the one that was just filled, so that a packet in disorder can still
    /// find its place in it.
    fn send_held(&mut self, reader: &Reader) -> Result<(), Hangup> {
        if !self.ordered {
            self.put_in_order();
        }
        let next = self.used.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let filled = std::mem::replace(&mut self.filling, next);
        self.filling.clear();
        let packets = std::mem::replace(&mut self.held, filled);
        let Some(last) = packets.last() else { return Ok(()) };
        self.sent_ns = last.ts;
        packets.iter().for_each(|packet| self.side.record(packet.ts));
        let message = Message::Batch { packets, consumed_bytes: reader.consumed_bytes() };
        self.batches.send(message).map_err(|_| Hangup)
    }

    #[cold]
    fn put_in_order(&mut self) {
        let held = self.held.len();
        self.held.append(&mut self.filling);
        self.held.sort_by_key(|packet| packet.ts);
        self.filling.extend(self.held.drain(held..));
        self.ordered = true;
    }

    fn flush(&mut self, reader: &Reader) -> Result<(), Hangup> {
        self.send_held(reader)?;
        self.send_held(reader)
    }
}
