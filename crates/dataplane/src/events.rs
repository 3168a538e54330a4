//! JSON lines on standard output: what Python reads.

use crate::error::Error;
use serde_json::{Value, json};
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

/// Prints one event. Nobody may listen any more: then there is nobody to tell.
fn print(event: &Value) {
    let line = format!("{event}\n");
    let _ = match OUT.get() {
        Some(mut out) => out.write_all(line.as_bytes()),
        None => std::io::stdout().write_all(line.as_bytes()),
    };
}

/// Says that a program is ready to forward or send.
pub fn ready(fields: Value) {
    print(&named("ready", fields));
}

/// Says how far it is.
pub fn progress(fields: Value) {
    print(&named("progress", fields));
}

/// Says what came out.
pub fn result(fields: Value) {
    print(&named("result", fields));
}

/// Says why it could not run.
pub fn error(error: &Error) {
    print(&json!({ "event": "error", "message": error.to_string(), "hint": error.hint() }));
}

fn named(name: &str, mut fields: Value) -> Value {
    fields["event"] = name.into();
    fields
}

/// A clock as JSON.
pub fn clock(clock: &Clock) -> Value {
    json!({ "tsc_hz": clock.tsc_hz, "tsc": clock.tsc, "unix_ns": clock.unix_ns })
}

/// A MAC address as text.
pub fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
