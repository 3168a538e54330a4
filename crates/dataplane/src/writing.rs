//! How far a program is with writing what it recorded: told when it begins, and once a second as long as values are written.

use crate::events;
use messages::{Message, ProgressEvent, State, Written};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TELL_EVERY: Duration = Duration::from_secs(1);
/// Looking at the time takes longer than writing a value. A power of two.
const LOOK_EVERY: u64 = 1 << 10;

/// The progress event that was told last, if one was.
pub type Told = Arc<Mutex<Option<ProgressEvent>>>;

/// Values that were recorded, and how many of them are written.
#[derive(Debug)]
pub struct Writing {
    told: Told,
    began: Instant,
    tell_at: Duration,
    recorded: u64,
    written: u64,
}

impl Writing {
    /// Begins now; other fields of its events are as they were `told` last.
    pub fn new(told: Told) -> Self {
        Self { told, began: Instant::now(), tell_at: Duration::ZERO, recorded: 0, written: 0 }
    }

    /// There are `values` more to be written.
    pub fn expect(&mut self, values: usize) {
        self.recorded += values as u64;
        if self.tell_at.is_zero() {
            self.tell();
        }
    }

    /// One more is written.
    #[inline]
    pub fn wrote(&mut self) {
        self.written += 1;
        if self.written & (LOOK_EVERY - 1) == 0 && self.began.elapsed() >= self.tell_at {
            self.tell();
        }
    }

    #[cold]
    fn tell(&mut self) {
        let elapsed = self.began.elapsed();
        self.tell_at = elapsed + TELL_EVERY;
        let told = self.told.lock().expect("telling does not panic").clone();
        let Some(mut event) = told else { return };
        event.elapsed_s += elapsed.as_secs_f64();
        event.state = State::Writing;
        event.written = Some(Written {
            recorded: self.recorded.max(self.written).into(),
            written: self.written.into(),
        });
        events::print(&Message::Progress(event));
    }
}
