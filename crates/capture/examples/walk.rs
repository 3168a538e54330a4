//! How long a packet takes to read: `walk [CAPTURE]`, by default a generated one of a million.
//!
//! Prints nanoseconds a packet, best of several rounds, beside the time of summing up the same
//! number of bytes in memory, which is the least that anything that looks at each byte can take.

#![allow(clippy::disallowed_methods, reason = "it measures time and takes an argument")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use capture::{Compression, Format, Reader, Writer};
use units::Nanos;

const ROUNDS: u32 = 7;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(path) = std::env::args_os().nth(1) {
        return report(Path::new(&path));
    }
    let folder = tempfile::tempdir()?;
    for format in [Format::Pcap, Format::PcapNg] {
        for compression in [Compression::None, Compression::Zstd, Compression::Gzip] {
            report(&generate(folder.path(), format, compression)?)?;
        }
    }
    Ok(())
}

fn generate(
    folder: &Path,
    format: Format,
    compression: Compression,
) -> Result<PathBuf, Box<dyn Error>> {
    let path = folder.join(format!("million.{format}.{compression}"));
    let mut writer = Writer::create(&path, format, compression)?;
    let mut frame = [0x55; 100];
    for seq in 0..1_000_000u64 {
        frame[42..50].copy_from_slice(&seq.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        writer.write(Nanos(seq * 100_000), 100, &frame)?;
    }
    writer.finish()?;
    Ok(path)
}

fn report(path: &Path) -> Result<(), Box<dyn Error>> {
    let (mut read_ns, mut sum_ns) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let (packets, bytes, sum) = walk(path)?;
        read_ns = read_ns.min(start.elapsed().as_nanos() as f64 / packets as f64);
        let memory = vec![sum; bytes / 8];
        let start = Instant::now();
        std::hint::black_box(memory.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        sum_ns = sum_ns.min(start.elapsed().as_nanos() as f64 / packets as f64);
    }
    println!("{}: {read_ns:.1} ns a packet; summing its bytes {sum_ns:.1} ns", path.display());
    Ok(())
}

/// Counts packets and bytes, and reads a word of each packet as a matcher would.
fn walk(path: &Path) -> Result<(usize, usize, u64), Box<dyn Error>> {
    let mut reader = Reader::open(path)?;
    let (mut packets, mut bytes, mut sum) = (0, 0, 0u64);
    while let Some(packet) = reader.next()? {
        packets += 1;
        bytes += packet.data.len();
        sum = sum.wrapping_add(packet.ts.0 ^ u64::from(packet.data[packet.data.len() / 2]));
    }
    Ok((packets, bytes, sum))
}
