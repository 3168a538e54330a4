//! The Python face of the engine: converts, releases the GIL, maps errors; nothing else.
use pyo3::prelude::*;

/// `tailscope._engine`
#[pymodule]
mod _engine {}
