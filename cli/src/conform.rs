//! `warpline conform`: plays what iWARP asks of a peer, right and wrong, over raw TCP, and reports a
//! verdict for each requirement: pass, fail with the octets, or not testable and why.
//!
//! Main thread only, one case at a time, each on fresh connections and within a bounded time. A peer
//! that dies, falls silent or lies is what this looks for: a verdict, never an error.

mod answer;
mod args;
mod bench;
mod case;
mod catalogue;
mod ending;
mod extensions;
mod frames;
mod framing;
mod initiator;
mod judge;
mod link;
mod negotiation;
mod peer;
mod reads;
mod record;
mod report;
mod responder;
mod serve;
mod tagged;
mod untagged;
mod watch;

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use args::ConformArgs;

use self::bench::{Bench, Presence};
use self::case::{Case, Role, Stop, Verdict};
use self::report::{Played, Report};
use crate::args::PING_PORT;
use crate::error::{CliError, CliResult, Exit};

/// Plays the side that was asked for.
pub(crate) fn run(args: &ConformArgs, out: &mut dyn Write) -> CliResult<()> {
    if args.list {
        return list(out);
    }
    if let Some(address) = &args.serve {
        return serve::run(args, address, out);
    }
    known(args)?;
    let mut bench = open(args, out)?;
    bench.begin();
    if let Err(Stop::Skip(why) | Stop::Fail(why)) = bench.look() {
        return Err(CliError::new(Exit::Network, why)
            .at(format!("conform, {}", bench.address()))
            .because("the peer does not listen, does not connect, or does not speak MPA"));
    }
    let role = bench.role;
    let played = catalogue::cases().filter(|case| wanted(case, args, role));
    let played = played.map(|case| play(&mut bench, case)).collect();
    let report = Report::new(&bench, played, args);
    if args.json {
        report.json(out)?;
    } else {
        report.text(out)?;
    }
    match report.failures() {
        0 => Ok(()),
        failed => Err(CliError::new(
            Exit::Failed,
            format!("{} not met", crate::output::count(failed as u64, "requirement")),
        )
        .at(format!("conform, {}", bench.address()))),
    }
}

/// A misspelt id or name would silently test nothing.
fn known(args: &ConformArgs) -> CliResult<()> {
    let all = catalogue::requirements();
    let unknown = |what: String| {
        Err(CliError::new(Exit::Usage, what).at("conform").hint("see warpline conform --list"))
    };
    if let Some(id) = args.only.iter().find(|id| !all.iter().any(|r| r.id == **id)) {
        return unknown(format!("{id} is no requirement"));
    }
    let mut names = args.case.iter().chain(&args.skip);
    match names.find(|name| !catalogue::cases().any(|case| case.name == **name)) {
        None => Ok(()),
        Some(name) => unknown(format!("\"{name}\" is no case")),
    }
}

fn open(args: &ConformArgs, out: &mut dyn Write) -> CliResult<Bench> {
    if let Some(address) = &args.listen {
        let address = resolve(address)?;
        let bench = Bench::listening(address, args.timeout, args.wait).map_err(|error| {
            CliError::new(Exit::Network, format!("cannot listen at {address}: {error}"))
                .at("conform --listen")
                .hint("choose another port, or 0 for a free one")
        })?;
        if !args.json {
            writeln!(out, "waiting for the peer at {}", bench.address())?;
            out.flush()?;
        }
        return Ok(bench);
    }
    let address = resolve(args.peer.as_deref().unwrap_or_default())?;
    Ok(Bench::connecting(address, args.timeout, Duration::from_millis(args.settle)))
}

fn resolve(text: &str) -> CliResult<SocketAddr> {
    let wrong = |error: std::io::Error| {
        let exit = match error.kind() {
            std::io::ErrorKind::InvalidInput => Exit::Usage,
            _ => Exit::Network,
        };
        CliError::new(exit, error.to_string()).at("conform").hint("write HOST:PORT or [IPV6]:PORT")
    };
    let first = itapi::resolve(text, PING_PORT).map_err(wrong)?.into_iter().next();
    first.ok_or_else(|| CliError::new(Exit::Network, format!("{text} has no address")))
}

/// In the peer's role, and of the requirements that were asked for.
fn wanted(case: &Case, args: &ConformArgs, role: Role) -> bool {
    let named = |list: &[String]| list.iter().any(|name| name == case.name);
    let asked = args.only.is_empty() || case.ids.iter().any(|id| args.only.iter().any(|o| o == id));
    let picked = (args.case.is_empty() || named(&args.case)) && !named(&args.skip);
    asked && picked && (case.role == Role::Both || case.role == role)
}

fn play(bench: &mut Bench, case: &'static Case) -> Played {
    let record = bench.begin();
    if let Some(name) = bench.gone {
        let verdict = Verdict::Skip(format!("the peer is gone since \"{name}\""));
        return Played { case, verdict, findings: Vec::new(), entries: Vec::new() };
    }
    let played = bench.peer.offers(case.needs);
    let verdict =
        if played { (case.play)(bench).into() } else { Verdict::Skip(case.needs.lacking().into()) };
    let presence = if played { bench.presence(&verdict) } else { Presence::There };
    if matches!(presence, Presence::Gone) {
        bench.gone = Some(case.name);
    }
    // Of a peer that connects nobody knows why it stopped to. Whatever one that listens seemed to
    // answer, it had gone.
    let served = match presence {
        _ if bench.role == Role::Initiator => None,
        Presence::There => None,
        Presence::Away(time) => Some(format!("for {} seconds", time.as_secs())),
        Presence::Gone => Some("any more".into()),
    };
    let verdict = match served {
        None => verdict,
        Some(time) => {
            record.broken(&["SEC-18"], "a single connection takes the peer away from all others");
            Verdict::Fail(format!("behind it the peer serves nobody {time}"))
        }
    };
    let (entries, findings) = record.take();
    Played { case, verdict, findings, entries }
}

fn list(out: &mut dyn Write) -> CliResult<()> {
    for case in catalogue::cases() {
        let role = match case.role {
            Role::Responder => "listens",
            Role::Initiator => "connects",
            Role::Both => "either",
        };
        writeln!(out, "{role:<9} {:<48} {}", case.name, case.ids.join(" "))?;
    }
    writeln!(out)?;
    let shown = |id: &str| {
        catalogue::ON_THE_WAY.contains(&id) || catalogue::cases().any(|case| case.ids.contains(&id))
    };
    for requirement in catalogue::requirements().iter().filter(|r| !shown(&r.id)) {
        writeln!(out, "not shown {:<10} {}", requirement.id, catalogue::hidden(&requirement.id))?;
    }
    Ok(())
}
