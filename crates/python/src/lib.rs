//! The Python face of the engine: converts, releases the GIL, maps errors; nothing else.
//!
//! What it offers is documented where people read it: in the Python package `tailscope`.
#![allow(missing_docs)]

mod analysis;
mod coverage;
mod distribution;
mod errors;
mod follow;
mod hdr;
mod keys;
mod retime;
mod simulation;
mod slices;
mod tables;
mod trace;

use pyo3::prelude::*;

#[pymodule]
mod _engine {
    use super::*;

    #[pymodule_export]
    use super::analysis::{Analysis, analyze, analyze_recording, estimate_clocks, interfaces};
    #[pymodule_export]
    use super::coverage::Coverage;
    #[pymodule_export]
    use super::distribution::Distribution;
    #[pymodule_export]
    use super::errors::{
        ArgumentError, CaptureError, ClocksApartError, EngineError, KeyChangesError,
        KeysRepeatError, SwappedError,
    };
    #[pymodule_export]
    use super::hdr::read_hdr;
    #[pymodule_export]
    use super::keys::Keys;
    #[pymodule_export]
    use super::retime::retime;
    #[pymodule_export]
    use super::simulation::simulate;
    #[pymodule_export]
    use super::slices::{Part, Slice, analyze_slice, merge, split};
    #[pymodule_export]
    use super::tables::{TableBatches, TableReader, TableWriter, read_numbers, read_whole};
    #[pymodule_export]
    use super::trace::read_trace;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pyfunction]
    fn parse_duration_ns(text: &str) -> PyResult<u64> {
        text.parse::<units::Nanos>()
            .map(units::Nanos::get)
            .map_err(|error| errors::argument(error, "duration"))
    }

    #[pyfunction]
    fn parse_rate_pps(text: &str) -> PyResult<u64> {
        text.parse::<units::Pps>()
            .map(|rate| rate.0)
            .map_err(|error| errors::argument(error, "rate"))
    }

    #[pyfunction]
    fn tunnel_bytes(text: &str, src_ip: &str, dst_ip: &str) -> PyResult<Option<usize>> {
        let tunnel: probe::tunnel::Tunnel =
            text.parse().map_err(|error| errors::argument(error, "tunnel"))?;
        let address = |text: &str| text.parse().map_err(|error| errors::argument(error, "address"));
        Ok(tunnel.around(address(src_ip)?, address(dst_ip)?).map(|outer| outer.bytes_len()))
    }
}
