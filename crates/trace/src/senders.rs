//! Who sent an interrupt from one CPU to another.

use crate::event::Targets;

/// An interrupt that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub time: u64,
    /// The task that ran when it was sent.
    pub pid: i32,
    /// The CPU that sent it.
    pub cpu: u32,
    /// To whom.
    pub to: Targets,
    /// Whether to call a function, rather than to schedule.
    pub call: bool,
}

/// All that were sent, in order of time.
#[derive(Debug, Default)]
pub struct Senders(Vec<Sent>);

impl Senders {
    /// Puts them in order.
    #[must_use]
    pub fn new(mut sent: Vec<Sent>) -> Self {
        sent.sort_by_key(|sent| sent.time);
        Self(sent)
    }

    /// The last one to `cpu`, of this sort, at or before `time` and not more than `within` before.
    #[must_use]
    pub fn of(&self, cpu: u32, call: bool, time: u64, within: u64) -> Option<&Sent> {
        let upto = self.0.partition_point(|sent| sent.time <= time);
        let earliest = time.saturating_sub(within);
        let recent = self.0[..upto].iter().rev().take_while(|sent| sent.time >= earliest);
        recent
            .into_iter()
            .find(|sent| sent.call == call && sent.cpu != cpu && sent.to.contain(cpu.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_that_fits_is_found() {
        let sent = |time, pid, to, call| Sent { time, pid, cpu: 7, to, call };
        let senders = Senders::new(vec![
            sent(30, 3, Targets::Mask(vec![0b10]), true),
            sent(10, 1, Targets::One(1), true),
            sent(20, 2, Targets::One(1), false),
        ]);
        let pid = |call, time, within| senders.of(1, call, time, within).map(|sent| sent.pid);
        assert_eq!(pid(true, 29, 100), Some(1));
        assert_eq!(pid(true, 30, 100), Some(3));
        assert_eq!(pid(false, 40, 100), Some(2));
        assert_eq!(pid(false, 40, 19), None);
        assert_eq!(senders.of(0, true, 40, 100), None);
    }
}
