//! Errors of the engine as exceptions.

use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;

create_exception!(_engine, EngineError, PyException, "The engine could not reach a true answer.");
create_exception!(_engine, ClocksApartError, EngineError, "The clocks of two captures are apart.");
create_exception!(_engine, KeyChangesError, EngineError, "Packets change their form.");
create_exception!(_engine, SwappedError, EngineError, "Packets were seen behind the device first.");
create_exception!(_engine, KeysRepeatError, EngineError, "Slices do not tell packets apart.");
create_exception!(_engine, CaptureError, EngineError, "A capture cannot be read or written.");
create_exception!(_engine, ArgumentError, PyValueError, "An argument cannot be understood.");

/// Returns the exception for an argument that cannot be understood.
pub fn argument(error: impl Display, code: &'static str) -> PyErr {
    with_code(ArgumentError::new_err(error.to_string()), code)
}

pub fn probe(error: ::probe::Error) -> PyErr {
    argument(&error, error.code())
}

pub fn simulation(error: &sim::Error) -> PyErr {
    match error {
        sim::Error::Capture(error) => capture(error),
        sim::Error::Io { path, source, .. } => match source.raw_os_error() {
            Some(number) => {
                PyOSError::new_err((number, source.to_string(), path.display().to_string()))
            }
            None => PyOSError::new_err(error.to_string()),
        },
        _ => argument(error, error.code()),
    }
}

pub fn capture(error: &capture::Error) -> PyErr {
    let exception = raised(CaptureError::new_err(error.to_string()), error.code(), error.hint());
    match error {
        capture::Error::Io { source, .. } => set(exception, "errno", source.raw_os_error()),
        _ => exception,
    }
}

pub fn analysis(error: &::analysis::Error) -> PyErr {
    let message = error.to_string();
    let exception = match error {
        ::analysis::Error::Capture(error) => return capture(error),
        ::analysis::Error::Stopped => return PyKeyboardInterrupt::new_err(()),
        ::analysis::Error::Window { .. } => return argument(message, error.code()),
        ::analysis::Error::KeyChanges { key } => {
            set(KeyChangesError::new_err(message), "key", key.as_str())
        }
        ::analysis::Error::ClocksApart { .. } => ClocksApartError::new_err(message),
        ::analysis::Error::Swapped { .. } | ::analysis::Error::SwappedOrApart { .. } => {
            SwappedError::new_err(message)
        }
        ::analysis::Error::Torn { .. } | ::analysis::Error::FlowsUnseen => {
            KeysRepeatError::new_err(message)
        }
        _ => EngineError::new_err(message),
    };
    raised(exception, error.code(), error.hint())
}

pub fn table(error: &::tables::Error) -> PyErr {
    raised(EngineError::new_err(error.to_string()), "parquet", None)
}

pub fn csv(error: &::tables::CsvError) -> PyErr {
    raised(EngineError::new_err(error.to_string()), error.code(), None)
}

pub fn trace(error: &::trace::Error) -> PyErr {
    raised(EngineError::new_err(error.to_string()), error.code(), None)
}

/// Gives an exception of the engine its code and its hint.
fn raised(error: PyErr, code: &'static str, hint: Option<&'static str>) -> PyErr {
    set(with_code(error, code), "hint", hint)
}

fn with_code(error: PyErr, code: &'static str) -> PyErr {
    set(error, "code", code)
}

fn set<T>(error: PyErr, attribute: &str, value: T) -> PyErr
where
    T: for<'a> IntoPyObject<'a>,
{
    Python::attach(|py| match error.value(py).setattr(attribute, value) {
        Ok(()) => error,
        Err(broken) => broken,
    })
}
