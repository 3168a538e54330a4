//! Finds libdpdk, compiles the shim against it and generates the bindings from its headers.

use std::env;
use std::path::PathBuf;

/// Set to `static`, it makes a binary that needs no DPDK where it runs.
const LINKING: &str = "TAILSCOPE_DPDK";

/// Parts of DPDK that a binary has within: what is called, and drivers, which register themselves. Drivers
/// that need libraries of their vendors at run time (mlx5) are left out.
const PARTS: [&str; 35] = [
    "eal",
    "kvargs",
    "telemetry",
    "ring",
    "mempool",
    "mbuf",
    "net",
    "meter",
    "ethdev",
    "pci",
    "timer",
    "hash",
    "rcu",
    "rib",
    "fib",
    "lpm",
    "cryptodev",
    "dmadev",
    "security",
    "vhost",
    "bus_vdev",
    "bus_pci",
    "mempool_ring",
    "net_memif",
    "net_af_packet",
    "net_af_xdp",
    "net_vhost",
    "net_virtio",
    "common_iavf",
    "net_iavf",
    "net_e1000",
    "net_igc",
    "net_ixgbe",
    "net_i40e",
    "net_ice",
];
const LIBRARIES: [&str; 8] = ["xdp", "bpf", "elf", "z", "numa", "fdt", "bsd", "md"];

const VERSIONS: std::ops::Range<&str> = "22.11".."26";
const NAMES: [&str; 8] = [
    "rte_eal_.*",
    "rte_eth_.*",
    "rte_intr_.*",
    "rte_(l?core|socket|strerror|version|get_|free|zmalloc).*",
    "rte_(pktmbuf|mempool)_.*",
    "rte_mbuf_.*",
    "(ts|TS)_.*",
    "RTE_.*",
];

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-changed=src/shim.h");
    println!("cargo::rerun-if-env-changed={LINKING}");
    let is_static = env::var(LINKING).is_ok_and(|value| value == "static");
    let dpdk = pkg_config::Config::new()
        .range_version(VERSIONS)
        .cargo_metadata(!is_static)
        .probe("libdpdk")
        .unwrap_or_else(|error| panic!("no DPDK 22.11 to 25.11: install libdpdk-dev\n{error}"));
    println!("cargo::rustc-env=TAILSCOPE_DPDK_VERSION={}", dpdk.version);
    let includes = dpdk.include_paths.iter().map(|path| format!("-I{}", path.display()));
    // The include flags of pkg-config leave out what else DPDK's headers are compiled with.
    let flags: Vec<String> = includes
        .chain(["-include".into(), "rte_config.h".into(), "-Isrc".into()])
        .chain(instructions().map(Into::into))
        .collect();

    let mut shim = cc::Build::new();
    shim.file("src/shim.c").opt_level(3).warnings(true);
    flags.iter().for_each(|flag| {
        shim.flag(flag);
    });
    shim.compile("tailscope_dpdk_shim");
    if is_static {
        link_whole();
    }

    let mut bindings = bindgen::Builder::default()
        .header("src/shim.h")
        .clang_args(&flags)
        .generate_comments(false)
        // Built again when DPDK's headers change.
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .derive_default(true)
        .layout_tests(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        // Only ever seen through a pointer; their bit fields and markers differ from version to version.
        .opaque_type("rte_(mbuf|mempool|arp_.*|l2tpv2_.*|gtp_.*|flow_.*|ipv6_.*)")
        .blocklist_function("rte_eth_dev_(callback|iterator).*");
    bindings = bindings.allowlist_type("rte_pktmbuf_pool_private");
    for name in NAMES {
        bindings = bindings.allowlist_function(name).allowlist_var(name);
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings
        .generate()
        .unwrap_or_else(|error| panic!("bindgen: {error}\nis libclang there? install libclang-dev"))
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR can be written");
}

/// The instructions that every build of DPDK for a processor uses, its headers included.
fn instructions() -> Option<&'static str> {
    let processor = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    match processor.as_str() {
        "x86_64" => Some("-march=corei7"),
        "aarch64" => Some("-march=armv8-a+crc"),
        _ => None,
    }
}

fn link_whole() {
    let folder =
        pkg_config::get_variable("libdpdk", "libdir").expect("pkg-config has just found it");
    println!("cargo::rustc-link-search=native={folder}");
    for part in PARTS {
        println!("cargo::rustc-link-lib=static:+whole-archive,-bundle=rte_{part}");
    }
    for library in LIBRARIES {
        println!("cargo::rustc-link-lib=static:-bundle={library}");
    }
}
