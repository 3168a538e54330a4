//! Cargo takes features of build dependencies only of a crate that has a build script.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
