//! Filters of packets: programs of classic BPF, which libpcap compiles, in the kernel's instructions.

use std::error::Error;
use std::fmt::{Display, Formatter};

/// The beginning of a packet that a filter may look at.
pub const FILTERED_BYTES: u32 = 128;
/// As many instructions of the kernel's a filter may have, and one more.
pub const ROOM: usize = 2048;

/// An instruction of classic BPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// So many instructions are skipped if a comparison holds,
    pub jt: u8,
    /// and so many if it does not.
    pub jf: u8,
    /// The constant that it has.
    pub k: u32,
}

/// Why a filter is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What was found.
    pub got: String,
    /// What it should have been.
    pub expected: String,
}

impl Display for Refused {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "got {}, expected {}", self.got, self.expected)
    }
}

impl Error for Refused {}

/// Reads a program as `tcpdump -ddd` writes it, but with commas for ends of lines.
///
/// # Errors
/// [`Refused`] if it is none.
pub fn instructions(text: &str) -> Result<Vec<Instruction>, Refused> {
    let wrong = |expected: &str| Refused { got: text.to_owned(), expected: expected.to_owned() };
    let mut parts = text.split(',');
    let length = parts.next().and_then(|length| length.trim().parse::<usize>().ok());
    let program: Option<Vec<_>> = parts.map(instruction).collect();
    let program = program.ok_or_else(|| wrong("instructions of four numbers"))?;
    if length == Some(program.len()) {
        Ok(program)
    } else {
        Err(wrong("as many instructions as it says"))
    }
}

fn instruction(text: &str) -> Option<Instruction> {
    let mut words = text.split_whitespace();
    let instruction = Instruction {
        code: words.next()?.parse().ok()?,
        jt: words.next()?.parse().ok()?,
        jf: words.next()?.parse().ok()?,
        k: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(instruction)
}

// Registers: classic BPF's accumulator and index, one for addresses; arguments; the frame.
const A: u8 = 0;
const X: u8 = 4;
const AT: u8 = 5;
const BYTES: u8 = 1;
const COUNT: u8 = 2;
const LEN: u8 = 3;
const FRAME: u8 = 10;

// Classes of instructions, and parts of their codes.
const CLASSIC_LD: u16 = 0;
const CLASSIC_LDX: u16 = 1;
const CLASSIC_ST: u16 = 2;
const CLASSIC_STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MISC: u16 = 7;
const BY_X: u16 = 8;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const ADD: u8 = 0x04;
const ADD_LONG: u8 = 0x0f;
const MOVE: u8 = 0xbc;
const SET: u8 = 0xb4;
const TO_BIG_ENDIAN: u8 = 0xdc;
const GOTO: u8 = 0x05;
const EXIT: u8 = 0x95;
const JUMP_LONG: u8 = 0x05;
const JUMP: u8 = 0x06;
const GREATER: u8 = 0x20;
const EQUAL: u8 = 0x10;
const LESS: u8 = 0xa0;
const NOT_EQUAL: u8 = 0x50;

/// Where a jump goes, until all places are known.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// The next instruction.
    None,
    /// An instruction of the filter.
    Filter(usize),
    /// The end that accepts nothing.
    Reject,
    /// What is left of the placeholders.
    Rest,
}

/// An instruction of the kernel's BPF.
#[derive(Clone, Copy, Debug)]
struct Step {
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    value: u32,
    target: Target,
}

/// Returns the filter as bytes of the kernel's instructions. One without instructions accepts everything.
///
/// It finds the bytes of a packet in register 1, their count in 2 and the packet's length in 3, and leaves 0 in
/// register 0 for what it does not accept. It ends, or goes on behind its last instruction.
///
/// # Errors
/// [`Refused`] if it looks at what is no header, does what no filter does, or is too long.
pub fn translated(filter: &[Instruction]) -> Result<Vec<[u8; 8]>, Refused> {
    let all = [Instruction { code: RET, jt: 0, jf: 0, k: 1 }];
    let filter = if filter.is_empty() { &all } else { filter };
    let mut translation = Translation::default();
    translation.begin(filter);
    for (at, instruction) in filter.iter().enumerate() {
        translation.places.push(translation.steps.len());
        translation.add(at, *instruction)?;
    }
    translation.end(filter)
}

#[derive(Default)]
struct Translation {
    steps: Vec<Step>,
    /// Where each instruction of the filter begins.
    places: Vec<usize>,
    reject: usize,
}

impl Translation {
    fn step(&mut self, code: u8, to: u8, from: u8, value: u32) {
        self.steps.push(Step { code, to, from, offset: 0, value, target: Target::None });
    }

    fn jump(&mut self, code: u8, register: u8, from: u8, value: u32, target: Target) {
        self.steps.push(Step { code, to: register, from, offset: 0, value, target });
    }

    fn memory(&mut self, code: u8, to: u8, from: u8, offset: i16) {
        self.steps.push(Step { code, to, from, offset, value: 0, target: Target::None });
    }

    /// Registers and memory are 0 at first. A jump that is never taken leads to the placeholders that are
    /// left, so that none is out of reach, which the kernel refuses; it removes them.
    fn begin(&mut self, filter: &[Instruction]) {
        self.step(SET, A, 0, 0);
        self.step(SET, X, 0, 0);
        self.jump(JUMP | NOT_EQUAL, A, 0, 0, Target::Rest);
        for slot in (0..16).filter(|slot| filter.iter().any(|one| uses(*one, *slot))) {
            self.memory(STORE, FRAME, A, frame_offset(slot));
        }
    }

    fn add(
        &mut self,
        at: usize,
        Instruction { code, jt, jf, k }: Instruction,
    ) -> Result<(), Refused> {
        let wrong = || {
            let expected = "a filter of headers, by pcap-filter(7)".to_owned();
            Refused { got: format!("instruction {code} of value {k}"), expected }
        };
        let most = match code & 7 {
            ALU => 0xa0,
            JMP => 0x40,
            _ => 0xf0,
        };
        if code > 0xff || code & 0xf0 > most {
            return Err(wrong());
        }
        match code & 7 {
            class @ (CLASSIC_LD | CLASSIC_LDX) => {
                let to = if class == CLASSIC_LD { A } else { X };
                self.load(to, code, k).ok_or_else(wrong)?;
            }
            class @ (CLASSIC_ST | CLASSIC_STX) => {
                let from = if class == CLASSIC_ST { A } else { X };
                let slot = Some(k).filter(|slot| *slot < 16).ok_or_else(wrong)?;
                self.memory(STORE, FRAME, from, frame_offset(slot));
            }
            ALU => {
                let divides = matches!(code & 0xf0, 0x30 | 0x90);
                let shifts = matches!(code & 0xf0, 0x60 | 0x70);
                if code & BY_X != 0 && divides {
                    self.jump(JUMP | EQUAL, X, 0, 0, Target::Reject);
                } else if (divides && k == 0) || (shifts && code & BY_X == 0 && k > 31) {
                    return Err(wrong());
                }
                let by_x = code & BY_X != 0;
                self.step(code as u8, A, if by_x { X } else { 0 }, if by_x { 0 } else { k });
            }
            JMP if code & 0xf0 == 0 => {
                let target = k as usize + at + 1;
                self.jump(GOTO, 0, 0, 0, Target::Filter(target));
            }
            JMP => {
                let (from, value) = if code & BY_X == 0 { (0, k) } else { (X, 0) };
                let code = JUMP | (code & 0xf8) as u8;
                self.jump(code, A, from, value, Target::Filter(at + 1 + usize::from(jt)));
                self.jump(GOTO, 0, 0, 0, Target::Filter(at + 1 + usize::from(jf)));
            }
            RET => {
                if code & 0x18 == 0 {
                    self.step(SET, A, 0, k);
                }
                self.step(EXIT, 0, 0, 0);
            }
            MISC if code & 0xf8 == 0 => self.step(MOVE, X, A, 0),
            MISC if code & 0xf8 == 0x80 => self.step(MOVE, A, X, 0),
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Loads into a register; `None` where that is not possible.
    fn load(&mut self, to: u8, code: u16, k: u32) -> Option<()> {
        let (size, opcode) = match code & 0x18 {
            0x00 => (4, 0x61),
            0x08 => (2, 0x69),
            0x10 => (1, 0x71),
            _ => return None,
        };
        match code & 0xe0 {
            0x00 => self.step(SET, to, 0, k),
            0x20 if to == A => {
                self.within(k, size)?;
                self.memory(opcode, A, BYTES, k as i16);
                self.in_order(size);
            }
            0x40 if to == A => {
                self.step(MOVE, AT, X, 0);
                self.step(ADD, AT, 0, k);
                self.jump(JUMP | GREATER, AT, 0, FILTERED_BYTES - size, Target::Reject);
                self.step(MOVE, A, AT, 0);
                self.step(ADD, A, 0, size);
                self.jump(JUMP_LONG | GREATER | BY_X as u8, A, COUNT, 0, Target::Reject);
                self.step(ADD_LONG, AT, BYTES, 0);
                self.memory(opcode, A, AT, 0);
                self.in_order(size);
            }
            0x60 => self.memory(LOAD, to, FRAME, frame_offset(Some(k).filter(|slot| *slot < 16)?)),
            0x80 => self.step(MOVE, to, LEN, 0),
            // The length of a header of IPv4.
            0xa0 if to == X => {
                self.within(k, 1)?;
                self.memory(0x71, X, BYTES, k as i16);
                self.step(0x54, X, 0, 0xf);
                self.step(0x64, X, 0, 2);
            }
            _ => return None,
        }
        Some(())
    }

    /// Rejects packets that are shorter than what is looked at.
    fn within(&mut self, k: u32, size: u32) -> Option<()> {
        let end = k.checked_add(size).filter(|end| *end <= FILTERED_BYTES)?;
        self.jump(JUMP_LONG | LESS, COUNT, 0, end, Target::Reject);
        Some(())
    }

    fn in_order(&mut self, size: u32) {
        if size > 1 {
            self.step(TO_BIG_ENDIAN, A, 0, size * 8);
        }
    }

    fn end(mut self, filter: &[Instruction]) -> Result<Vec<[u8; 8]>, Refused> {
        self.reject = self.steps.len();
        if self.steps.iter().any(|step| matches!(step.target, Target::Reject)) {
            self.step(SET, A, 0, 0);
            self.step(EXIT, 0, 0, 0);
        }
        let too_long = || {
            let got = format!("a program of {} instructions", filter.len());
            let expected = format!("one of at most about {}", ROOM / 4);
            Refused { got, expected }
        };
        if self.steps.len() >= ROOM {
            return Err(too_long());
        }
        let place = |target| match target {
            Target::None => None,
            Target::Filter(at) => self.places.get(at).copied(),
            Target::Reject => Some(self.reject),
            Target::Rest => Some(self.steps.len()),
        };
        let bytes = self.steps.iter().enumerate().map(|(at, step)| {
            let offset = match step.target {
                Target::None => step.offset,
                target => {
                    let place = place(target).ok_or_else(too_long)?;
                    (place as isize - at as isize - 1) as i16
                }
            };
            let mut bytes = [step.code, step.from << 4 | step.to, 0, 0, 0, 0, 0, 0];
            bytes[2..4].copy_from_slice(&offset.to_le_bytes());
            bytes[4..].copy_from_slice(&step.value.to_le_bytes());
            Ok(bytes)
        });
        bytes.collect()
    }
}

/// Whether an instruction reads or writes this slot of memory.
fn uses(Instruction { code, k, .. }: Instruction, slot: u32) -> bool {
    let is_load = code & 7 <= CLASSIC_LDX && code & 0xe0 == 0x60;
    k == slot && (is_load || matches!(code & 7, CLASSIC_ST | CLASSIC_STX))
}

/// Where a slot of memory is in the frame.
fn frame_offset(slot: u32) -> i16 {
    -4 * (slot as i16 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<Vec<[u8; 8]>, Refused> {
        translated(&instructions(text).expect("a program"))
    }

    #[test]
    fn a_filter_is_the_same_in_the_kernels_instructions() {
        // ldb [9]; jeq #17 jt 0 jf 1; ret #1; ret #0
        let found = of("4,48 0 0 9,21 0 1 17,6 0 0 1,6 0 0 0").expect("a filter");
        let expected = [
            [0xb4, 0x00, 0, 0, 0, 0, 0, 0],
            [0xb4, 0x04, 0, 0, 0, 0, 0, 0],
            [0x56, 0x00, 10, 0, 0, 0, 0, 0],
            [0xa5, 0x02, 7, 0, 10, 0, 0, 0],
            [0x71, 0x10, 9, 0, 0, 0, 0, 0],
            [0x16, 0x00, 1, 0, 17, 0, 0, 0],
            [0x05, 0x00, 2, 0, 0, 0, 0, 0],
            [0xb4, 0x00, 0, 0, 1, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
            [0xb4, 0x00, 0, 0, 0, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(found[..expected.len()], expected);
        // What is too short is not accepted.
        assert_eq!(found[expected.len()..], expected[9..]);
    }

    #[test]
    fn what_headers_do_not_hold_is_refused() {
        for wrong in ["1,48 0 0 128", "1,32 0 0 125", "1,48 0 0 4294963200", "2,52 0 0 0,6 0 0 1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        let long = format!("3000,{}", ["4 0 0 1"; 3000].join(","));
        assert!(of(&long).is_err());
    }

    #[test]
    fn a_filter_is_what_tcpdump_prints() {
        let program = instructions("2,40 0 0 12,6 0 0 262144").expect("a program");
        assert_eq!(program[0], Instruction { code: 40, jt: 0, jf: 0, k: 12 });
        assert_eq!((program.len(), instructions("0").expect("none")), (2, vec![]));
        for wrong in ["", "1", "2,6 0 0 1", "1,6 0 0", "1,6 0 0 1 2", "1,6 0 256 1", "x,6 0 0 1"] {
            assert!(instructions(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn jumps_of_whatever_program_stay_within_it(
            codes in vec((0_u16..0x100, 0_u8..6, 0_u8..6, 0_u32..140), 1..12),
        ) {
            let program: Vec<_> = codes
                .into_iter()
                .map(|(code, jt, jf, k)| Instruction { code, jt, jf, k })
                .collect();
            if let Ok(steps) = translated(&program) {
                for (at, step) in steps.iter().enumerate().filter(|(_, step)| step[0] & 7 >= 5) {
                    let to = at as i64 + 1 + i64::from(i16::from_le_bytes([step[2], step[3]]));
                    prop_assert!((0..=steps.len() as i64).contains(&to));
                }
            }
        }
    }
}
