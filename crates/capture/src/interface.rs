//! The interfaces of a capture, and which of them are read.

use std::fmt;

use crate::error::Error;
use crate::link::LinkType;
use crate::step::Site;
use crate::time::Resolution;

/// Largest number of interfaces: more than any host has, so that no file makes a search among them
/// long.
const MOST: usize = 4096;

/// A device by its index on the host (`ip link` shows it), and `if3` as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device(pub u32);

impl Device {
    fn named(name: &str) -> Option<Self> {
        name.strip_prefix("if")?.parse().ok().map(Self)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "if{}", self.0)
    }
}

/// The interface whose packets are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InterfaceChoice {
    /// Packets of all interfaces.
    #[default]
    All,
    /// Packets of one interface, by its number: interfaces are counted from 0 through the whole
    /// file.
    Number(u32),
    /// Packets of the one interface with this name or, if none has it, this description; of a
    /// cooked capture, `if3` is the device with the index 3.
    Name(String),
}

impl fmt::Display for InterfaceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// An interface as a capture describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its place among the interfaces of the file, from 0.
    pub number: u32,
    /// Its name (`if_name`), where the file says it.
    pub name: Option<String>,
    /// Its description (`if_description`), where the file says it.
    pub description: Option<String>,
    /// The link type of its packets.
    pub link_type: LinkType,
    /// The unit of its timestamps.
    pub resolution: Resolution,
    /// The most bytes captured of a packet; `None` where there is no limit.
    pub snap_length: Option<u32>,
    /// Its packets in the beginning of the capture, as far as [`interfaces`](crate::interfaces) reads.
    pub packets: u64,
}

impl fmt::Display for Interface {
    /// Returns `1 tap-out (Ethernet)`, with the description in quotes where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if let Some(description) = &self.description {
            write!(f, " \"{description}\"")?;
        }
        write!(f, " ({})", self.link_type)
    }
}

/// One description of an interface.
pub(crate) struct Description {
    pub name: Option<String>,
    pub description: Option<String>,
    pub link_type: LinkType,
    pub resolution: Resolution,
    /// 0 is no limit.
    pub snap_length: u32,
}

impl Description {
    /// Returns the description of the one interface of a format that names none.
    pub fn of_format(link_type: LinkType, resolution: Resolution, snap_length: u32) -> Self {
        Self { name: None, description: None, link_type, resolution, snap_length }
    }
}

/// All interfaces that were described so far.
pub(crate) struct Interfaces {
    wanted: Wanted,
    known: Vec<Known>,
    section: u64,
    /// The packets that were counted.
    counted: u64,
    /// Devices of cooked captures, in the order of their first packets: in a listing with the
    /// interface that they are of, and their packets.
    devices: Vec<(Device, usize, u64)>,
}

enum Wanted {
    Nothing,
    All,
    One(usize),
    /// The packets of one device among those of a cooked capture.
    Device(usize, Device),
    /// Decided when all that come before the first packet are known.
    Undecided(InterfaceChoice),
}

struct Known {
    interface: Interface,
    /// All link types that it has had, in the order of sections.
    link_types: Vec<LinkType>,
    /// The section that described it last, and its place in the first.
    section: u64,
    place: usize,
    drops: Drops,
}

/// Packets that were dropped before they came into the file.
#[derive(Default)]
struct Drops {
    told: bool,
    /// Drops by the statistics of sections before, and by the latest of this one: those are
    /// cumulative.
    before: u64,
    latest: u64,
    /// The sum of what packets say was lost before each of them.
    between: u64,
}

impl Interfaces {
    pub fn new(choice: InterfaceChoice) -> Self {
        match choice {
            InterfaceChoice::All => Self::of(Wanted::All),
            choice => Self::of(Wanted::Undecided(choice)),
        }
    }

    /// Returns interfaces for a reader that counts packets and reads none.
    pub fn listing() -> Self {
        Self::of(Wanted::Nothing)
    }

    fn of(wanted: Wanted) -> Self {
        Self { wanted, known: vec![], section: 0, counted: 0, devices: vec![] }
    }

    pub fn is_listing(&self) -> bool {
        matches!(self.wanted, Wanted::Nothing)
    }

    #[inline]
    pub fn is_decided(&self) -> bool {
        !matches!(self.wanted, Wanted::Undecided(_))
    }

    pub fn begin_section(&mut self) {
        self.section += 1;
        for Known { drops, .. } in &mut self.known {
            drops.before = drops.before.saturating_add(std::mem::take(&mut drops.latest));
        }
    }

    /// Returns the index of the interface that the current section describes at `place`.
    ///
    /// One of an earlier section is the same if it has the same name; without names, if it stood at
    /// the same place.
    pub fn describe(
        &mut self,
        place: usize,
        found: Description,
        site: Site<'_>,
    ) -> Result<usize, Error> {
        let section = self.section;
        let is_same = |known: &Known| {
            let same_place = found.name.is_some() || known.place == place;
            known.section != section && known.interface.name == found.name && same_place
        };
        let index = self.known.iter().position(is_same).unwrap_or(self.known.len());
        match self.known.get_mut(index) {
            Some(known) => known.describe_again(section, &found),
            None if index == MOST => {
                return Err(site.corrupt("interfaces", MOST + 1, format!("at most {MOST}")));
            }
            None => self.known.push(Known::new(index, section, place, found)),
        }
        Ok(index)
    }

    #[inline]
    pub fn wants(&self, index: usize) -> bool {
        match self.wanted {
            Wanted::All => true,
            Wanted::One(one) | Wanted::Device(one, _) => one == index,
            Wanted::Nothing | Wanted::Undecided(_) => false,
        }
    }

    /// Decides which interface is read, if that is still open, among those known by now.
    pub fn decide(&mut self, site: Site<'_>) -> Result<(), Error> {
        let Wanted::Undecided(choice) = &self.wanted else { return Ok(()) };
        let found = match choice {
            InterfaceChoice::All => unreachable!("decided from the start"),
            InterfaceChoice::Number(number) => {
                self.matching(|interface| interface.number == *number)
            }
            InterfaceChoice::Name(name) => {
                let is_name = |text: &Option<String>| text.as_ref() == Some(name);
                let named = self.matching(|interface| is_name(&interface.name));
                let described = || self.matching(|interface| is_name(&interface.description));
                if named.is_empty() { described() } else { named }
            }
        };
        if let [index] = found[..] {
            self.wanted = Wanted::One(index);
            return Ok(());
        }
        let cooked = self.matching(|interface| interface.link_type.names_devices());
        if let (InterfaceChoice::Name(name), [], [index]) = (choice, &found[..], &cooked[..])
            && let Some(device) = Device::named(name)
        {
            self.wanted = Wanted::Device(*index, device);
            return Ok(());
        }
        let (file, choice) = (site.file.into(), choice.to_string());
        let holds: Vec<_> = self.known.iter().map(|known| known.interface.to_string()).collect();
        Err(Error::Interface { file, choice, matching: found.len(), holds: holds.join(", ") })
    }

    fn matching(&self, is_meant: impl Fn(&Interface) -> bool) -> Vec<usize> {
        (0..self.known.len()).filter(|index| is_meant(&self.known[*index].interface)).collect()
    }

    /// Returns all interfaces; a cooked one is as many as there are devices.
    pub fn list(&self) -> Vec<Interface> {
        let devices_of = |index: usize| {
            self.devices.iter().filter(move |(_, of, _)| *of == index).map(move |found| {
                let (device, _, packets) = *found;
                let name = Some(device.to_string());
                Interface { name, packets, ..self.known[index].interface.clone() }
            })
        };
        let mut listed = Vec::new();
        for (index, known) in self.known.iter().enumerate() {
            let before = listed.len();
            listed.extend(devices_of(index));
            if listed.len() == before {
                listed.push(known.interface.clone());
            }
        }
        listed
    }

    /// Returns number and name of the one interface that is read, where one was chosen.
    pub fn chosen(&self) -> Option<(u32, Option<String>)> {
        match self.wanted {
            Wanted::One(index) => {
                let Interface { number, name, .. } = &self.known[index].interface;
                Some((*number, name.clone()))
            }
            Wanted::Device(index, device) => {
                Some((self.known[index].interface.number, Some(device.to_string())))
            }
            _ => None,
        }
    }

    /// Takes note of a packet of an interface, and of the device that it names.
    pub fn count(&mut self, index: usize, device: Option<u32>) {
        self.known[index].interface.packets += 1;
        self.counted += 1;
        if let Some(device) = device {
            self.note(Device(device), index);
        }
    }

    fn note(&mut self, device: Device, index: usize) {
        let is_it = |(known, of, _): &&mut (Device, usize, u64)| (*known, *of) == (device, index);
        if let Some((.., packets)) = self.devices.iter_mut().find(is_it) {
            *packets += 1;
        } else if self.devices.len() < MOST {
            self.devices.push((device, index, 1));
        }
    }

    /// Returns true if a packet that names this device is read, and takes note of it.
    pub fn reads(&mut self, device: u32) -> bool {
        match self.wanted {
            Wanted::Device(_, wanted) => wanted.0 == device,
            _ => {
                self.note(Device(device), 0);
                true
            }
        }
    }

    /// Returns the devices whose packets were read, where they name them and none was chosen.
    pub fn devices(&self) -> Vec<Device> {
        let mut found: Vec<_> = self.devices.iter().map(|(device, ..)| *device).collect();
        found.sort_unstable();
        found
    }

    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Takes note of what the statistics of an interface say that it has dropped in this section.
    pub fn dropped_in_all(&mut self, index: usize, packets: u64) {
        let drops = &mut self.known[index].drops;
        (drops.told, drops.latest) = (true, packets);
    }

    /// Takes note of packets that were dropped between two packets.
    pub fn dropped_between(&mut self, index: usize, packets: u64) {
        let drops = &mut self.known[index].drops;
        (drops.told, drops.between) = (true, drops.between.saturating_add(packets));
    }

    fn read(&self) -> impl Iterator<Item = &Known> {
        (0..self.known.len()).filter(|index| self.wants(*index)).map(|index| &self.known[index])
    }

    /// Returns the coarsest unit of what is read.
    pub fn resolution(&self) -> Option<Resolution> {
        self.read().map(|known| known.interface.resolution).reduce(Resolution::coarser)
    }

    /// Returns all link types of what is read.
    pub fn link_types(&self) -> Vec<LinkType> {
        let mut found: Vec<_> = self.read().flat_map(|known| known.link_types.clone()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the shortest snap length of what is read.
    pub fn snap_length(&self) -> Option<u32> {
        self.read().filter_map(|known| known.interface.snap_length).min()
    }

    /// Returns the packets that what is read has dropped, as far as the capture says so.
    pub fn dropped_packets(&self) -> Option<u64> {
        let told = self.read().map(|known| &known.drops).filter(|drops| drops.told);
        told.map(|Drops { before, latest, between, .. }| {
            before.saturating_add(*latest).max(*between)
        })
        .reduce(u64::saturating_add)
    }
}

impl Known {
    fn new(index: usize, section: u64, place: usize, found: Description) -> Self {
        let Description { name, description, link_type, resolution, snap_length } = found;
        let interface = Interface {
            number: index as u32,
            name,
            description,
            link_type,
            resolution,
            snap_length: (snap_length != 0).then_some(snap_length),
            packets: 0,
        };
        let (link_types, drops) = (vec![link_type], Drops::default());
        Self { interface, link_types, section, place, drops }
    }

    fn describe_again(&mut self, section: u64, found: &Description) {
        self.section = section;
        let Interface { resolution, snap_length, .. } = &mut self.interface;
        *resolution = resolution.coarser(found.resolution);
        let limits = [*snap_length, (found.snap_length != 0).then_some(found.snap_length)];
        *snap_length = limits.into_iter().flatten().min();
        if !self.link_types.contains(&found.link_type) {
            self.link_types.push(found.link_type);
        }
    }
}
