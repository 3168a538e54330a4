//! Slices and parts as bytes, so that they can be sent.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use capture::{
    ByteOrder, ChosenInterface, Compression, Cut, Format, Info, LinkType, Mark, Resolution, Trailer,
};
use probe::flow::Flow;
use probe::key::MatchOn;
use units::Nanos;

use crate::basis::{Basis, Bounds, Clocks, Grid, Skew, Tried};
use crate::bytes::{MOST, Reading, Writing, open};
use crate::config::Config;
use crate::counts::Counts;
use crate::doubts::Doubts;
use crate::error::Error;
use crate::floor::Floor;
use crate::histogram::Histogram;
use crate::ledger::Ledger;
use crate::matcher::Tail;
use crate::pair::Analysis;
use crate::part::{Covered, Part};
use crate::side::Side;
use crate::skim::Head;
use crate::slice::{Portion, Slice};
use crate::variation::Variation;
use crate::worst::{Worst, worst_of};

/// Goes up whenever other bytes are written.
pub const ENCODING_VERSION: u32 = 8;

const SLICE: &str = "slice";
const PART: &str = "part";

const FORMATS: [Format; 6] =
    [Format::Pcap, Format::PcapNg, Format::Erf, Format::Snoop, Format::Mscap, Format::Link];
const COMPRESSIONS: [Compression; 6] = [
    Compression::None,
    Compression::Gzip,
    Compression::Zstd,
    Compression::Xz,
    Compression::Lz4,
    Compression::Bzip2,
];
const BYTE_ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

impl Slice {
    /// Returns the slice as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = Writing::default();
        write_config(&mut to, &self.config);
        write_basis(&mut to, &self.basis);
        write_times(&mut to, &self.own);
        self.sides.iter().for_each(|side| write_portion(&mut to, side));
        to.finish(SLICE, ENCODING_VERSION)
    }

    /// Reads a slice from the bytes of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// When `bytes` are something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let content = open(bytes, SLICE, ENCODING_VERSION)?;
        let mut from = Reading::new(SLICE, &content);
        let (config, basis) = (read_config(&mut from)?, read_basis(&mut from)?);
        let own = read_times(&mut from)?;
        let sides = [read_portion(&mut from)?, read_portion(&mut from)?];
        from.end()?;
        Ok(Self { config, basis, own, sides })
    }
}

impl Part {
    /// Returns the part as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { heads, covered, sightings, found } = self;
        let Analysis { config, basis, counts, latency, variation, reordered, worst, .. } = found;
        // What `from_bytes` will ask for.
        assert!(!covered.is_empty(), "a part covers something");
        assert_eq!(latency.count(), counts.matched, "every match has its latency");
        assert!(worst.len() <= config.worst, "no more of the worst than are wanted");
        let mut to = Writing::default();
        write_config(&mut to, config);
        write_basis(&mut to, basis);
        heads.iter().for_each(|head| write_head(&mut to, head));
        to.list(covered, write_covered);
        to.list(&sightings.iter().collect::<Vec<_>>(), |to, (flow, counts)| {
            write_flow(to, flow);
            counts.iter().for_each(|count| to.number(*count));
        });
        // Less than nothing may have been lost.
        counts.clone().all().into_iter().for_each(|count| to.signed(*count as i64));
        write_histogram(&mut to, latency);
        write_variation(&mut to, variation);
        to.number(*reordered);
        to.number(found.local_behind);
        to.list(worst, write_worst);
        [&found.pre, &found.post].into_iter().for_each(|of| write_side(&mut to, &of.side));
        write_tail(&mut to, &found.tail);
        to.list(&found.floor.fastest(), |to, (ts, ns)| {
            to.number(*ts);
            to.signed(*ns);
        });
        to.number(found.torn.into());
        to.finish(PART, ENCODING_VERSION)
    }

    /// Reads a part from the bytes of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// When `bytes` are something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let content = open(bytes, PART, ENCODING_VERSION)?;
        let mut from = Reading::new(PART, &content);
        let (config, basis) = (read_config(&mut from)?, read_basis(&mut from)?);
        let heads = [read_head(&mut from)?, read_head(&mut from)?];
        let covered = from.list(read_covered)?;
        let apart = covered.is_sorted_by(|a, b| a.times.end() < b.times.start());
        from.expect(apart && !covered.is_empty(), "others", "stretches that ascend")?;
        let sighting =
            |from: &mut Reading<'_>| Ok((read_flow(from)?, [from.count()?, from.count()?]));
        let sightings = from.list(sighting)?.into_iter().collect();
        let counts = read_counts(&mut from)?;
        let latency = read_histogram(&mut from)?;
        from.expect(latency.count() == counts.matched, latency.count(), "a latency a match")?;
        let variation = read_variation(&mut from)?;
        let (reordered, local_behind) = (from.count()?, from.count()?);
        let worst = from.list(read_worst)?;
        let ordered = worst_of(worst.clone(), config.worst) == worst;
        from.expect(ordered, "others", "the worst in order")?;
        let pre = heads[0].captured(read_side(&mut from, &heads[0], &config)?);
        let post = heads[1].captured(read_side(&mut from, &heads[1], &config)?);
        let tail = read_tail(&mut from)?;
        let floor = read_floor(&mut from)?;
        let torn = read_flag(&mut from)?;
        from.end()?;
        let instrument = None;
        let found = Analysis {
            config,
            basis,
            counts,
            latency,
            variation,
            reordered,
            worst,
            pre,
            post,
            instrument,
            local_behind,
            resegmented_ns: Vec::new(),
            corruptions: Vec::new(),
            tcp: None,
            ledger: Ledger::default(),
            tail,
            floor,
            residue: None,
            considerable: false,
            torn,
        };
        Ok(Self { heads, covered, sightings, found })
    }
}

fn write_flow(to: &mut Writing, flow: &Flow) {
    for address in [flow.from, flow.to] {
        to.number((address >> 64) as u64);
        to.number(address as u64);
    }
    for field in [flow.ethertype, flow.protocol.into(), flow.tos.into()] {
        to.number(field.into());
    }
    for field in [flow.from_port, flow.to_port, flow.vlan] {
        to.option(field, |to, field| to.number(field.into()));
    }
}

fn read_flow(from: &mut Reading<'_>) -> Result<Flow, Error> {
    let address = |from: &mut Reading<'_>| {
        Ok::<_, Error>(u128::from(from.number()?) << 64 | u128::from(from.number()?))
    };
    let half = |from: &mut Reading<'_>| {
        let number = from.number()?;
        u16::try_from(number).map_err(|_| from.flaw(number, "a number of 16 bits"))
    };
    let byte = |from: &mut Reading<'_>| {
        let number = from.number()?;
        u8::try_from(number).map_err(|_| from.flaw(number, "a number of 8 bits"))
    };
    Ok(Flow {
        from: address(from)?,
        to: address(from)?,
        ethertype: half(from)?,
        protocol: byte(from)?,
        tos: byte(from)?,
        from_port: from.option(half)?,
        to_port: from.option(half)?,
        vlan: from.option(half)?,
    })
}

fn write_config(to: &mut Writing, config: &Config) {
    assert!(!config.whole, "slices are of captures whose extent nobody knows");
    to.text(&config.match_on.to_string());
    to.option(config.joined_by.as_ref(), |to, key| to.text(&key.to_string()));
    to.number(config.window.0);
    to.number(config.trim.0);
    to.number(config.worst as u64);
    to.number(config.max_in_flight as u64);
    let (kind, skew, relative, bounds) = match config.clocks {
        Clocks::Detect => (0, Skew::NONE, false, Bounds::default()),
        Clocks::Same => (1, Skew::NONE, false, Bounds::default()),
        Clocks::Apart { skew, relative, bounds } => (2, skew, relative, bounds),
    };
    to.number(kind);
    to.signed(skew.offset_ns);
    to.signed(skew.drift_ppt);
    to.number(skew.since_ns);
    to.number(relative.into());
    to.option(bounds.offset_low_ns, Writing::signed);
    to.option(bounds.offset_high_ns, Writing::signed);
    to.option(bounds.drift_error_ppt, Writing::signed);
}

fn write_basis(to: &mut Writing, basis: &Basis) {
    to.option(basis.limit_bytes, |to, limit| to.number(limit.into()));
    to.number(basis.copies_ns);
    to.number(basis.two_way.into());
    to.number(basis.routed.into());
    to.number(basis.gains.into());
    for flows in [&basis.back, &basis.back_behind] {
        to.list(&flows.iter().collect::<Vec<_>>(), |to, (from, into)| {
            to.list(from, |to, byte| to.number((*byte).into()));
            to.list(into, |to, byte| to.number((*byte).into()));
        });
    }
    for trailer in basis.trailers {
        to.option(trailer, |to, trailer| to.number(place_of(trailer, &Trailer::ALL)));
    }
    to.number(basis.grid.ns);
    to.number(basis.grid.ticks);
    to.list(&basis.tried, |to, tried| {
        to.text(&tried.key);
        to.number(tried.matched);
        to.number(tried.of);
    });
}

fn read_basis(from: &mut Reading<'_>) -> Result<Basis, Error> {
    let limit = |from: &mut Reading<'_>| {
        let limit = from.number()?;
        u32::try_from(limit).map_err(|_| from.flaw(limit, "less than 2^32"))
    };
    let (limit_bytes, copies_ns) = (from.option(limit)?, from.number()?);
    let (two_way, routed, gains) = (read_flag(from)?, read_flag(from)?, read_flag(from)?);
    let flow = |from: &mut Reading<'_>| Ok((read_bytes(from)?, read_bytes(from)?));
    let back = from.list(flow)?.into_iter().collect();
    let back_behind = from.list(flow)?.into_iter().collect();
    let trailer = |from: &mut Reading<'_>| at_place(from, &Trailer::ALL);
    let trailers = [from.option(trailer)?, from.option(trailer)?];
    let grid = Grid { ns: from.number()?, ticks: from.number()? };
    from.expect(grid.ns > 0 && grid.ticks > 0, "none", "a grid")?;
    let tried = from
        .list(|from| Ok(Tried { key: from.text()?, matched: from.count()?, of: from.count()? }))?;
    // Where packets travel both ways, no pair is divided.
    let forth = BTreeSet::new();
    Ok(Basis {
        limit_bytes,
        copies_ns,
        two_way,
        routed,
        gains,
        back,
        forth,
        back_behind,
        trailers,
        grid,
        tried,
    })
}

fn read_bytes(from: &mut Reading<'_>) -> Result<Vec<u8>, Error> {
    from.list(|from| {
        let byte = from.number()?;
        u8::try_from(byte).map_err(|_| from.flaw(byte, "less than 256"))
    })
}

fn read_flag(from: &mut Reading<'_>) -> Result<bool, Error> {
    let flag = from.number()?;
    from.expect(flag <= 1, flag, "0 or 1")?;
    Ok(flag == 1)
}

fn write_tail(to: &mut Writing, tail: &Tail) {
    to.list(&tail.near_ns, |to, ts| to.number(*ts));
    to.number(tail.after);
    to.number(tail.post_after);
}

fn read_tail(from: &mut Reading<'_>) -> Result<Tail, Error> {
    let near_ns = from.list(Reading::number)?;
    Ok(Tail { near_ns, after: from.count()?, post_after: from.count()? })
}

fn read_floor(from: &mut Reading<'_>) -> Result<Floor, Error> {
    let fastest = from.list(|from| Ok((from.number()?, from.signed()?)))?;
    from.expect(fastest.is_sorted_by_key(|(ts, _)| *ts), "others", "times that ascend")?;
    let mut floor = Floor::default();
    fastest.into_iter().for_each(|(ts, ns)| floor.push(ts, ns));
    Ok(floor)
}

fn read_config(from: &mut Reading<'_>) -> Result<Config, Error> {
    let key = |from: &mut Reading<'_>| {
        let text = from.text()?;
        text.parse::<MatchOn>().map_err(|error| from.flaw(error, "what to match on"))
    };
    let config = Config {
        match_on: key(from)?,
        joined_by: from.option(key)?,
        window: Nanos(from.number()?),
        trim: Nanos(from.number()?),
        worst: from.number()? as usize,
        max_in_flight: from.number()? as usize,
        clocks: read_clocks(from)?,
        doubts: Doubts::default(),
        whole: false,
    };
    from.expect(config.check().is_ok(), config.window, "a window that there is")?;
    Ok(config)
}

fn read_clocks(from: &mut Reading<'_>) -> Result<Clocks, Error> {
    let kind = from.number()?;
    let (offset_ns, drift_ppt) = (from.signed()?, from.signed()?);
    let skew = Skew { offset_ns, drift_ppt, since_ns: from.number()? };
    let relative = read_flag(from)?;
    let bounds = Bounds {
        offset_low_ns: from.option(Reading::signed)?,
        offset_high_ns: from.option(Reading::signed)?,
        drift_error_ppt: from.option(Reading::signed)?,
    };
    match kind {
        0 => Ok(Clocks::Detect),
        1 => Ok(Clocks::Same),
        2 => Ok(Clocks::Apart { skew, relative, bounds }),
        other => Err(from.flaw(other, "0, 1 or 2")),
    }
}

fn write_times(to: &mut Writing, times: &RangeInclusive<u64>) {
    assert!(times.start() <= times.end(), "times ascend");
    to.number(*times.start());
    to.number(times.end() - times.start());
}

fn read_times(from: &mut Reading<'_>) -> Result<RangeInclusive<u64>, Error> {
    let (start, len) = (from.number()?, from.number()?);
    let end = start.checked_add(len).ok_or_else(|| from.flaw(len, "an end within 64 bits"))?;
    Ok(start..=end)
}

/// Writes two numbers that ascend.
fn write_ends(to: &mut Writing, ends: (u64, u64)) {
    write_times(to, &(ends.0..=ends.1));
}

fn read_ends(from: &mut Reading<'_>) -> Result<(u64, u64), Error> {
    read_times(from).map(RangeInclusive::into_inner)
}

fn write_portion(to: &mut Writing, Portion { head, mark, bytes }: &Portion) {
    write_head(to, head);
    to.number(mark.file_bytes);
    to.number(mark.offset);
    to.number(mark.packets);
    to.list(&mark.headers, |to, at| to.number(*at));
    to.number(*bytes);
}

fn read_portion(from: &mut Reading<'_>) -> Result<Portion, Error> {
    let head = read_head(from)?;
    let mark = Mark {
        file_bytes: from.count()?,
        offset: from.count()?,
        packets: from.count()?,
        headers: from.list(Reading::count)?,
    };
    Ok(Portion { head, mark, bytes: from.count()? })
}

fn write_head(to: &mut Writing, head: &Head) {
    write_info(to, &head.info);
    to.option(head.cut.as_ref(), |to, cut| {
        to.number(cut.offset);
        to.number(cut.packets);
        to.text(&cut.reason);
    });
    to.number(head.packets);
    to.option(head.first_ns, Writing::number);
    to.option(head.last_ns, Writing::number);
    to.option(head.origin_ns, Writing::number);
    to.number(head.disordered);
    to.number(head.disorder_ns_max);
}

fn read_head(from: &mut Reading<'_>) -> Result<Head, Error> {
    let info = read_info(from)?;
    let cut = |from: &mut Reading<'_>| {
        Ok(Cut { offset: from.number()?, packets: from.number()?, reason: from.text()? })
    };
    Ok(Head {
        info,
        cut: from.option(cut)?,
        packets: from.count()?,
        first_ns: from.option(Reading::number)?,
        last_ns: from.option(Reading::number)?,
        origin_ns: from.option(Reading::number)?,
        disordered: from.count()?,
        disorder_ns_max: from.number()?,
    })
}

fn write_info(to: &mut Writing, info: &Info) {
    to.text(&info.name);
    to.number(place_of(info.format, &FORMATS));
    to.number(place_of(info.compression, &COMPRESSIONS));
    to.number(place_of(info.byte_order, &BYTE_ORDERS));
    to.option(info.resolution, |to, resolution| {
        to.number(resolution.base().into());
        to.number(resolution.exponent().into());
    });
    to.list(&info.link_types, |to, link_type| to.number(link_type.0.into()));
    to.option(info.interface.as_ref(), |to, interface| {
        to.number(interface.number.into());
        to.option(interface.name.as_deref(), Writing::text);
    });
    to.option(info.snap_length, |to, bytes| to.number(bytes.into()));
    to.option(info.dropped_packets, Writing::number);
}

fn read_info(from: &mut Reading<'_>) -> Result<Info, Error> {
    Ok(Info {
        name: from.text()?,
        format: at_place(from, &FORMATS)?,
        compression: at_place(from, &COMPRESSIONS)?,
        byte_order: at_place(from, &BYTE_ORDERS)?,
        resolution: from.option(read_resolution)?,
        link_types: from.list(|from| read_word(from).map(LinkType))?,
        interface: from.option(read_interface)?,
        snap_length: from.option(read_word)?,
        dropped_packets: from.option(Reading::number)?,
        stamps: None,
    })
}

fn read_interface(from: &mut Reading<'_>) -> Result<ChosenInterface, Error> {
    Ok(ChosenInterface { number: read_word(from)?, name: from.option(Reading::text)? })
}

fn read_word(from: &mut Reading<'_>) -> Result<u32, Error> {
    let number = from.number()?;
    u32::try_from(number).map_err(|_| from.flaw(number, "a number of 32 bits"))
}

fn read_resolution(from: &mut Reading<'_>) -> Result<Resolution, Error> {
    let (base, exponent) = (from.number()?, from.number()?);
    let both = u8::try_from(base).ok().zip(u8::try_from(exponent).ok());
    both.and_then(|(base, exponent)| Resolution::new(base, exponent))
        .ok_or_else(|| from.flaw(format!("{base}^-{exponent}"), "a unit of time"))
}

fn place_of<T: PartialEq>(item: T, among: &[T]) -> u64 {
    among.iter().position(|other| *other == item).expect("all of them are listed") as u64
}

fn at_place<T: Copy>(from: &mut Reading<'_>, among: &[T]) -> Result<T, Error> {
    let place = from.number()?;
    let found = usize::try_from(place).ok().and_then(|place| among.get(place));
    found.copied().ok_or_else(|| from.flaw(place, format!("less than {}", among.len())))
}

fn write_covered(to: &mut Writing, covered: &Covered) {
    write_times(to, &covered.times);
    to.option(covered.matches, |to, (first, last)| {
        write_ends(to, (first.0, last.0));
        to.number(first.1);
        to.number(last.1);
    });
    covered.kept.iter().for_each(|kept| to.option(*kept, write_ends));
}

fn read_covered(from: &mut Reading<'_>) -> Result<Covered, Error> {
    let times = read_times(from)?;
    let matches = from.option(|from| {
        let (first, last) = read_ends(from)?;
        from.expect(last < u64::MAX, last, "a place in pre")?;
        Ok(((first, from.number()?), (last, from.number()?)))
    })?;
    let kept = [from.option(read_ends)?, from.option(read_ends)?];
    let within = |(first, last)| times.contains(&first) && times.contains(&last);
    let all = kept.iter().flatten().copied().all(within);
    from.expect(all, "others", "packets within their stretch")?;
    Ok(Covered { times, matches, kept })
}

fn read_counts(from: &mut Reading<'_>) -> Result<Counts, Error> {
    let mut counts = Counts::default();
    for count in counts.all() {
        *count = from.signed()? as u64;
    }
    Ok(counts)
}

/// Writes each value as the step from the one before, and how often it was counted.
fn write_histogram(to: &mut Writing, histogram: &Histogram) {
    let (mut values, mut former) = (Writing::default(), 0);
    let mut different = 0;
    histogram.for_each(|value, count| {
        values.number(value - former);
        values.number(count);
        former = value;
        different += 1;
    });
    to.option(histogram.bounded(), |to, (exact_to, ends, sum)| {
        let [low, high] = [sum as u64, (sum >> 64) as u64];
        [exact_to, ends[0], ends[1], low, high].into_iter().for_each(|number| to.number(number));
    });
    to.number(different);
    to.append(values);
}

fn read_histogram(from: &mut Reading<'_>) -> Result<Histogram, Error> {
    let bounded = from.option(|from| {
        let (exact_to, ends) = (from.number()?, [from.number()?, from.number()?]);
        let [low, high] = [from.number()?, from.number()?].map(u128::from);
        Ok((exact_to, ends, high << 64 | low))
    })?;
    let stepped = |(exact_to, ..): &(u64, _, _)| Histogram::stepped_above(*exact_to);
    let (mut histogram, mut former) =
        (bounded.as_ref().map_or_else(Histogram::default, stepped), None);
    for _ in 0..from.count()? {
        let (step, count) = (from.number()?, from.count()?);
        let value = former.unwrap_or(0u64).checked_add(step);
        let value = value.filter(|value| former.is_none_or(|former| former < *value));
        let value = value.ok_or_else(|| from.flaw(step, "values that ascend"))?;
        from.expect(count > 0, count, "at least 1")?;
        histogram.record_many(value, count);
        from.expect(histogram.count() < MOST, histogram.count(), "less than 2^48")?;
        former = Some(value);
    }
    if let Some((_, ends, sum)) = bounded {
        let holds = histogram.count() == 0 || histogram.learn(ends, sum);
        from.expect(
            holds,
            format!("{ends:?}"),
            "the least and the highest value, and a sum of all",
        )?;
    }
    Ok(histogram)
}

fn write_variation(to: &mut Writing, variation: &Variation) {
    write_histogram(to, &variation.magnitude);
    to.signed(variation.min_ns);
    to.signed(variation.max_ns);
}

/// Reads the variation; what was first and last lies in the stretches.
fn read_variation(from: &mut Reading<'_>) -> Result<Variation, Error> {
    let magnitude = read_histogram(from)?;
    Ok(Variation { ends: None, magnitude, min_ns: from.signed()?, max_ns: from.signed()? })
}

fn write_worst(to: &mut Writing, worst: &Worst) {
    let Worst { pre_ns, latency_ns, seq, tag, .. } = *worst;
    [pre_ns, latency_ns, seq, tag].into_iter().for_each(|number| to.number(number));
}

fn read_worst(from: &mut Reading<'_>) -> Result<Worst, Error> {
    let (pre_ns, latency_ns) = (from.number()?, from.number()?);
    let end = pre_ns.checked_add(latency_ns);
    from.expect(end.is_some(), latency_ns, "an arrival within 64 bits")?;
    let (seq, tag, variety) = (from.number()?, from.number()?, None);
    Ok(Worst { pre_ns, latency_ns, seq, tag, variety })
}

fn write_side(to: &mut Writing, side: &Side) {
    to.number(side.packets);
    to.number(side.kept);
    write_histogram(to, &side.gaps);
    to.list(&side.rate, |to, (start, count)| {
        to.number(*start);
        to.number(*count);
    });
}

fn read_side(from: &mut Reading<'_>, head: &Head, config: &Config) -> Result<Side, Error> {
    let (packets, kept) = (from.count()?, from.count()?);
    from.expect(kept <= packets, kept, "no more than all packets")?;
    let gaps = read_histogram(from)?;
    let rate = from.list(|from| Ok((from.number()?, from.count()?)))?;
    let ascend = rate.is_sorted_by(|a, b| a.0 < b.0);
    let sum: u128 = rate.iter().map(|(_, count)| u128::from(*count)).sum();
    from.expect(ascend && sum == u128::from(kept), sum, "seconds that ascend, with all packets")?;
    Ok(Side { packets, kept, gaps, rate, ..head.side(config.trim) })
}
