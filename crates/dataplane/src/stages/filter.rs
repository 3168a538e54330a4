//! Puts the filter of a flow into the BPF programs.

use crate::error::Error;
use probe::filter::{Instruction, ROOM, translated};

/// The instruction in whose place the filter comes, `r0 = 0x7a115c09`, which is there as often as there is room.
const PLACEHOLDER: [u8; 8] = [0xb7, 0, 0, 0, 0x09, 0x5c, 0x11, 0x7a];

/// Puts a filter into the object of the BPF programs; one without instructions accepts everything.
pub fn put_into(object: &mut [u8], filter: &[Instruction]) -> Result<(), Error> {
    let steps = translated(filter)?;
    let room = PLACEHOLDER.repeat(ROOM);
    let first = object.windows(8).position(|bytes| bytes == PLACEHOLDER);
    let place = first.map(|at| &mut object[at..][..room.len()]).filter(|place| **place == room);
    let place = place.expect("the programs have a place for a filter");
    for (bytes, step) in place.chunks_exact_mut(8).zip(steps) {
        bytes.copy_from_slice(&step);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_have_one_place_for_a_filter() {
        let mut object = [vec![1; 16], PLACEHOLDER.repeat(ROOM), vec![2; 8]].concat();
        put_into(&mut object, &[]).expect("there is room");
        assert_eq!(
            (&object[..16], &object[16..24]),
            (&[1; 16][..], &[0xb4, 0, 0, 0, 0, 0, 0, 0][..])
        );
        assert_eq!(object[object.len() - 16..][..8], PLACEHOLDER);
    }
}
