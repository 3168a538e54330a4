//! Exports this program's `munmap` to the libraries it loads; see `src/munmap.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=munmap");
}
