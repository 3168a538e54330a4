//! Times of packets, by the kernel or by a card, on the clock that runs on.

use crate::card::Card;
use crate::error::Error;
use crate::handling;
use crate::udp::{Beside, Udp};
use crate::wall::{self, Wall};
use probe::stamp::ClockError;

/// Who takes the times of packets, and the clock to which they are brought.
#[derive(Debug)]
pub struct Stamps {
    pub wall: Wall,
    card: Option<Card>,
}

impl Stamps {
    /// Has the card of a link take them, or the kernel without one.
    pub fn new(link: Option<&str>, wall: Wall) -> Result<Self, Error> {
        let card = link.map(|link| Card::open(link, &wall)).transpose()?;
        Ok(Self { wall, card })
    }

    /// The card that takes them.
    pub fn card(&self) -> Option<&Card> {
        self.card.as_ref()
    }

    /// Has them taken of the packets of a socket.
    pub fn of(&self, socket: Udp) -> Result<Udp, Error> {
        if self.card.is_some() {
            socket.stamp_by_card()?;
        }
        Ok(socket)
    }

    /// Reads the card's clock if it is time to.
    pub fn keep_up(&mut self) {
        if let Some(card) = &mut self.card {
            card.keep_up(&self.wall);
        }
    }

    /// When a packet was seen, within `between`; `None` if nobody says.
    pub fn place(&self, beside: &Beside, between: (u64, u64)) -> Option<u64> {
        match &self.card {
            Some(card) => card.place(beside.card_ns?, between),
            None => self.wall.place(beside.kernel_ns?, between),
        }
    }

    /// How far times may be off from UTC.
    pub fn clock_error(&self) -> ClockError {
        let error = wall::clock_error();
        ClockError { most_ns: error.most_ns.saturating_add(self.card_error_ns()), ..error }
    }

    /// How far times of the card may be off the clock of its machine; 0 without a card.
    pub fn card_error_ns(&self) -> u64 {
        self.card.as_ref().map_or(0, Card::error_ns)
    }

    /// How long this kernel keeps a packet after its time was taken; `None` if that is not known.
    pub fn handling_ns(&self) -> Option<u32> {
        // A card takes the time where the packet leaves; 0 would say that nobody knows.
        if self.card.is_some() { Some(1) } else { handling::measure() }
    }
}
