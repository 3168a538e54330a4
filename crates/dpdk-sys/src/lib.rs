//! What tailscope calls of DPDK, as DPDK declares it: bindings generated from its headers, and a C
//! shim (`shim.c`) for its inline functions. No logic; `tailscope-dpdk` makes it safe.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, missing_docs)]
#![allow(unsafe_op_in_unsafe_fn, unnecessary_transmutes, unknown_lints, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// The version of DPDK that this was built against, such as `22.11.11`.
pub const BUILT_WITH: &str = env!("TAILSCOPE_DPDK_VERSION");

/// The start of `struct rte_mbuf`, the same in every version supported: `shim.c` proves it where it
/// is compiled. Read directly, because a function call for every field of every packet would be seen.
#[repr(C)]
pub struct MbufHead {
    pub buf_addr: *mut u8,
    pub buf_iova: u64,
    pub data_off: u16,
    pub refcnt: u16,
    pub nb_segs: u16,
    pub port: u16,
    pub ol_flags: u64,
    pub packet_type: u32,
    pub pkt_len: u32,
    pub data_len: u16,
}
