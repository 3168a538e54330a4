//! The events that matter, by meaning.

use crate::error::Error;
use crate::format::{Field, Format};

/// The kind of an interruption, as far as its beginning tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One of the processor's own vectors, by the kernel's name: `local_timer`, `reschedule`, ...
    Vector(String),
    /// A device's interrupt.
    Irq {
        /// Its number.
        number: u64,
        /// The name of who handles it.
        name: String,
    },
    /// Work that an interrupt left for later, by its number.
    Softirq(u64),
    /// Another task.
    Task {
        /// Its number.
        pid: i32,
        /// Its name.
        comm: String,
        /// True while a softirq of packets is wanted, and waits for it to end.
        holds: bool,
        /// The function of a workqueue that it runs, by address; 0 for none.
        work: u64,
    },
    /// A page that was not there. It has no end that is told.
    PageFault,
    /// An interrupt that cannot be masked. Only the kernel's osnoise tracer tells its end.
    Nmi,
}

impl Kind {
    /// Returns the kind of a task that holds softirqs of packets from now on, or no longer does.
    #[must_use]
    pub fn changed(&self, to: bool) -> Option<Self> {
        match self {
            Self::Task { pid, comm, holds, work } if *holds != to => {
                Some(Self::Task { pid: *pid, comm: comm.clone(), holds: to, work: *work })
            }
            _ => None,
        }
    }
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An interruption begins.
    Enter(Kind),
    /// The end of a vector of this name.
    ExitVector(String),
    /// The end of a device's interrupt of this number.
    ExitIrq(u64),
    /// The end of a softirq of this number.
    ExitSoftirq(u64),
    /// A softirq of this number is wanted.
    RaiseSoftirq(u64),
    /// Something that is told only once.
    Instant(Kind),
    /// Something that is told when it is over.
    Past {
        /// Kind of the interruption.
        kind: Kind,
        /// Duration of the interruption, in ns.
        duration_ns: u64,
    },
    /// The CPU goes over to another task.
    Switch {
        /// The task that runs from now on,
        pid: i32,
        /// and its name.
        comm: String,
    },
    /// A flush of the translation buffer that another CPU wanted.
    RemoteFlush,
    /// A function, by address, that another CPU wants called, or a timer's.
    Function(u64),
    /// A worker begins a function of a workqueue, by address.
    Work(u64),
    /// A worker has ended one; 0 where the kernel does not tell which.
    EndWork(u64),
    /// An interrupt is sent to one CPU, or to several as a bitmap of bytes.
    Send {
        /// CPUs that it goes to.
        to: Targets,
        /// True if it is to make the other CPU call a function.
        call: bool,
    },
}

impl What {
    /// Returns true if the task during which it happened is the CPU's: an NMI may come in the
    /// middle of a switch.
    #[must_use]
    pub fn tells_task(&self) -> bool {
        !matches!(self, Self::Instant(Kind::Nmi) | Self::Past { kind: Kind::Nmi, .. })
    }
}

/// CPUs that an interrupt is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// One.
    One(u64),
    /// A bit for each.
    Mask(Vec<u8>),
}

impl Targets {
    /// Returns true if `cpu` is among them.
    #[must_use]
    pub fn contain(&self, cpu: u64) -> bool {
        match self {
            Self::One(one) => *one == cpu,
            Self::Mask(mask) => {
                mask.get((cpu / 8) as usize).is_some_and(|byte| byte >> (cpu % 8) & 1 == 1)
            }
        }
    }
}

/// `tlb_flush` says 1 for a flush that another CPU asked for.
const REMOTE_SHOOTDOWN: i32 = 1;

/// Understands the events of one kernel.
#[derive(Debug)]
pub struct Decoder {
    known: Vec<Option<Known>>,
    pid: Option<Field>,
}

#[derive(Debug)]
struct Known {
    meaning: Meaning,
    fields: Vec<Field>,
}

#[derive(Debug)]
enum Meaning {
    EnterVector(String),
    ExitVector(String),
    EnterIrq,
    ExitIrq,
    EnterSoftirq,
    ExitSoftirq,
    RaiseSoftirq,
    PageFault,
    Nmi,
    WholeNmi,
    Switch,
    Flush,
    Function,
    Work,
    EndWork,
    SendOne,
    SendMany,
}

impl Decoder {
    /// Returns a reader of events with these formats, each with the name of its group.
    ///
    /// # Errors
    /// [`Error::Format`] when one lacks a field that is needed.
    pub fn new(formats: &[(String, String)]) -> Result<Self, Error> {
        let mut decoder = Self { known: Vec::new(), pid: None };
        for (group, text) in formats {
            let format = Format::parse(text)?;
            let Some((meaning, names)) = meaning(group, &format.name) else { continue };
            let mut fields =
                names.iter().map(|name| format.field(name)).collect::<Result<Vec<_>, _>>()?;
            if matches!(meaning, Meaning::EndWork) {
                fields.extend(format.optional("function"));
            }
            let id = usize::from(format.id);
            if decoder.known.len() <= id {
                decoder.known.resize_with(id + 1, || None);
            }
            decoder.known[id] = Some(Known { meaning, fields });
            decoder.pid = decoder.pid.or(format.optional("common_pid"));
        }
        Ok(decoder)
    }

    /// Returns what an event's bytes say, and the task during which it happened; `None` for what
    /// does not matter.
    #[must_use]
    pub fn decode(&self, data: &[u8]) -> Option<(i32, What)> {
        let id = u16::from_le_bytes([*data.first()?, *data.get(1)?]);
        let known = self.known.get(usize::from(id))?.as_ref()?;
        let pid = self.pid.and_then(|field| field.signed(data)).unwrap_or(0);
        Some((pid, known.what(data)?))
    }
}

impl Known {
    fn what(&self, data: &[u8]) -> Option<What> {
        let number = |at: usize| self.fields[at].number(data);
        Some(match &self.meaning {
            Meaning::EnterVector(name) => What::Enter(Kind::Vector(name.clone())),
            Meaning::ExitVector(name) => What::ExitVector(name.clone()),
            Meaning::EnterIrq => {
                let name = self.fields[1].text(data)?;
                What::Enter(Kind::Irq { number: number(0)?, name })
            }
            Meaning::ExitIrq => What::ExitIrq(number(0)?),
            Meaning::EnterSoftirq => What::Enter(Kind::Softirq(number(0)?)),
            Meaning::ExitSoftirq => What::ExitSoftirq(number(0)?),
            Meaning::RaiseSoftirq => What::RaiseSoftirq(number(0)?),
            Meaning::PageFault => What::Instant(Kind::PageFault),
            Meaning::Nmi => What::Instant(Kind::Nmi),
            Meaning::WholeNmi => What::Past { kind: Kind::Nmi, duration_ns: number(0)? },
            Meaning::Switch => {
                What::Switch { pid: self.fields[0].signed(data)?, comm: self.fields[1].text(data)? }
            }
            Meaning::Flush if self.fields[0].signed(data)? == REMOTE_SHOOTDOWN => What::RemoteFlush,
            Meaning::Flush => return None,
            Meaning::Function => What::Function(number(0)?),
            Meaning::Work => What::Work(number(0)?),
            Meaning::EndWork => What::EndWork(if self.fields.is_empty() { 0 } else { number(0)? }),
            Meaning::SendOne => What::Send { to: Targets::One(number(0)?), call: number(1)? != 0 },
            Meaning::SendMany => {
                let mask = self.fields[0].located(data)?.to_vec();
                What::Send { to: Targets::Mask(mask), call: number(1)? != 0 }
            }
        })
    }
}

/// Returns what events of a name mean, and the fields that say more.
fn meaning(group: &str, name: &str) -> Option<(Meaning, &'static [&'static str])> {
    if group == "irq_vectors" {
        let entry = name.strip_suffix("_entry").map(|name| Meaning::EnterVector(name.into()));
        let exit = || name.strip_suffix("_exit").map(|name| Meaning::ExitVector(name.into()));
        return entry.or_else(exit).map(|meaning| (meaning, &[] as &[_]));
    }
    Some(match name {
        "irq_handler_entry" => (Meaning::EnterIrq, &["irq", "name"]),
        "irq_handler_exit" => (Meaning::ExitIrq, &["irq"]),
        "softirq_entry" => (Meaning::EnterSoftirq, &["vec"]),
        "softirq_exit" => (Meaning::ExitSoftirq, &["vec"]),
        "softirq_raise" => (Meaning::RaiseSoftirq, &["vec"]),
        "page_fault_user" | "page_fault_kernel" => (Meaning::PageFault, &[]),
        "nmi_handler" => (Meaning::Nmi, &[]),
        "nmi_noise" => (Meaning::WholeNmi, &["duration"]),
        "sched_switch" => (Meaning::Switch, &["next_pid", "next_comm"]),
        "tlb_flush" => (Meaning::Flush, &["reason"]),
        "csd_function_entry" => (Meaning::Function, &["func"]),
        "hrtimer_expire_entry" | "timer_expire_entry" => (Meaning::Function, &["function"]),
        "workqueue_execute_start" => (Meaning::Work, &["function"]),
        "workqueue_execute_end" => (Meaning::EndWork, &[]),
        "ipi_send_cpu" => (Meaning::SendOne, &["cpu", "callback"]),
        "ipi_send_cpumask" => (Meaning::SendMany, &["cpumask", "callback"]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NMI: &str = "name: nmi_noise
ID: 513
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:u64 start;\toffset:8;\tsize:8;\tsigned:0;
\tfield:u64 duration;\toffset:16;\tsize:8;\tsigned:0;
";

    const WORK: &str = "name: workqueue_execute_start
ID: 335
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:void * work;\toffset:8;\tsize:8;\tsigned:0;
\tfield:void * function;\toffset:16;\tsize:8;\tsigned:0;
";

    #[test]
    fn a_work_is_told_by_its_function() {
        let end = WORK.replace("start", "end").replace("335", "334");
        // As kernels before 5.6 have it.
        let plain = end.replace("334", "333").replace("function", "other");
        let formats = [WORK.into(), end, plain].map(|text| ("workqueue".to_owned(), text));
        let decoder = Decoder::new(&formats).unwrap();
        let data = |id: u16| -> Vec<u8> {
            let words = [u64::from(id) | 33 << 32, 0xffff_8881_0000_0000, 0xffff_ffff_8123_4560];
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        assert_eq!(decoder.decode(&data(335)), Some((33, What::Work(0xffff_ffff_8123_4560))));
        assert_eq!(decoder.decode(&data(335)[..20]), None);
        assert_eq!(decoder.decode(&data(334)), Some((33, What::EndWork(0xffff_ffff_8123_4560))));
        assert_eq!(decoder.decode(&data(334)[..20]), None);
        assert_eq!(decoder.decode(&data(333)), Some((33, What::EndWork(0))));
    }

    #[test]
    fn osnoise_tells_how_long_an_nmi_took() {
        let decoder = Decoder::new(&[("osnoise".into(), NMI.into())]).unwrap();
        let words = [u64::from(513_u16) | 77 << 32, 5_634_530_436, 4_440_842];
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let told = What::Past { kind: Kind::Nmi, duration_ns: 4_440_842 };
        assert_eq!(decoder.decode(&data), Some((77, told)));
        assert_eq!(decoder.decode(&data[..20]), None);
        let without = NMI.replace("u64 duration", "u64 lasted");
        let error = Decoder::new(&[("osnoise".into(), without)]).unwrap_err().to_string();
        assert_eq!(error, "format of nmi_noise: expected a field duration");
    }
}
