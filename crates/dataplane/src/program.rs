//! What a program is, for the command line.

use crate::error::Error;

/// A program with its options, ready to run.
pub trait Program {
    /// Runs to the end; a result was printed, or there is an error.
    fn run(self: Box<Self>, eal: Vec<String>) -> Result<(), Error>;
}

/// Understands a program's options.
pub type Parse = fn(Vec<String>) -> Result<Box<dyn Program>, clap::Error>;

/// A program as the command line knows it.
pub struct Spec {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Understands its options.
    pub parse: Parse,
}
