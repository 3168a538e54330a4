//! Values as people write them, on the command line and in files.

use units::Nanos;

/// Parses a time, such as `5ms`.
pub fn time(text: &str) -> Result<Nanos, String> {
    text.parse().map_err(|error: units::Error| error.to_string())
}

/// Parses a MAC address.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("{text:?} is no MAC address, like 02:00:00:00:00:01"))
}
