//! Captures read and written, as one program: each program takes long to build.

mod common;
mod interfaces;
mod links;
mod pcap;
mod pcapng;
mod properties;
mod real;
mod resume;
mod several;
mod storage;
