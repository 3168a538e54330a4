//! A pair of captures in files, and the truth beside them.

use crate::error::Error;
use crate::scenario::Scenario;
use crate::simulation::{Event, Simulation};
use crate::truth::Totals;
use capture::{Compression, Draft, Format, Writer};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Events between two calls of the progress callback.
const STRIDE: u64 = 1 << 16;

/// The files of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The capture before the device.
    pub pre: PathBuf,
    /// The capture behind it.
    pub post: PathBuf,
    /// The truth, with the scenario, as JSON.
    pub truth: PathBuf,
    /// The truth.
    pub totals: Totals,
}

#[derive(Serialize)]
struct TruthFile<'a> {
    scenario: &'a Scenario,
    totals: &'a Totals,
}

/// Runs a scenario and writes `latencies-pre-NAME`, `latencies-post-NAME` and `truth.json` to the
/// folder `dir`, which is made where it is not there. NAME has rate and seed. `progress` hears from
/// time to time how many packets left the generator and may end it all; then no file is left.
///
/// # Errors
/// When the scenario cannot be, a file cannot be written, or `progress` breaks off.
pub fn write_pair(
    scenario: &Scenario,
    dir: &Path,
    format: Format,
    compression: Compression,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Written, Error> {
    let mut simulation = Simulation::new(scenario)?;
    fs::create_dir_all(dir).map_err(|source| io_error(dir, "create", source))?;
    let paths = ["pre", "post"].map(|side| {
        let Scenario { rate_pps, seed, .. } = scenario;
        let suffix = suffix(format, compression);
        dir.join(format!("latencies-{side}-rate{rate_pps}-seed{seed}.{suffix}"))
    });
    let create = |path| Writer::create(path, format, compression);
    let mut captures = [create(&paths[0])?, create(&paths[1])?];
    write(&mut simulation, &mut captures, progress)?;
    for capture in captures {
        capture.finish()?;
    }
    let [pre, post] = paths;
    cut(&post, scenario.cut_bytes).map_err(|source| io_error(&post, "cut", source))?;
    let (truth, totals) = (dir.join("truth.json"), *simulation.totals());
    write_truth(&truth, &TruthFile { scenario, totals: &totals })
        .map_err(|source| io_error(&truth, "write", source))?;
    Ok(Written { pre, post, truth, totals })
}

fn write(
    simulation: &mut Simulation,
    captures: &mut [Writer<Draft>; 2],
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut events = 0;
    while let Some(Event { side, ts, orig_len, data, .. }) = simulation.next_event() {
        captures[side as usize].write(ts, orig_len, data)?;
        events += 1;
        if events % STRIDE == 0 {
            let packets = simulation.totals().pre_packets;
            if progress(packets).is_break() {
                return Err(Error::Interrupted { packets });
            }
        }
    }
    Ok(())
}

fn suffix(format: Format, compression: Compression) -> String {
    let format = match format {
        Format::Pcap => "pcap",
        Format::PcapNg => "pcapng",
        Format::Erf => "erf",
        Format::Snoop => "snoop",
        Format::Mscap => "mscap",
        Format::Link => "link",
    };
    let compression = match compression {
        Compression::None => "",
        Compression::Gzip => ".gz",
        Compression::Zstd => ".zst",
        Compression::Xz => ".xz",
        Compression::Lz4 => ".lz4",
        Compression::Bzip2 => ".bz2",
    };
    format!("{format}{compression}")
}

fn cut(path: &Path, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let file = File::options().write(true).open(path)?;
    file.set_len(file.metadata()?.len().saturating_sub(bytes))?;
    file.sync_all()
}

fn write_truth(path: &Path, truth: &TruthFile<'_>) -> io::Result<()> {
    let mut file = Draft::create(path)?;
    let mut text = serde_json::to_vec_pretty(truth)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.publish()
}

fn io_error(path: &Path, action: &'static str, source: io::Error) -> Error {
    Error::Io { path: path.into(), action, source }
}
