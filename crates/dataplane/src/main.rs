//! `tailscope-dp PROGRAM [EAL options] -- [options]`: what touches packets while they fly.
//!
//! A program is set up in `programs/`, and then lives in one loop of `hot/`, which holds nothing else.
//! Everything a person or Python wants to know leaves as JSON lines on standard output (`events.rs`).
//! Start reading in `hot/l2fwd.rs`, then `turns.rs`, then `programs/l2fwd.rs`.

mod admission;
mod book;
mod card;
mod cli;
mod counters;
mod cpus;
mod cycle;
mod disturb;
mod error;
mod events;
mod faults;
mod flows;
mod gate;
mod handling;
mod hearer;
mod hot;
mod injected;
mod keys;
mod law;
mod links;
mod live;
mod mix;
mod monitor;
mod munmap;
mod npy;
mod options;
mod packet_ring;
mod partners;
mod passages;
mod path;
mod privileges;
mod program;
mod programs;
mod recorder;
mod reflector;
mod replay;
mod router;
mod routes;
mod schedule;
mod sender;
mod sendmsg;
mod series;
mod session;
mod sightings;
#[cfg(feature = "stages")]
mod stages;
mod stalls;
mod stamps;
mod stop;
mod stream;
mod surroundings;
mod template;
mod ticks;
mod turns;
mod udp;
mod values;
mod vitals;
mod wall;
mod writing;

use std::process::ExitCode;

fn main() -> ExitCode {
    privileges::reset();
    match cli::parse(std::env::args().skip(1)) {
        Ok(cli::Request::Say(text)) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Ok(cli::Request::Run(command)) => match command.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        },
        Err(error) => fail(&error),
    }
}

fn fail(error: &error::Error) -> ExitCode {
    events::error(error);
    ExitCode::FAILURE
}
