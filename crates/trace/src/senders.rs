//! Senders of interrupts from one CPU to another.

use crate::event::Targets;

/// An interrupt that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Time of the interrupt.
    pub time: u64,
    /// The task that ran when it was sent.
    pub pid: i32,
    /// The CPU that sent it.
    pub cpu: u32,
    /// CPUs that it goes to.
    pub to: Targets,
    /// True if to call a function, rather than to schedule.
    pub call: bool,
}

/// All interrupts that were sent, in order of time.
#[derive(Debug, Default)]
pub struct Senders(Vec<Sent>);

impl Senders {
    /// Puts them in order.
    #[must_use]
    pub fn new(mut sent: Vec<Sent>) -> Self {
        sent.sort_by_key(|sent| sent.time);
        Self(sent)
    }

    /// Returns the first one to `cpu`, of this sort, after `after` and not after `upto`: what is
    /// sent while another is pending makes no second interrupt.
    #[must_use]
    pub fn first(&self, cpu: u32, call: bool, after: u64, upto: u64) -> Option<&Sent> {
        let begin = self.0.partition_point(|sent| sent.time <= after);
        let pending = self.0[begin..].iter().take_while(|sent| sent.time <= upto);
        pending
            .into_iter()
            .find(|sent| sent.call == call && sent.cpu != cpu && sent.to.contain(cpu.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_that_is_pending_is_found() {
        let sent = |time, pid, to, call| Sent { time, pid, cpu: 7, to, call };
        let senders = Senders::new(vec![
            sent(30, 3, Targets::Mask(vec![0b10]), true),
            sent(10, 1, Targets::One(1), true),
            sent(20, 2, Targets::One(1), false),
        ]);
        let pid = |call, after, upto| senders.first(1, call, after, upto).map(|sent| sent.pid);
        assert_eq!(pid(true, 0, 29), Some(1));
        assert_eq!(pid(true, 0, 30), Some(1));
        assert_eq!(pid(true, 10, 30), Some(3));
        assert_eq!(pid(true, 10, 29), None);
        assert_eq!(pid(false, 0, 40), Some(2));
        assert_eq!(pid(false, 20, 40), None);
        assert_eq!(senders.first(0, true, 0, 40), None);
    }
}
