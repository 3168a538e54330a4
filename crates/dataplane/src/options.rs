//! The options of a program: those that every program has, and how they are understood.

use crate::error::Error;
use crate::privileges;
use clap::{Arg, ArgAction, Args, Command, FromArgMatches};
use std::path::PathBuf;

const MORTAL: &str = "die-with-parent";

/// What every program understands.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// An iteration that takes longer is a stall.
    #[arg(long, default_value_t = 1000, value_name = "NS")]
    pub stall_ns: u64,
    /// Write what was recorded into this folder, as .npy files.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Wait for a byte from this named pipe before ports are opened, and for another before the
    /// first packet.
    #[arg(long, value_name = "PIPE")]
    pub hold: Option<PathBuf>,
    /// Take Unix time to be so far ahead of the monotonic clock, whatever the machine's clock is set to.
    #[arg(long, allow_negative_numbers = true, value_name = "NS")]
    pub unix_ahead_ns: Option<i64>,
}

/// Parses the options of one program, and `--die-with-parent`, which each of them has.
pub fn parse<T: Args + FromArgMatches>(
    name: &'static str,
    about: &'static str,
    own: Vec<String>,
) -> Result<T, clap::Error> {
    let command = Command::new(name)
        .bin_name(format!("tailscope-dp {name} [EAL options] --"))
        .no_binary_name(true);
    // What is common to all has a text of its own, which would stand here else.
    let command = T::augment_args(command).about(about).arg(
        Arg::new(MORTAL)
            .long(MORTAL)
            .action(ArgAction::SetTrue)
            .help("Be killed when the process that started this one ends"),
    );
    let matches = command.try_get_matches_from(own)?;
    if matches.get_flag(MORTAL) {
        privileges::die_with_parent();
    }
    T::from_arg_matches(&matches)
}

/// Refuses options of DPDK, for a program that does without.
pub fn refuse_eal(name: &str, eal: &[String]) -> Result<(), Error> {
    let expected = "no options before --: this program does without DPDK";
    eal.first().map_or(Ok(()), |option| {
        Err(Error::Usage(format!("{name}: got {option}, expected {expected}")))
    })
}
