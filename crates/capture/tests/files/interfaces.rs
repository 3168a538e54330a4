//! Captures of several interfaces: whose packets are read, and what was dropped.

use std::fs;
use std::io::Write;

use crate::common::{Bytes, COMPRESSED, NANOS, Owned, compress, drain};
use capture::{ByteOrder, ChosenInterface, Compression, Error, Interface, InterfaceChoice};
use capture::{LinkType, Mark, Reader, Resolution, interfaces};
use proptest::prelude::*;

const IF_RECV: u16 = 4;
const IF_DROP: u16 = 5;
const OS_DROP: u16 = 7;

fn section() -> Bytes {
    Bytes::new(ByteOrder::Little).section()
}

fn both() -> Bytes {
    four_packets(section().named("tap-in").named("tap-out"))
}

fn four_packets(start: Bytes) -> Bytes {
    start.enhanced(0, 1, &[10]).enhanced(1, 2, &[20]).enhanced(0, 3, &[11]).enhanced(1, 4, &[21])
}

fn name(name: &str) -> InterfaceChoice {
    InterfaceChoice::Name(name.into())
}

/// The first bytes of the packets that are read, and the reader at its end.
fn firsts(capture: &Bytes, choice: InterfaceChoice) -> (Vec<u8>, Reader) {
    let mut reader = capture.choose(choice).expect("a capture");
    let (packets, error) = drain(&mut reader);
    assert!(error.is_none(), "{error:?}");
    (packets.iter().map(|packet| packet.data[0]).collect(), reader)
}

fn chosen(capture: &Bytes, choice: InterfaceChoice) -> Vec<u8> {
    firsts(capture, choice).0
}

fn refusal(capture: &Bytes, choice: InterfaceChoice) -> String {
    let error = capture.choose(choice).err().expect("an error");
    assert!(error.hint().is_some());
    error.to_string()
}

fn dropped(capture: &Bytes, choice: InterfaceChoice) -> Option<u64> {
    firsts(capture, choice).1.info().dropped_packets
}

#[test]
fn an_interface_is_chosen_by_name_description_or_number() {
    let capture = both().interface(1, |options| options.option(3, b"third\0"));
    assert_eq!(chosen(&capture, InterfaceChoice::All), [10, 20, 11, 21]);
    for choice in [name("tap-out"), InterfaceChoice::Number(1)] {
        let (packets, reader) = firsts(&both(), choice);
        assert_eq!(packets, [20, 21]);
        let chosen = ChosenInterface { number: 1, name: Some("tap-out".into()) };
        assert_eq!(reader.info().interface, Some(chosen));
    }
    let described = section()
        .interface(1, |options| options.option(2, b"a").option(3, b"b"))
        .interface(1, |options| options.option(2, b"b").option(3, b"c"))
        .enhanced(0, 1, &[10])
        .enhanced(1, 1, &[20]);
    // A name goes before a description.
    assert_eq!(chosen(&described, name("b")), [20]);
    assert_eq!(chosen(&described, name("c")), [20]);
    assert_eq!(firsts(&both(), InterfaceChoice::All).1.info().interface, None);
}

#[test]
fn a_choice_that_is_none_lists_what_there_is() {
    let holds = "it holds: 0 tap-in (Ethernet), 1 tap-out (Ethernet)";
    let text = format!("tap-x: no such interface in made.pcap; {holds}");
    assert_eq!(refusal(&both(), name("tap-x")), text);
    let text = format!("2: no such interface in made.pcap; {holds}");
    assert_eq!(refusal(&both(), InterfaceChoice::Number(2)), text);
    let twice = section()
        .named("a")
        .interface(127, |options| options.option(2, b"a").option(3, b"second"))
        .enhanced(0, 1, &[1]);
    let text = "a: 2 interfaces of this name in made.pcap; it holds: 0 a (Ethernet), \
                1 a \"second\" (IEEE 802.11 radiotap)";
    assert_eq!(refusal(&twice, name("a")), text);
    assert_eq!(chosen(&twice, InterfaceChoice::Number(0)), [1]);
    assert_eq!(chosen(&twice, name("second")), []);
    // A capture without packets is one, of interfaces or of none.
    let none = section();
    assert_eq!(chosen(&none, InterfaceChoice::All), []);
    assert!(refusal(&none, name("a")).ends_with("in made.pcap; it holds: none"));
    assert_eq!(chosen(&section().named("a"), name("a")), []);
}

#[test]
fn what_is_described_behind_the_first_packet_can_not_be_chosen() {
    let late = section().named("a").enhanced(0, 1, &[1]).named("b").enhanced(1, 2, &[2]);
    assert_eq!(chosen(&late, InterfaceChoice::All), [1, 2]);
    assert_eq!(chosen(&late, name("a")), [1]);
    assert!(refusal(&late, name("b")).contains("it holds: 0 a (Ethernet)"));
    // Nor does it make a choice ambiguous.
    let again = section().named("a").enhanced(0, 1, &[1]).named("a").enhanced(1, 2, &[2]);
    assert_eq!(chosen(&again, name("a")), [1]);
}

#[test]
fn pcap_has_one_interface_without_a_name() {
    let capture = Bytes::new(ByteOrder::Little).pcap(NANOS, 1).record(1, 0, 1, &[7]);
    assert_eq!(chosen(&capture, InterfaceChoice::Number(0)), [7]);
    let text = "eth0: no such interface in made.pcap; it holds: 0 (Ethernet)";
    assert_eq!(refusal(&capture, name("eth0")), text);
}

#[test]
fn only_the_chosen_interface_has_to_be_readable() {
    let radio = |options: Bytes| options.option(2, b"radio");
    let capture = four_packets(section().named("tap-in").named("tap-out").interface(127, radio))
        .enhanced(2, 5, &[30])
        .block(6, |body| body.words(&[1, 0, 6, 4_000, 10]).raw(&[22]))
        .enhanced(0, 7, &[12]);
    assert_eq!(chosen(&capture, name("tap-in")), [10, 11, 12]);
    let error = |choice| {
        let opened = capture.choose(choice);
        opened.map_or_else(|error| error, |mut reader| drain(&mut reader).1.expect("an error"))
    };
    assert!(matches!(error(name("tap-out")), Error::Corrupt { what: "captured length", .. }));
    assert!(matches!(error(name("radio")), Error::LinkType { got: LinkType(127), .. }));
    assert!(matches!(error(InterfaceChoice::All), Error::LinkType { .. }));
    // A simple packet block belongs to the first interface.
    let simple = both().block(3, |body| body.u32(1).raw(&[9]));
    assert_eq!(chosen(&simple, name("tap-out")), [20, 21]);
    let mut reader = simple.choose(name("tap-in")).expect("a capture");
    assert!(matches!(drain(&mut reader).1, Some(Error::Untimed { .. })));
}

#[test]
fn an_interface_of_a_later_section_is_known_by_its_name() {
    let big = |bytes: Bytes| {
        bytes.raw(
            &Bytes::new(ByteOrder::Big)
                .section()
                .named("b")
                .named("a")
                .enhanced(0, 5, &[22])
                .enhanced(1, 6, &[12])
                .bytes,
        )
    };
    let capture = big(section().named("a").named("b").enhanced(0, 1, &[10]).enhanced(1, 2, &[20]));
    assert_eq!(chosen(&capture, name("a")), [10, 12]);
    assert_eq!(chosen(&capture, InterfaceChoice::Number(1)), [20, 22]);
    // Without names the place counts.
    let one = |first| {
        section()
            .interface(1, |none| none)
            .interface(1, |none| none)
            .enhanced(0, 1, &[first])
            .enhanced(1, 2, &[first + 10])
            .bytes
    };
    let nameless = section().raw(&one(10)).raw(&one(11));
    assert_eq!(chosen(&nameless, InterfaceChoice::Number(0)), [10, 11]);
    assert_eq!(chosen(&nameless, InterfaceChoice::Number(1)), [20, 21]);
}

#[test]
fn what_is_said_of_a_capture_is_that_of_what_is_read() {
    let capture = section()
        .block(1, |body| body.u16(1).u16(0).u32(96).option(2, b"a").option(9, &[9]))
        .block(1, |body| body.u16(113).u16(0).u32(0).option(2, b"b"));
    let info = |choice| capture.choose(choice).expect("a capture").info();
    let a = info(name("a"));
    assert_eq!((a.resolution, a.snap_length), (Some(Resolution::NANO), Some(96)));
    assert_eq!(a.link_types, [LinkType::ETHERNET]);
    let b = info(name("b"));
    assert_eq!((b.resolution, b.snap_length), (Some(Resolution::MICRO), None));
    let all = info(InterfaceChoice::All);
    assert_eq!((all.resolution, all.snap_length), (Some(Resolution::MICRO), Some(96)));
    assert_eq!(all.link_types, [LinkType::ETHERNET, LinkType(113)]);
}

#[test]
fn drops_are_the_last_that_statistics_say() {
    assert_eq!(dropped(&both(), InterfaceChoice::All), None);
    assert_eq!(dropped(&both().statistics(0, &[(IF_RECV, 9)]), InterfaceChoice::All), None);
    let capture = both()
        .statistics(0, &[(IF_RECV, 9), (IF_DROP, 1), (OS_DROP, 2)])
        .statistics(1, &[(OS_DROP, 100)])
        .statistics(0, &[(IF_DROP, 3), (OS_DROP, 4)]);
    assert_eq!(dropped(&capture, name("tap-in")), Some(7));
    assert_eq!(dropped(&capture, name("tap-out")), Some(100));
    assert_eq!(dropped(&capture, InterfaceChoice::All), Some(107));
    let zero = both().statistics(1, &[(IF_DROP, 0)]);
    assert_eq!(dropped(&zero, name("tap-out")), Some(0));
    assert_eq!(dropped(&zero, name("tap-in")), None);
    // A new section counts from zero.
    let twice = capture.clone().raw(&capture.bytes).raw(&both().bytes);
    assert_eq!(dropped(&twice, name("tap-in")), Some(14));
}

#[test]
fn drops_between_packets_count_where_they_are_more() {
    let with = |interface: u32, ticks: u32, packets: u64| {
        move |bytes: Bytes| {
            let value = Bytes::new(bytes.order).u64(packets).bytes;
            bytes.block(6, |body| {
                let packet = body.words(&[interface, 0, ticks, 3, 3]).raw(&[1, 2, 3, 0]);
                packet.option(1, b"a comment").option(4, &value).option(0, &[])
            })
        }
    };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        // The first packet is looked at when the capture is opened, and again when it is read.
        let start = Bytes::new(order).section().named("a").named("b");
        let capture = with(0, 3, 7)(with(1, 2, 1_000)(with(0, 1, 5)(start)));
        assert_eq!(dropped(&capture, name("a")), Some(12));
        assert_eq!(dropped(&capture, InterfaceChoice::All), Some(1_012));
        let fewer = capture.clone().statistics(0, &[(OS_DROP, 11)]);
        assert_eq!(dropped(&fewer, name("a")), Some(12));
        let more = capture.statistics(0, &[(OS_DROP, 13)]);
        assert_eq!(dropped(&more, name("a")), Some(13));
        assert_eq!(dropped(&more, InterfaceChoice::All), Some(1_013));
    }
}

#[test]
fn statistics_that_contradict_themselves_say_nothing() {
    let capture = both()
        .statistics(2, &[(IF_DROP, 1)])
        .block(5, |body| body.u32(0))
        .block(5, |body| body.words(&[0, 0, 0]).option(IF_DROP, &[1, 2]))
        .block(5, |body| body.words(&[0, 0, 0]).u16(IF_DROP).u16(80).u32(1));
    assert_eq!(dropped(&capture, InterfaceChoice::All), None);
    assert_eq!(chosen(&capture, InterfaceChoice::All), [10, 20, 11, 21]);
}

#[test]
fn interfaces_beyond_all_hosts_are_refused() {
    let most = (0..4_096).fold(section(), |bytes, at| bytes.named(&at.to_string()));
    assert_eq!(most.clone().open().expect("a capture").info().link_types, [LinkType::ETHERNET]);
    let error = most.named("one more").error().to_string();
    assert!(error.contains("interfaces: got 4097, expected at most 4096"), "{error}");
}

fn listed(capture: &[u8]) -> Result<Vec<Interface>, Error> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(capture).expect("a file");
    interfaces(file.path())
}

#[test]
fn interfaces_are_listed_whatever_they_are() {
    let capture = section()
        .block(1, |body| body.u16(1).u16(0).u32(96).option(2, b"a").option(9, &[9]))
        .block(1, |body| body.u16(147).u16(0).u32(0).option(3, b"odd"))
        .enhanced(1, 1, &[1])
        .enhanced(0, 2, &[2])
        .interface(113, |none| none)
        .enhanced(1, 3, &[3]);
    let of = |number, name: Option<&str>, description: Option<&str>, link, packets| Interface {
        number,
        name: name.map(Into::into),
        description: description.map(Into::into),
        link_type: LinkType(link),
        resolution: if number == 0 { Resolution::NANO } else { Resolution::MICRO },
        snap_length: (number == 0).then_some(96),
        packets,
    };
    let expected =
        [of(0, Some("a"), None, 1, 1), of(1, None, Some("odd"), 147, 2), of(2, None, None, 113, 0)];
    assert_eq!(listed(&capture.bytes).expect("a capture"), expected);
    for compression in COMPRESSED {
        let bytes = compress(&capture.bytes, compression);
        assert_eq!(listed(&bytes).expect("a capture"), expected, "{compression}");
    }
    let text: Vec<_> = expected.iter().map(ToString::to_string).collect();
    let lines = ["0 a (Ethernet)", "1 \"odd\" (link type 147)", "2 (Linux cooked capture)"];
    assert_eq!(text, lines);
    // A packet that is not whole any more is not counted, and no error.
    let cut = &capture.bytes[..capture.bytes.len() - 5];
    assert_eq!(listed(cut).expect("a capture")[1].packets, 1);
    assert!(matches!(listed(b"hello"), Err(Error::NotACapture { .. })));
}

#[test]
fn a_listing_reads_a_bounded_beginning() {
    for link in [1, 147] {
        let start = Bytes::new(ByteOrder::Little).pcap(NANOS, link);
        let few = (0..100).fold(start.clone(), |bytes, at| bytes.record(at, 0, 1, &[1]));
        let list = listed(&few.bytes).expect("a capture");
        assert_eq!((list.len(), list[0].packets, list[0].link_type), (1, 100, LinkType(link)));
        let many = (0..66_000).fold(start, |bytes, at| bytes.record(at, 0, 1, &[1]));
        assert_eq!(listed(&many.bytes).expect("a capture")[0].packets, 65_536);
    }
    let large = [0; 200_000];
    let capture = (0..100).fold(both(), |bytes, at| bytes.enhanced(0, at, &large));
    let packets = listed(&capture.bytes).expect("a capture")[0].packets;
    assert_eq!(packets, 2 + (16u64 * 1024 * 1024).div_ceil(200_032));
}

#[test]
fn reading_goes_on_with_the_chosen_interface() {
    let one = |order: ByteOrder, tag: u8| {
        Bytes::new(order)
            .section()
            .named("a")
            .interface(113, |options| options.option(2, b"b"))
            .enhanced(0, 1, &[tag; 20])
            .enhanced(1, 2, &[tag; 20])
            .enhanced(1, 3, &[tag + 1; 20])
            .enhanced(0, 4, &[tag + 1; 20])
            .bytes
    };
    let bytes = [one(ByteOrder::Little, 10), one(ByteOrder::Big, 20)].concat();
    for bytes in [bytes.clone(), compress(&bytes, Compression::Xz)] {
        for choice in [name("a"), name("b"), InterfaceChoice::Number(1)] {
            let open =
                || Reader::interface_from_bytes("made", bytes.clone(), choice.clone()).expect("it");
            let all = drain(&mut open()).0;
            assert_eq!(all.len(), 4);
            for count in 0..=4 {
                let mut reader = open();
                for _ in 0..count {
                    reader.next().expect("packets");
                }
                let mark = Mark {
                    file_bytes: reader.total_bytes().expect("bytes"),
                    offset: reader.offset(),
                    packets: count,
                    headers: reader.headers().to_vec(),
                };
                let mut reader = open();
                reader.resume(&mark).expect("the same capture");
                assert_eq!(drain(&mut reader).0, all[count as usize..], "{choice} {count}");
            }
        }
    }
}

#[test]
fn a_file_is_read_by_interface_too() {
    let folder = tempfile::tempdir().expect("a folder");
    for compression in COMPRESSED.into_iter().chain([Compression::None]) {
        let path = folder.path().join("both.pcapng");
        fs::write(&path, compress(&both().bytes, compression)).expect("a file");
        let mut reader = Reader::open_interface(&path, name("tap-out")).expect("a capture");
        assert_eq!(drain(&mut reader).0.len(), 2);
        let error = Reader::open_interface(&path, name("tap-x")).err().expect("an error");
        let text = format!("tap-x: no such interface in {}; it holds: ", path.display());
        assert!(error.to_string().starts_with(&text), "{error}");
    }
}

/// A section: the names of its interfaces, and its packets by the places of theirs.
type Section = (Vec<Option<u8>>, Vec<prop::sample::Index>);

fn sections() -> impl Strategy<Value = Vec<Section>> {
    let interfaces = prop::sample::subsequence(vec![Some(0u8), Some(1), Some(2), None], 1..=4);
    let packets = prop::collection::vec(any::<prop::sample::Index>(), 0..12);
    prop::collection::vec((interfaces.prop_shuffle(), packets), 1..4)
}

proptest! {
    /// The packets of all interfaces are the packets of each: none is lost, none is another's.
    #[test]
    fn every_packet_is_one_interfaces(sections in sections(), order in any::<bool>()) {
        let order = if order { ByteOrder::Little } else { ByteOrder::Big };
        let mut capture = Bytes::new(order);
        // The slow reference: who is who, by name or else by place, in the order of appearance.
        let mut known: Vec<(Option<u8>, usize)> = vec![];
        let (mut owners, mut ticks) = (vec![], 0);
        for (names, packets) in &sections {
            capture = capture.section();
            let mut here = vec![];
            for (place, name) in names.iter().enumerate() {
                capture = match name {
                    Some(name) => capture.named(&format!("if{name}")),
                    None => capture.interface(1, |none| none),
                };
                let key = (*name, if name.is_some() { 0 } else { place });
                let number = known.iter().position(|other| *other == key).unwrap_or_else(|| {
                    known.push(key);
                    known.len() - 1
                });
                here.push(number);
            }
            for packet in packets {
                let place = packet.index(here.len());
                ticks += 1;
                owners.push(here[place]);
                capture = capture.enhanced(place as u32, ticks, &[ticks as u8; 5]);
            }
        }
        let (all, error) = drain(&mut capture.choose(InterfaceChoice::All).expect("a capture"));
        prop_assert!(error.is_none());
        prop_assert_eq!(all.len(), owners.len());
        let listed = listed(&capture.bytes).expect("a capture");
        prop_assert_eq!(listed.len(), known.len());
        for interface in listed {
            let own: Vec<Owned> = all
                .iter()
                .zip(&owners)
                .filter(|(_, owner)| **owner == interface.number as usize)
                .map(|(packet, _)| packet.clone())
                .collect();
            prop_assert_eq!(interface.packets, own.len() as u64);
            let mut choices = vec![InterfaceChoice::Number(interface.number)];
            choices.extend(interface.name.clone().map(InterfaceChoice::Name));
            for choice in choices {
                match capture.choose(choice) {
                    Ok(mut reader) => prop_assert_eq!(&drain(&mut reader).0, &own),
                    // Only what is described behind the first packet can not be chosen.
                    Err(error) => {
                        let none = matches!(error, Error::Interface { matching: 0, .. });
                        let late = interface.number as usize >= sections[0].0.len();
                        prop_assert!(none && late, "{}", error);
                    }
                }
            }
        }
    }
}
