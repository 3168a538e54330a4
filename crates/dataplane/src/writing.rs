//! How far a program is with writing what it recorded: told when it begins, and once a second as long as values are written.

use crate::events;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TELL_EVERY: Duration = Duration::from_secs(1);
/// Looking at the time takes longer than writing a value. A power of two.
const LOOK_EVERY: u64 = 1 << 10;

/// The fields of the progress event that was told last.
pub type Told = Arc<Mutex<Value>>;

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
        let mut fields = self.told.lock().expect("telling does not panic").clone();
        let before_s = fields["elapsed_s"].as_f64().unwrap_or_default();
        fields["elapsed_s"] = (before_s + elapsed.as_secs_f64()).into();
        fields["state"] = "writing".into();
        fields["recorded"] = self.recorded.max(self.written).into();
        fields["written"] = self.written.into();
        events::progress(fields);
    }
}
