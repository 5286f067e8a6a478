//! `warpline conform`: tests an iWARP peer over raw TCP, with correct and wrong octets, and reports a
//! verdict for each requirement: pass, fail with the octets, or not testable and why.
//!
//! Main thread only, one case at a time, each on fresh connections and within a bounded time. A peer
//! that dies, stops responding or sends false data is a verdict, never an error.

mod answer;
mod args;
mod bench;
mod case;
mod catalogue;
mod ending;
mod extensions;
mod fpdu_check;
mod frames;
mod framing;
mod initiator;
mod judge;
mod link;
mod negotiation;
mod order;
mod peer;
mod reads;
mod record;
mod report;
mod responder;
mod serve;
mod tagged;
mod untagged;
mod verdict;

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use args::ConformArgs;
use kal_os::Use;

use self::bench::{Bench, Presence};
use self::case::Case;
use self::report::{Played, Report};
use self::verdict::{Needs, Role, Stop, Verdict};
use crate::error::{CliError, CliResult, Exit};
use crate::signals;
use crate::values::PING_PORT;

/// Runs the requested side.
pub(crate) fn run(args: &ConformArgs, out: &mut dyn Write) -> CliResult<()> {
    if args.list {
        return list(out);
    }
    if let Some(address) = &args.serve {
        return serve::run(args, address, out);
    }
    known(args)?;
    any(args)?;
    signals::catch()?;
    let mut bench = open(args, out)?;
    let played = match probe(&mut bench)? {
        None => play_all(&mut bench, args, out)?,
        // No case can run with a peer whose start-up frames are wrong.
        Some(wrong) => {
            bench.gone = Some(wrong.case.name);
            vec![wrong]
        }
    };
    let unplayed = cases(args, bench.role).count().saturating_sub(played.len());
    let report = Report::new(&bench, played, unplayed, args);
    if args.json {
        report.json(out)?;
    } else {
        report.text(out)?;
    }
    if signals::caught() {
        return Err(signals::ended_early());
    }
    verdict(&bench, &report)
}

/// Success if every case was played and none failed; else an error that counts them.
fn verdict(bench: &Bench, report: &Report) -> CliResult<()> {
    let failed =
        |what| Err(CliError::new(Exit::Failed, what).at(format!("conform, {}", bench.address())));
    let not_met =
        |count: usize| format!("{} not met", crate::output::count(count as u64, "requirement"));
    match (report.failures(), report.not_played()) {
        (0, None) => Ok(()),
        (count, None) => failed(not_met(count)),
        (0, Some(text)) => failed(text),
        (count, Some(text)) => failed(format!("{}; {text}", not_met(count))),
    }
}

/// The report for a peer whose first start-up frames break a requirement; an error if no peer
/// speaks MPA.
fn probe(bench: &mut Bench) -> CliResult<Option<Played>> {
    let record = bench.begin();
    let Err(stop) = bench.probe() else { return Ok(None) };
    let (entries, findings) = record.take();
    match stop {
        Stop::Fail(why) if findings.iter().any(|f| matches!(f.verdict, Verdict::Fail(_))) => {
            let verdict = Verdict::Fail(why);
            Ok(Some(Played { case: &PROBE, verdict, findings, entries }))
        }
        Stop::Skip(why) | Stop::Fail(why) => Err(CliError::new(Exit::Network, why)
            .at(format!("conform, {}", bench.address()))
            .because("the peer does not listen, does not connect, or does not speak MPA")),
    }
}

/// The case that every run begins with; it is reported for a requirement only if it finds a fault.
static PROBE: Case = Case::both_ways("first contact", &[], Needs::Nothing, |b| b.probe());

/// The cases of a run.
fn cases(args: &ConformArgs, role: Role) -> impl Iterator<Item = &'static Case> {
    catalogue::cases().filter(move |case| wanted(case, args, role))
}

/// Plays the cases until the peer is gone; returns the result of each.
fn play_all(bench: &mut Bench, args: &ConformArgs, out: &mut dyn Write) -> CliResult<Vec<Played>> {
    let (role, mut all) = (bench.role, Vec::new());
    let count = cases(args, role).count();
    for case in cases(args, role) {
        let Some(played) = play(bench, case) else { break };
        // A case that a signal cut short says nothing about the peer.
        if signals::caught() {
            break;
        }
        all.push(played);
        if !args.json {
            writeln!(out, "{:>3}/{count} {}", all.len(), report::line_of(&all[all.len() - 1]))?;
            out.flush()?;
        }
    }
    Ok(all)
}

/// Refuses unknown ids and names, which would silently test nothing.
fn known(args: &ConformArgs) -> CliResult<()> {
    let all = catalogue::requirements();
    let unknown = |what: String| {
        Err(CliError::new(Exit::Usage, what).at("conform").hint("see warpline conform --list"))
    };
    if let Some(id) = args.only.iter().find(|id| !all.iter().any(|r| r.id == **id)) {
        return unknown(format!("{id} is not a requirement"));
    }
    let mut names = args.case.iter().chain(&args.skip);
    match names.find(|name| !catalogue::cases().any(|case| case.name == **name)) {
        None => Ok(()),
        Some(name) => unknown(format!("\"{name}\" is not a case")),
    }
}

/// Refuses a selection without a case for the peer's role, which would pass without any test.
fn any(args: &ConformArgs) -> CliResult<()> {
    let (role, peer) = match args.listen {
        None => (Role::Responder, "listens"),
        Some(_) => (Role::Initiator, "connects"),
    };
    if cases(args, role).next().is_some() {
        return Ok(());
    }
    Err(CliError::new(Exit::Usage, format!("no case for a peer that {peer} is selected"))
        .at("conform, --only, --case and --skip together")
        .hint("see warpline conform --list"))
}

fn open(args: &ConformArgs, out: &mut dyn Write) -> CliResult<Bench> {
    if let Some(address) = &args.listen {
        let address = resolve(address)?;
        let bench = Bench::listening(address, args.timeout, args.wait).map_err(|error| {
            CliError::new(Exit::Network, format!("cannot listen at {address}: {error}"))
                .at("conform --listen")
                .hint_at(&error, &address, Use::Bind)
                .or_hint("choose another port, or 0 for a free one")
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

/// Whether a case is for the peer's role and a selected requirement.
fn wanted(case: &Case, args: &ConformArgs, role: Role) -> bool {
    let named = |list: &[String]| list.iter().any(|name| name == case.name);
    let asked = args.only.is_empty() || case.ids.iter().any(|id| args.only.iter().any(|o| o == id));
    let picked = (args.case.is_empty() || named(&args.case)) && !named(&args.skip);
    asked && picked && (case.role == Role::Both || case.role == role)
}

/// `None`: the peer has been gone since an earlier case.
fn play(bench: &mut Bench, case: &'static Case) -> Option<Played> {
    if bench.gone.is_some() {
        return None;
    }
    let record = bench.begin();
    let played = bench.peer.offers(case.needs);
    let verdict =
        if played { (case.play)(bench).into() } else { Verdict::Skip(case.needs.lacking().into()) };
    let presence = if played { bench.presence(&verdict) } else { Presence::There };
    if matches!(presence, Presence::Gone) {
        // A peer that connects was gone before this case; one that listens is checked after it.
        let absent = bench.role == Role::Initiator;
        bench.gone = Some(if absent { bench.last.unwrap_or(PROBE.name) } else { case.name });
        if absent {
            return None;
        }
    }
    bench.last = Some(case.name);
    // The reason why a peer stopped connecting is not known. One that listens was gone, whatever it replied.
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
            Verdict::Fail(format!("after it the peer serves no connection {time}"))
        }
    };
    let (entries, findings) = record.take();
    Some(Played { case, verdict, findings, entries })
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
