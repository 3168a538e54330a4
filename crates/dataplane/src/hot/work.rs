use crate::law::Delays;
use crate::path::Path;
use crate::turns::Turns;
use dpdk::Burst;

/// What the loop did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub batches: u64,
    /// The most packets in one of them.
    pub most: u64,
}

/// Accepts at most `batch` packets, works for each of them, and then hands all of them on.
///
/// A batch that was waiting begins when the one before it ended: receiving and sending are part of
/// the work, so that a busy device needs exactly the time of the law for each packet.
pub fn work(paths: &mut [Path], batch: usize, times: &mut Delays, mut turns: Turns<'_>) -> Done {
    let mut burst = Burst::new();
    let mut done = Done::default();
    let mut handled = 0;
    let mut free = None;
    while turns.next(handled).is_some() {
        let mut handed_on = handled;
        handled = 0;
        for path in paths.iter_mut() {
            let received = turns.receive(&mut path.rx, &mut burst, batch);
            if received == 0 {
                continue;
            }
            let begin = turns.begin_work(handed_on + received, free.filter(|_| handed_on > 0));
            let takes: u64 = (0..received).map(|_| times.next()).sum();
            free = Some(turns.work_until(begin + takes));
            turns.send_or_drop(&mut path.tx, &mut burst, batch);
            handed_on = received;
            handled += received;
            done.batches += 1;
            done.most = done.most.max(received as u64);
        }
    }
    done
}
