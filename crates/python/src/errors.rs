//! Errors of the engine as exceptions.

use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

create_exception!(_engine, EngineError, PyException, "The engine could not reach a true answer.");
create_exception!(_engine, ClocksApartError, EngineError, "The clocks of two captures are apart.");
create_exception!(_engine, KeyChangesError, EngineError, "Packets change their form.");
create_exception!(_engine, SwappedError, EngineError, "Packets were seen behind the device first.");
create_exception!(_engine, KeysRepeatError, EngineError, "Slices do not tell packets apart.");
create_exception!(_engine, CaptureError, EngineError, "A capture cannot be read or written.");

/// An argument that cannot be understood.
pub fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub fn capture(error: &capture::Error) -> PyErr {
    with_hint(CaptureError::new_err(error.to_string()), error.hint())
}

pub fn analysis(error: &::analysis::Error) -> PyErr {
    match error {
        ::analysis::Error::Capture(error) => capture(error),
        ::analysis::Error::Stopped => PyKeyboardInterrupt::new_err(()),
        ::analysis::Error::Window { .. } => value(error),
        ::analysis::Error::ClocksApart { .. } => {
            with_hint(ClocksApartError::new_err(error.to_string()), error.hint())
        }
        ::analysis::Error::KeyChanges { key } => {
            let raised = with_hint(KeyChangesError::new_err(error.to_string()), error.hint());
            Python::attach(|py| match raised.value(py).setattr("key", key) {
                Ok(()) => raised,
                Err(broken) => broken,
            })
        }
        ::analysis::Error::Swapped { .. } | ::analysis::Error::SwappedOrApart { .. } => {
            with_hint(SwappedError::new_err(error.to_string()), error.hint())
        }
        ::analysis::Error::Torn { .. } => {
            with_hint(KeysRepeatError::new_err(error.to_string()), error.hint())
        }
        _ => with_hint(EngineError::new_err(error.to_string()), error.hint()),
    }
}

pub fn trace(error: &::trace::Error) -> PyErr {
    with_hint(EngineError::new_err(error.to_string()), None)
}

fn with_hint(error: PyErr, hint: Option<&str>) -> PyErr {
    Python::attach(|py| match error.value(py).setattr("hint", hint) {
        Ok(()) => error,
        Err(broken) => broken,
    })
}
