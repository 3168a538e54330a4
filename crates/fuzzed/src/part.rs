//! Reading of slices and parts that were sent.

use std::fmt::Debug;

use analysis::{ENCODING_VERSION, Error, Part, Slice};

/// As it is, and as what lies within the compression, which a mutation would never get through.
pub fn run(bytes: &[u8]) -> bool {
    read_part(bytes);
    let _ = Slice::from_bytes(bytes);
    read_part(&sealed("part", bytes)) | read_slice(&sealed("slice", bytes))
}

fn sealed(what: &str, content: &[u8]) -> Vec<u8> {
    let frame = zstd::encode_all(content, 1).expect("memory");
    [format!("tailscope {what} {ENCODING_VERSION}\n").as_bytes(), &frame].concat()
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
        Err(Error::Encoded { .. } | Error::Parts { .. } | Error::Torn { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}
