//! Routes from a file: `PREFIX/BITS PORT [MAC]` a line, with `#` before comments.

use crate::error::Error;
use crate::values::mac;
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub prefix: IpAddr,
    pub bits: u8,
    /// The port that packets leave by.
    pub port: u16,
    /// Whom they are for; an address that names the port where it is not given.
    pub mac: Option<[u8; 6]>,
}

/// Reads a file of routes to `ports`.
pub fn read(path: &Path, ports: &[u16]) -> Result<Vec<Route>, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::File { path: path.into(), source })?;
    let mut seen = HashSet::new();
    let mut routes = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |expected: &'static str| Error::Line {
            path: path.into(),
            line: at + 1,
            got: line.into(),
            expected,
        };
        let route = parse(line)
            .ok_or_else(|| wrong("PREFIX/BITS PORT [MAC], like 10.0.0.0/8 1, without host bits"))?;
        if !ports.contains(&route.port) {
            return Err(wrong("a port that is there"));
        }
        if !seen.insert((route.prefix, route.bits)) {
            return Err(wrong("a prefix that no line before it has"));
        }
        routes.push(route);
    }
    Ok(routes)
}

fn parse(line: &str) -> Option<Route> {
    let mut words = line.split_whitespace();
    let (prefix, bits) = words.next()?.split_once('/')?;
    let prefix: IpAddr = prefix.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let port = words.next()?.parse().ok()?;
    let mac = words.next().map(mac).transpose().ok()?;
    let host_bits = match prefix {
        IpAddr::V4(prefix) if bits <= 32 => {
            prefix.to_bits().checked_shl(bits.into()).unwrap_or(0) != 0
        }
        IpAddr::V6(prefix) if bits <= 128 => {
            prefix.to_bits().checked_shl(bits.into()).unwrap_or(0) != 0
        }
        _ => return None,
    };
    (!host_bits && words.next().is_none()).then_some(Route { prefix, bits, port, mac })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Route>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes");
        std::fs::write(&path, text).unwrap();
        read(&path, &[0, 1])
    }

    #[test]
    fn routes_are_read() {
        let text =
            "# to the lab\n10.0.0.0/8 1\n\n0.0.0.0/0 0 02:00:00:00:00:07 # default\nfd00::/16 1\n";
        let routes = read_text(text).unwrap();
        let route = |prefix: &str, bits, port, mac| Route {
            prefix: prefix.parse().unwrap(),
            bits,
            port,
            mac,
        };
        let mac = Some([2, 0, 0, 0, 0, 7]);
        let expected = [
            route("10.0.0.0", 8, 1, None),
            route("0.0.0.0", 0, 0, mac),
            route("fd00::", 16, 1, None),
        ];
        assert_eq!(routes, expected);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for line in [
            "10.0.0.0",
            "10.0.0.0/8",
            "10.0.0.0/33 1",
            "10.0.0.1/8 1",
            "fd00::/129 1",
            "fd00::1/16 1",
            "10.0.0.0/8 one",
            "10.0.0.0/8 1 2",
            "10.0.0.0/8 1 02:00:00:00:00:07 x",
            "10.0.0.0/8 2",
            "11.0.0.0/8 0",
        ] {
            let message = read_text(&format!("11.0.0.0/8 0\n{line}\n")).unwrap_err().to_string();
            assert!(message.contains(&format!(":2: got {line:?}")), "{message}");
        }
    }
}
