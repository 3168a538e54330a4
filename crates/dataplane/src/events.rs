//! JSON lines on standard output: what Python reads.

use crate::error::Error;
use messages::{CounterClock, ErrorEvent, Message, RecordingReady};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use units::Clock;

static OUT: OnceLock<File> = OnceLock::new();

/// Keeps standard output for events: what DPDK prints goes to standard error from now on.
pub fn claim_stdout() {
    let Ok(out) = std::io::stdout().as_fd().try_clone_to_owned() else { return };
    if OUT.set(File::from(out)).is_ok() {
        // SAFETY: two descriptors that every process has.
        unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) };
    }
}

/// Prints one message. Nobody may listen any more: then there is nobody to tell.
pub fn print(message: &Message) {
    let line = serde_json::to_string(message).expect("a message is JSON") + "\n";
    let _ = match OUT.get() {
        Some(mut out) => out.write_all(line.as_bytes()),
        None => std::io::stdout().write_all(line.as_bytes()),
    };
}

/// Says that a program without DPDK records.
pub fn recording(program: &'static str) {
    print(&Message::RecordingReady(ready(program)));
}

/// Says that a program listens at a port of UDP.
pub fn listening(program: &'static str, port: u16) {
    let ready = RecordingReady { udp_port: Some(port.into()), ..ready(program) };
    print(&Message::RecordingReady(ready));
}

fn ready(program: &'static str) -> RecordingReady {
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id().into());
    RecordingReady { program, version, pid, udp_port: None }
}

/// Says why it could not run.
pub fn error(error: &Error) {
    let hint = error.hint().map(str::to_owned);
    print(&Message::Error(ErrorEvent { code: error.code(), message: error.to_string(), hint }));
}

/// A clock as messages have it.
pub fn clock(clock: &Clock) -> CounterClock {
    CounterClock {
        tsc: clock.tsc.into(),
        tsc_hz: clock.tsc_hz.into(),
        unix_ns: clock.unix_ns.into(),
    }
}

/// A MAC address as text.
pub fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
