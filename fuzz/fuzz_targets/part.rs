//! Reading of slices and parts that were sent.

#![no_main]

use std::fmt::Debug;

use analysis::{Error, Part, Slice};
use libfuzzer_sys::{Corpus, fuzz_target};

// As it is, and as what lies within the compression, which a mutation would never get through.
fuzz_target!(|bytes: &[u8]| -> Corpus {
    read_part(bytes);
    let _ = Slice::from_bytes(bytes);
    let known = read_part(&sealed("part", bytes)) | read_slice(&sealed("slice", bytes));
    if known { Corpus::Keep } else { Corpus::Reject }
});

fn sealed(what: &str, content: &[u8]) -> Vec<u8> {
    let frame = zstd::encode_all(content, 1).expect("memory");
    [format!("tailscope {what} 2\n").as_bytes(), &frame].concat()
}

fn read_part(bytes: &[u8]) -> bool {
    let Some(part) = read(Part::from_bytes(bytes)) else { return false };
    let again = Part::from_bytes(&part.to_bytes()).expect("its own bytes");
    assert_eq!(again.to_bytes(), part.to_bytes());
    assert!(read(part.clone().join(&again)).is_none(), "they share their times");
    if let Some(analysis) = read(part.finish()) {
        assert!(!analysis.summary().is_empty());
        drop(analysis.warnings());
    }
    true
}

fn read_slice(bytes: &[u8]) -> bool {
    let Some(slice) = read(Slice::from_bytes(bytes)) else { return false };
    assert_eq!(Slice::from_bytes(&slice.to_bytes()).expect("its own bytes"), slice);
    assert!(slice.times().start <= slice.times().end);
    true
}

/// What is refused is refused for what it is.
fn read<T: Debug>(found: Result<T, Error>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(Error::Encoded { .. } | Error::Parts { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}
