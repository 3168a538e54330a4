//! Writes the captures that fuzzing starts from into `fuzz/corpus`: generated ones, and beginnings
//! of real ones where those lie beside the project. None of it is kept in the repository.

use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use capture::{Compression, Format, Reader, Writer};
use units::Nanos;

/// In a header, behind it, in a record's header, in a packet, and after some.
const CUTS: [usize; 6] = [20, 24, 30, 63, 140, 4_000];
const PACKETS: usize = 30;

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Packets = Vec<(Nanos, Vec<u8>)>;

/// The folder of seeds.
struct Corpus {
    folder: PathBuf,
    count: usize,
}

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpus = Corpus { folder: root.join("corpus"), count: 0 };
    corpus.add(Format::Pcap, &foreign_pcap())?;
    corpus.add(Format::PcapNg, &foreign_pcapng())?;
    corpus.add_packets(&generated())?;
    let mut real = Vec::new();
    find(&root.join("../../shared/data"), &mut real);
    for path in real {
        corpus.add(Format::Pcap, &beginning(&path)?)?;
        corpus.add_packets(&first_packets(&path)?)?;
    }
    println!("{} seeds in {}", corpus.count, corpus.folder.display());
    Ok(())
}

impl Corpus {
    /// A capture, whole and cut.
    fn add(&mut self, format: Format, bytes: &[u8]) -> Result<()> {
        let folder = self.folder.join(format.to_string());
        fs::create_dir_all(&folder)?;
        for len in CUTS.into_iter().filter(|len| *len < bytes.len()).chain([bytes.len()]) {
            fs::write(folder.join(format!("seed-{}", self.count)), &bytes[..len])?;
            self.count += 1;
        }
        Ok(())
    }

    fn add_packets(&mut self, packets: &Packets) -> Result<()> {
        for format in [Format::Pcap, Format::PcapNg] {
            let mut writer = Writer::new(Vec::new(), format, Compression::None)?;
            for (ts, data) in packets {
                writer.write(*ts, 1_500, data)?;
            }
            self.add(format, &writer.into_inner()?)?;
        }
        Ok(())
    }
}

fn generated() -> Packets {
    (0..20u8).map(|seq| (Nanos(u64::from(seq) << 36), vec![seq; usize::from(seq) * 9])).collect()
}

/// Big-endian, in microseconds.
fn foreign_pcap() -> Vec<u8> {
    let header = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 1];
    let records = [1, 999_999, 4, 60, 0x0102_0304, u32::MAX, 0, 0, 60];
    big_endian(&[&header[..], &records].concat())
}

/// Big-endian, with a binary clock that is shifted, every kind of block and a second section.
fn foreign_pcapng() -> Vec<u8> {
    let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX, 28];
    let (tsresol, tsoffset) = ([9 << 16 | 1, 0x9400_0000], [14 << 16 | 8, 0, 3_600]);
    let interface = [&[1, 40, 1 << 16, 0][..], &tsresol, &tsoffset, &[40]].concat();
    let enhanced = [6, 36, 0, 0, 5, 4, 60, 0x0102_0304, 36];
    let obsolete = [2, 36, 7, 0, 5, 4, 60, 0x0102_0304, 36];
    let unknown = [0x0bad, 16, 0, 16];
    let simple = [3, 20, 4, 0x0102_0304, 20];
    let one = [&section[..], &interface, &enhanced, &unknown, &obsolete].concat();
    big_endian(&[&one[..], &one, &simple].concat())
}

fn big_endian(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, found);
        } else if path.to_string_lossy().ends_with(".pcap.zst") {
            found.push(path);
        }
    }
}

/// The first bytes of a real capture, as they are.
fn beginning(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    zstd::Decoder::new(File::open(path)?)?.take(5_000).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn first_packets(path: &Path) -> Result<Packets> {
    let mut reader = Reader::open(path)?;
    let mut packets = Packets::new();
    while packets.len() < PACKETS {
        let Some(packet) = reader.next()? else { break };
        packets.push((packet.ts, packet.data.into()));
    }
    Ok(packets)
}
