//! JSON lines on standard output: what Python reads.

use crate::error::Error;
use serde_json::{Value, json};
use std::io::Write;
use units::Clock;

/// Prints one event. Nobody may listen any more: then there is nobody to tell.
fn print(event: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
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
