//! Filters of packets: in the kernel's instructions a program of classic BPF accepts the same packets.

use probe::filter::{FILTERED_BYTES, Instruction, instructions, translated};

/// No program takes more steps: all jumps lead forwards.
const MOST_STEPS: usize = 2048;
/// The address of the packet's bytes; the frame ends at 0. And what is left if a program does not end.
const BYTES: u64 = 1 << 20;
const UNENDED: u32 = 0x7a11_5c09;

/// The bytes are a program, as `tcpdump -ddd` writes it with commas, a line end, and a packet.
pub fn run(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return false };
    let Ok(program) = instructions(text) else { return false };
    let Ok(steps) = translated(&program) else { return false };
    let packet = bytes.get(end + 1..).unwrap_or_default();
    let seen = &packet[..packet.len().min(FILTERED_BYTES as usize)];
    let accepted = of_kernel(&steps, seen, packet.len() as u32);
    if program.is_empty() {
        assert_ne!(accepted, 0);
    } else if let Some(expected) = classic(&program, seen, packet.len() as u32) {
        assert_eq!(accepted, expected, "{program:?}");
    }
    true
}

/// What a program of classic BPF returns; `None` if it runs off its end.
fn classic(program: &[Instruction], seen: &[u8], length: u32) -> Option<u32> {
    let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0_usize);
    let load = |from: u32, size: u32| -> Option<u32> {
        let from = from as usize;
        let bytes = seen.get(from..from.checked_add(size as usize)?)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    };
    loop {
        let Instruction { code, jt, jf, k } = *program.get(at)?;
        at += 1;
        let size = [4, 2, 1, 0][usize::from(code >> 3 & 3)];
        let other = if code & 8 == 0 { k } else { x };
        match (code & 7, code & 0xe0) {
            (0, 0x00) => a = k,
            (0, 0x20) => match load(k, size) {
                Some(number) => a = number,
                None => return Some(0),
            },
            (0, 0x40) => match load(x.wrapping_add(k), size) {
                Some(number) => a = number,
                None => return Some(0),
            },
            (0, 0x60) => a = memory[k as usize],
            (0, 0x80) => a = length,
            (1, 0x00) => x = k,
            (1, 0x60) => x = memory[k as usize],
            (1, 0x80) => x = length,
            (1, 0xa0) => match load(k, 1) {
                Some(number) => x = (number & 0xf) * 4,
                None => return Some(0),
            },
            (2, _) => memory[k as usize] = a,
            (3, _) => memory[k as usize] = x,
            (4, _) => match arithmetic(code, a, other) {
                Some(number) => a = number,
                None => return Some(0),
            },
            (5, _) if code & 0xf0 == 0 => at = at.checked_add(k as usize)?,
            (5, _) => {
                let is_so = match code & 0xf0 {
                    0x10 => a == other,
                    0x20 => a > other,
                    0x30 => a >= other,
                    _ => a & other != 0,
                };
                at += usize::from(if is_so { jt } else { jf });
            }
            (6, _) => return Some(if code & 0x18 == 0 { k } else { a }),
            _ if code & 0xf8 == 0 => x = a,
            _ => a = x,
        }
    }
}

/// Arithmetic of 32 bits; `None` for a division by zero, which accepts nothing.
fn arithmetic(code: u16, a: u32, other: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(other),
        0x10 => a.wrapping_sub(other),
        0x20 => a.wrapping_mul(other),
        0x30 => a.checked_div(other)?,
        0x40 => a | other,
        0x50 => a & other,
        0x60 => a.wrapping_shl(other),
        0x70 => a.wrapping_shr(other),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(other)?,
        _ => a ^ other,
    })
}

/// What the kernel's instructions return.
fn of_kernel(steps: &[[u8; 8]], seen: &[u8], length: u32) -> u32 {
    let mut registers = [0_u64; 11];
    let mut frame = [0_u32; 16];
    registers[1..4].copy_from_slice(&[BYTES, seen.len() as u64, length.into()]);
    let mut at = 0_i64;
    for _ in 0..MOST_STEPS {
        let Some([code, pair, low, high, value @ ..]) = steps.get(at as usize).copied() else {
            return UNENDED;
        };
        at += 1;
        let (to, from) = (usize::from(pair & 15), usize::from(pair >> 4));
        let offset = i64::from(i16::from_le_bytes([low, high]));
        let value = i32::from_le_bytes(value);
        let other = if code & 8 == 0 { i64::from(value) as u64 } else { registers[from] };
        match (code & 7, code) {
            (1, _) => {
                let address = registers[from].wrapping_add(offset as u64);
                registers[to] = loaded(code, address, seen, &frame);
            }
            (3, _) => {
                let address = registers[to].wrapping_add(offset as u64);
                frame[place_of(address)] = registers[from] as u32;
            }
            (4, 0xdc) if value == 16 => {
                registers[to] = (registers[to] as u16).swap_bytes().into();
            }
            (4, 0xdc) => registers[to] = (registers[to] as u32).swap_bytes().into(),
            (4, 0xb4 | 0xbc) => registers[to] = (other as u32).into(),
            (4, _) => {
                let number = arithmetic(code.into(), registers[to] as u32, other as u32);
                registers[to] = number.expect("nothing is divided by zero").into();
            }
            (7, 0x0f) => registers[to] = registers[to].wrapping_add(other),
            (5, 0x95) => return registers[0] as u32,
            (5, 0x05) => at += offset,
            (kind @ (5 | 6), _) => {
                let narrow = |number: u64| if kind == 6 { number & 0xffff_ffff } else { number };
                let (one, other) = (narrow(registers[to]), narrow(other));
                let is_so = match code & 0xf0 {
                    0x10 => one == other,
                    0x20 => one > other,
                    0x30 => one >= other,
                    0x40 => one & other != 0,
                    0x50 => one != other,
                    0xa0 => one < other,
                    _ => panic!("instruction {code:#x}"),
                };
                at += if is_so { offset } else { 0 };
            }
            _ => panic!("instruction {code:#x}"),
        }
    }
    panic!("a program of {} instructions does not end", steps.len());
}

fn place_of(address: u64) -> usize {
    (address.wrapping_neg() / 4 - 1) as usize
}

/// A number of the packet or of the frame, which nothing else may be read of.
fn loaded(code: u8, address: u64, seen: &[u8], frame: &[u32; 16]) -> u64 {
    if address > u64::MAX / 2 {
        return frame[place_of(address)].into();
    }
    let from = (address - BYTES) as usize;
    let size = match code {
        0x61 => 4,
        0x69 => 2,
        0x71 => 1,
        _ => panic!("instruction {code:#x}"),
    };
    seen[from..from + size].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
