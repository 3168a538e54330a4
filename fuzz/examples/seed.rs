//! Writes what fuzzing starts from into `fuzz/found`: captures, traces and slices that are
//! generated.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use analysis::{Config, Plan, analyze_slice};
use capture::{Compression, Format, Reader, Writer};
use units::Nanos;

/// In a header, behind it, in a record's header, in a packet, and after some.
const CUTS: [usize; 6] = [20, 24, 30, 63, 140, 4_000];
/// As the target has them.
const COMPRESSED: [Compression; 5] =
    [Compression::Gzip, Compression::Zstd, Compression::Xz, Compression::Lz4, Compression::Bzip2];
/// Of a trace: in a page's header, in an event's, in an event, and in the second page.
const PAGE_CUTS: [usize; 5] = [7, 18, 27, 77, 300];
/// As the target has it.
const PAGE_BYTES: usize = 256;

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Packets = Vec<(Nanos, Vec<u8>)>;

/// The folder of seeds.
struct Corpus {
    folder: PathBuf,
    count: usize,
}

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpus = Corpus { folder: root.join("found"), count: 0 };
    corpus.add(Format::Pcap, &foreign_pcap())?;
    corpus.add(Format::PcapNg, &foreign_pcapng())?;
    corpus.add(Format::Pcap, &cooked_pcap())?;
    corpus.add_interfaces()?;
    corpus.add_compressed()?;
    corpus.add_packets(&generated())?;
    corpus.add_trace()?;
    corpus.add_parts()?;
    println!("{} seeds in {}", corpus.count, corpus.folder.display());
    Ok(())
}

impl Corpus {
    /// A capture, whole and cut.
    fn add(&mut self, format: Format, bytes: &[u8]) -> Result<()> {
        for len in CUTS.into_iter().filter(|len| *len < bytes.len()).chain([bytes.len()]) {
            self.write(&format.to_string(), &bytes[..len])?;
        }
        Ok(())
    }

    /// A capture of several interfaces, for two targets.
    fn add_interfaces(&mut self) -> Result<()> {
        let bytes = interfaces_pcapng();
        self.add(Format::PcapNg, &bytes)?;
        self.write("interfaces", &foreign_pcapng())?;
        self.write("interfaces", &[bytes.clone(), bytes.clone()].concat())?;
        self.write("interfaces", &bytes)
    }

    /// Whole and cut captures as each compressor stores them, and what the target is to compress.
    fn add_compressed(&mut self) -> Result<()> {
        let plain = [foreign_pcap(), interfaces_pcapng()];
        for (mode, compression) in COMPRESSED.into_iter().enumerate() {
            for bytes in plain.each_ref().map(|bytes| fuzzed::survey::compress(bytes, compression))
            {
                for len in [bytes.len() / 2, bytes.len() - 1, bytes.len()] {
                    self.write("compressed", &[&[0], &bytes[..len]].concat())?;
                }
            }
            for cut in [0, 3] {
                let head = [mode as u8 + 5, 40, cut];
                self.write("compressed", &[&head, &[7; 60][..]].concat())?;
            }
        }
        Ok(())
    }

    /// Formats with pages, whole and cut, and a format that is cut.
    fn add_trace(&mut self) -> Result<()> {
        let (text, pages) = (formats(), pages());
        self.write("trace", &text.as_bytes()[..text.len() / 2])?;
        for len in PAGE_CUTS.into_iter().chain([pages.len()]) {
            self.write("trace", &[text.as_bytes(), &[0], &pages[..len]].concat())?;
        }
        Ok(())
    }

    /// What slices of a pair and their parts are before they are compressed.
    fn add_parts(&mut self) -> Result<()> {
        let config = Config { window: Nanos(1 << 20), worst: 5, ..Config::default() };
        let pair = || -> Result<(Reader, Reader)> {
            let [pre, post] = [0, 1 << 10].map(|later| capture_of(&generated()[8..], later));
            Ok((Reader::from_bytes("pre", pre?)?, Reader::from_bytes("post", post?)?))
        };
        let (pre, post) = pair()?;
        let slices = Plan::new(pre, post, &config, &mut ())?.cut_at(&[1 << 38, 1 << 39]);
        for slice in &slices {
            let (pre, post) = pair()?;
            let part = analyze_slice(pre, post, slice, &mut ())?;
            for bytes in [slice.to_bytes(), part.to_bytes()] {
                let frame = bytes.iter().position(|byte| *byte == b'\n').ok_or("no first line")?;
                self.write("part", &zstd::decode_all(&bytes[frame + 1..])?)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, target: &str, bytes: &[u8]) -> Result<()> {
        let folder = self.folder.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{}", self.count)), bytes)?;
        self.count += 1;
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

fn capture_of(packets: &[(Nanos, Vec<u8>)], later_ns: u64) -> Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), Format::Pcap, Compression::None)?;
    for (ts, data) in packets {
        writer.write(Nanos(ts.0 + later_ns), 1_500, data)?;
    }
    Ok(writer.into_inner()?)
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

/// Linux cooked: what `tcpdump -i any` writes.
fn cooked_pcap() -> Vec<u8> {
    let header = [0xa1b2_3c4d, 0x0002_0004, 0, 0, 65_535, 113];
    let cooked = [0x0000_0001, 0x0006_0202, 0x0202_0202, 0x0000_0800, 0x4500_0014];
    big_endian(&[&header[..], &[1, 2, 20, 36], &cooked].concat())
}

/// Two interfaces with names, one raw IP and one loopback, with statistics and counts of drops.
fn interfaces_pcapng() -> Vec<u8> {
    let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX, 28];
    let raw = [1, 36, 101 << 16, 96, 2 << 16 | 1, 0x6100_0000, 13 << 16 | 1, 0x0400_0000, 36];
    let loopback = [1, 36, 0, 0, 2 << 16 | 1, 0x6200_0000, 3 << 16 | 1, 0x6300_0000, 36];
    let first = [6, 52, 0, 0, 5, 8, 60, 0x4500_0014, 1, 4 << 16 | 8, 0, 3, 52];
    let second = [6, 40, 1, 0, 6, 8, 60, 2, 0x4500_0014, 40];
    let statistics = [5, 36, 0, 0, 7, 5 << 16 | 8, 0, 9, 36];
    big_endian(&[&section[..], &raw, &loopback, &first, &second, &statistics].concat())
}

fn big_endian(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Of an event: group, name, and fields of four bytes, the first of them after the task's.
type Event = (&'static str, &'static str, &'static [&'static str]);

/// One of each meaning; an event's number is its place.
const EVENTS: [Event; 19] = [
    ("irq_vectors", "local_timer_entry", &["int vector"]),
    ("irq_vectors", "local_timer_exit", &["int vector"]),
    ("irq_vectors", "reschedule_entry", &["int vector"]),
    ("irq_vectors", "reschedule_exit", &["int vector"]),
    ("irq", "irq_handler_entry", &["int irq", "__data_loc char[] name"]),
    ("irq", "irq_handler_exit", &["int irq"]),
    ("irq", "softirq_entry", &["unsigned int vec"]),
    ("irq", "softirq_exit", &["unsigned int vec"]),
    ("exceptions", "page_fault_user", &["unsigned long address"]),
    ("nmi", "nmi_handler", &["void * handler"]),
    ("sched", "sched_switch", &["pid_t next_pid", "__data_loc char[] next_comm"]),
    ("tlb", "tlb_flush", &["int reason"]),
    ("csd", "csd_function_entry", &["void * func"]),
    ("timer", "hrtimer_expire_entry", &["void * function"]),
    ("ipi", "ipi_send_cpu", &["unsigned int cpu", "void * callback"]),
    ("ipi", "ipi_send_cpumask", &["__data_loc unsigned long[] cpumask", "void * callback"]),
    ("osnoise", "nmi_noise", &["u64 duration"]),
    ("workqueue", "workqueue_execute_start", &["void * function"]),
    ("workqueue", "workqueue_execute_end", &["void * function"]),
];

fn formats() -> String {
    let format = |(id, (group, name, fields)): (usize, &Event)| {
        let head = format!("{group}\nname: {name}\nID: {id}\nformat:\n");
        let all = ["unsigned int common_type", "int common_pid"].iter().chain(*fields);
        let place = |(at, field)| format!("\tfield:{field};\toffset:{};\tsize:4;\n", 4 * at);
        head + &all.enumerate().map(place).collect::<String>()
    };
    EVENTS.iter().enumerate().map(format).collect::<Vec<_>>().join("\x0c")
}

/// Every kind of entry and of event: four pages, before the last of which some were lost.
fn pages() -> Vec<u8> {
    let (padding, extend, stamp) = (29, 30, 31);
    let name = 3 << 16 | 16;
    let nested = [
        entry(4, 5, &[10, 1, 7, name, 0x0061_6263]),
        entry(3, 1, &[0, 7, 236]),
        entry(3, 1, &[13, 7, 99]),
        entry(extend, 1, &[1]),
        entry(5, 1, &[4, 7, 30, name, 0x0064_6566]),
        entry(3, 2, &[5, 7, 30]),
        entry(3, 2, &[1, 7, 236]),
        entry(padding, 1, &[8, 0]),
        entry(3, 2, &[6, 7, 1]),
        entry(3, 2, &[8, 7, 1]),
        entry(3, 2, &[7, 7, 1]),
        entry(padding, 0, &[]),
    ];
    let sent = [
        entry(0, 1, &[20, 14, 3, 0, 1]),
        entry(5, 1, &[15, 3, 4 << 16 | 16, 1, 1]),
        entry(3, 1, &[2, 3, 253]),
        entry(3, 1, &[11, 3, 1]),
        entry(3, 1, &[12, 3, 77]),
        entry(3, 1, &[3, 3, 253]),
        entry(3, 1, &[0, 3, 236]),
        entry(3, 1, &[9, 3, 1]),
        entry(3, 1, &[16, 3, 1]),
    ];
    let worker = [10, 1, 7, 11 << 16 | 16, 0x726f_776b, 0x2f72_656b, 0x0032_3a31];
    let works = [
        entry(7, 1, &worker),
        entry(3, 1, &[17, 7, 71]),
        entry(3, 2, &[0, 7, 236]),
        entry(3, 1, &[17, 7, 72]),
        entry(3, 1, &[18, 7, 72]),
        entry(3, 1, &[1, 7, 236]),
        entry(3, 2, &[18, 7, 71]),
    ];
    let late = [entry(stamp, 9, &[2]), entry(3, 1, &[1, 3, 236]), entry(1, 1, &[1])];
    let lost = 1 << 31 | 1 << 30;
    let first = [page(1_000, 0, &nested), page(2_000, 0, &sent), page(2_500, 0, &works)];
    [&first[..], &[page(3_000, lost, &late)]].concat().concat()
}

fn entry(kind: u32, delta: u32, words: &[u32]) -> Vec<u8> {
    [&[kind | delta << 5], words].concat().iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn page(time: u64, flags: u64, entries: &[Vec<u8>]) -> Vec<u8> {
    let data = entries.concat();
    let head = [time, data.len() as u64 | flags].map(u64::to_le_bytes).concat();
    let mut page = [head, data].concat();
    assert!(page.len() <= PAGE_BYTES, "a page is longer than the target's");
    page.resize(PAGE_BYTES, 0);
    page
}
