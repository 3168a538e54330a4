//! The command line: a program, EAL options, `--`, the program's own options.

use crate::error::Error;
use crate::program::Program;
use crate::programs;

/// What the command line asks for.
pub enum Request {
    /// Only a text.
    Say(String),
    /// A program.
    Run(Invocation),
}

/// A program, and what it was called with.
pub struct Invocation {
    program: Box<dyn Program>,
    eal: Vec<String>,
}

impl Invocation {
    /// Runs it to its end.
    pub fn run(self) -> Result<(), Error> {
        self.program.run(self.eal)
    }
}

/// Understands a command line.
pub fn parse(args: impl Iterator<Item = String>) -> Result<Request, Error> {
    let mut args = args.peekable();
    let usage = |text: String| Err(Error::Usage(text));
    let Some(name) = args.next() else { return Ok(Request::Say(help())) };
    if ["--version", "-V"].contains(&name.as_str()) {
        return Ok(Request::Say(version()));
    }
    if ["--help", "-h"].contains(&name.as_str()) {
        return Ok(Request::Say(help()));
    }
    let Some(spec) = programs::ALL.iter().find(|spec| spec.name == name) else {
        let known: Vec<_> = programs::ALL.iter().map(|spec| spec.name).collect();
        return usage(format!("got program {name:?}, expected one of {}", known.join(", ")));
    };
    let rest: Vec<String> = args.collect();
    let (eal, own) = match rest.iter().position(|arg| arg == "--") {
        Some(at) => (rest[..at].to_vec(), rest[at + 1..].to_vec()),
        None if rest.iter().any(|arg| arg == "--help" || arg == "-h") => (vec![], rest),
        None => (rest, vec![]),
    };
    match (spec.parse)(own) {
        Ok(program) => Ok(Request::Run(Invocation { program, eal })),
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            Ok(Request::Say(error.to_string().trim_end().to_owned()))
        }
        Err(error) => usage(first_paragraph(&error)),
    }
}

fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn version() -> String {
    format!("tailscope-dp {} (DPDK {})", env!("CARGO_PKG_VERSION"), dpdk::running_version())
}

fn help() -> String {
    let mut lines = vec![version(), String::new()];
    lines.push("tailscope-dp PROGRAM [EAL options] -- [options]".into());
    lines.push(String::new());
    lines.extend(programs::ALL.iter().map(|spec| format!("  {:<8}{}", spec.name, spec.about)));
    lines.push(String::new());
    lines.push("tailscope-dp PROGRAM -- --help lists a program's options.".into());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Result<Request, Error> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn message(line: &str) -> String {
        match request(line) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{line} should be refused"),
        }
    }

    #[test]
    fn what_stands_before_the_dashes_is_for_dpdk() {
        let Ok(Request::Run(command)) = request("l2fwd -l 1 --no-huge -- --rx-burst 4") else {
            panic!("a good command line")
        };
        assert_eq!(command.eal, ["-l", "1", "--no-huge"]);
    }

    #[test]
    fn what_cannot_be_understood_is_said_in_one_line() {
        assert!(message("fwd").starts_with(
            "got program \"fwd\", expected one of delay, flow, gen, l2fwd, l3fwd, reflect, sender, socket, stages, stamp, tap, watch, work"
        ));
        assert!(message("l2fwd -- --rx-burst many").contains("many"));
        assert!(message("gen -- --rate -3").contains("-3"));
        assert!(!message("l2fwd -- --nonsense").contains('\n'));
    }

    #[test]
    fn a_second_value_is_refused() {
        for program in ["delay", "gen", "l2fwd", "l3fwd", "stamp", "watch", "work"] {
            let said = message(&format!("{program} -- --stall-ns 1 --stall-ns 2"));
            assert!(said.contains("'--stall-ns <NS>' cannot be used multiple times"), "{said}");
        }
    }

    #[test]
    fn help_is_no_error() {
        for line in ["", "--help", "--version", "gen --help", "gen -- --help"] {
            assert!(matches!(request(line), Ok(Request::Say(_))), "{line}");
        }
    }
}
