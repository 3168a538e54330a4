//! Prints how long a cache line takes from one CPU to another and back, in nanoseconds.
//!
//! A hypervisor moves virtual CPUs between cores. Two that share a cache hand a line on several times
//! faster than two that do not, and so do programs that share memory.
//!
//!     cargo run --release -p tailscope-dpdk --example round_trip 0 1

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const SAMPLES: usize = 20;
const TURNS: u64 = 5000;

/// A number that has a cache line, and the one that the processor fetches with it, to itself.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

fn main() {
    let cpus: Vec<usize> = std::env::args().skip(1).filter_map(|cpu| cpu.parse().ok()).collect();
    let &[here, there] = cpus.as_slice() else { panic!("got {cpus:?}, expected two CPUs") };
    println!("{}", round_trip_ns(here, there));
}

/// The least of some samples: whatever else runs can only add to it.
fn round_trip_ns(here: usize, there: usize) -> u64 {
    let (sent, returned) = (Line::default(), Line::default());
    let last = SAMPLES as u64 * TURNS;
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(there);
            for turn in 1..=last {
                wait(&sent, turn);
                returned.0.store(turn, Ordering::Release);
            }
        });
        pin(here);
        let mut sample = |at: u64| {
            let began = Instant::now();
            for turn in at * TURNS + 1..=(at + 1) * TURNS {
                sent.0.store(turn, Ordering::Release);
                wait(&returned, turn);
            }
            began.elapsed().as_nanos() as u64 / TURNS
        };
        (0..SAMPLES as u64).map(&mut sample).min().expect("samples")
    })
}

fn wait(line: &Line, turn: u64) {
    while line.0.load(Ordering::Acquire) != turn {
        spin_loop();
    }
}

fn pin(cpu: usize) {
    // SAFETY: a set without CPUs is all zeros.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is checked to be within the set by the macro; the kernel copies it.
    let code = unsafe {
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(code, 0, "CPU {cpu}: {}", std::io::Error::last_os_error());
}
