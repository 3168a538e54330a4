//! Exports this program's `munmap` and `sendmsg` to the libraries it loads (`src/munmap.rs`, `src/sendmsg.rs`), and
//! compiles the BPF programs of `src/stages`.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "src/stages/stages.bpf.c";
const INCLUDED: &str = "src/stages/flow.h";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed={INCLUDED}");
    for name in ["munmap", "sendmsg"] {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={name}");
    }
    if env::var_os("CARGO_FEATURE_STAGES").is_some() {
        compile_bpf();
    }
}

fn compile_bpf() {
    let of_cargo = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let object = Path::new(&of_cargo("OUT_DIR")).join("stages.bpf.o");
    // Debian has a part of the kernel's headers here, where clang does not look for other targets.
    let processor = of_cargo("CARGO_CFG_TARGET_ARCH");
    let headers = format!("-I/usr/include/{processor}-linux-gnu");
    let kernels_name = if processor == "aarch64" { "arm64" } else { "x86" };
    let target = format!("-D__TARGET_ARCH_{kernels_name}");
    let status = Command::new("clang")
        .args([
            "-target", "bpf", "-O2", "-g", "-Wall", "-Werror", &headers, &target, "-c", SOURCE,
            "-o",
        ])
        .arg(&object)
        .status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "clang: expected {SOURCE} to compile, got {status:?}\nare clang and libbpf-dev installed?"
    );
}
