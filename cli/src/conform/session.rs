//! A run of a tester: chooses the cases, plays one after the other, and reports. Main thread only.
//!
//! The same for each transport: a [`Stand`] has its cases and requirements, and reaches the peer.

use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;

use serde_json::Value;

use super::args::ConformArgs;
use super::case::Case;
use super::catalogue::Requirement;
use super::record::Record;
use super::report::{self, Played, Report};
use super::verdict::{Needs, Play, Presence, Progress, Role, Stop, Verdict};
use crate::error::{CliError, CliResult, Exit};
use crate::signals;

/// The case that every run begins with; it is reported for a requirement only if it finds a fault.
const PROBE: &str = "first contact";

/// A test bench of one transport.
pub(super) trait Stand: Sized + 'static {
    /// What a peer is not, with which no first contact was made.
    const STRANGER: &'static str;
    /// Requirements that a peer breaks which one case takes away from all others.
    const SERVES: &'static [&'static str];

    fn open(args: &ConformArgs, out: &mut dyn Write) -> CliResult<Self>;
    /// All cases, in the order in which they are played.
    fn cases() -> Vec<&'static Case<Self>>;
    fn requirements() -> Vec<Requirement>;
    /// Requirements that are checked beside those of the cases.
    fn on_the_way() -> &'static [&'static str];
    /// Why the wire cannot show a requirement that has no case.
    fn hidden(id: &str) -> &'static str;
    /// The peer's part.
    fn role(&self) -> Role;
    /// The peer's address, or ours if it connects.
    fn address(&self) -> SocketAddr;
    fn progress(&self) -> &Progress;
    fn progress_mut(&mut self) -> &mut Progress;
    /// What is known of the peer, for the report.
    fn head(&self) -> Value;
    /// A fresh record for the next case.
    fn begin(&mut self) -> Rc<Record>;
    fn probe(&mut self) -> Play;
    fn offers(&self, needs: Needs) -> bool;
    /// The state of the peer after a case.
    fn presence(&mut self, verdict: &Verdict) -> Presence;

    /// Whether a case for a peer in this role shows it.
    fn has_case(id: &str, role: Role) -> bool {
        let of_role = |case: &&Case<Self>| case.role == role || case.role == Role::Both;
        Self::cases().into_iter().filter(of_role).any(|case| case.ids.contains(&id))
    }

    /// Why a requirement was not tested with a peer in this role.
    fn unseen(id: &str, role: Role) -> &'static str {
        let mut other =
            Self::cases().into_iter().filter(|case| case.role != role && case.role != Role::Both);
        let elsewhere = other.any(|case| case.ids.contains(&id));
        match role {
            Role::Responder if elsewhere => "shown by a peer that connects (--listen)",
            Role::Initiator if elsewhere => "shown by a peer that listens",
            _ if Self::on_the_way().contains(&id) => "nothing that was received shows it",
            _ => Self::hidden(id),
        }
    }
}

/// Plays and reports what `args` select.
pub(super) fn run<B: Stand>(args: &ConformArgs, out: &mut dyn Write) -> CliResult<()> {
    known::<B>(args)?;
    any::<B>(args)?;
    signals::catch()?;
    let mut bench = B::open(args, out)?;
    let played = match probe(&mut bench)? {
        None => play_all(&mut bench, args, out)?,
        // No case can run with a peer whose start-up is wrong.
        Some(wrong) => {
            bench.progress_mut().gone = Some(wrong.name);
            vec![wrong]
        }
    };
    let unplayed = cases::<B>(args, bench.role()).len().saturating_sub(played.len());
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
fn verdict<B: Stand>(bench: &B, report: &Report) -> CliResult<()> {
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

/// The report for a peer whose first start-up breaks a requirement; an error if no peer speaks the protocol.
fn probe<B: Stand>(bench: &mut B) -> CliResult<Option<Played>> {
    let record = bench.begin();
    let Err(stop) = bench.probe() else { return Ok(None) };
    let (entries, findings) = record.take();
    match stop {
        Stop::Fail(why) if findings.iter().any(|f| matches!(f.verdict, Verdict::Fail(_))) => {
            let verdict = Verdict::Fail(why);
            Ok(Some(Played { name: PROBE, ids: &[], verdict, findings, entries }))
        }
        Stop::Skip(why) | Stop::Fail(why) => Err(CliError::new(Exit::Network, why)
            .at(format!("conform, {}", bench.address()))
            .because(B::STRANGER)),
    }
}

/// The cases of a run.
fn cases<B: Stand>(args: &ConformArgs, role: Role) -> Vec<&'static Case<B>> {
    B::cases().into_iter().filter(|case| wanted(case, args, role)).collect()
}

/// Plays the cases until the peer is gone; returns the result of each.
fn play_all<B: Stand>(
    bench: &mut B,
    args: &ConformArgs,
    out: &mut dyn Write,
) -> CliResult<Vec<Played>> {
    let cases = cases::<B>(args, bench.role());
    let (count, mut all) = (cases.len(), Vec::new());
    for case in cases {
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
fn known<B: Stand>(args: &ConformArgs) -> CliResult<()> {
    let all = B::requirements();
    let unknown = |what: String| {
        Err(CliError::new(Exit::Usage, what).at("conform").hint("see warpline conform --list"))
    };
    if let Some(id) = args.only.iter().find(|id| !all.iter().any(|r| r.id == **id)) {
        return unknown(format!("{id} is not a requirement"));
    }
    let mut names = args.case.iter().chain(&args.skip);
    match names.find(|name| !B::cases().iter().any(|case| case.name == **name)) {
        None => Ok(()),
        Some(name) => unknown(format!("\"{name}\" is not a case")),
    }
}

/// Refuses a selection without a case for the peer's role, which would pass without any test.
fn any<B: Stand>(args: &ConformArgs) -> CliResult<()> {
    let (role, peer) = match args.listen {
        None => (Role::Responder, "listens"),
        Some(_) => (Role::Initiator, "connects"),
    };
    if !cases::<B>(args, role).is_empty() {
        return Ok(());
    }
    Err(CliError::new(Exit::Usage, format!("no case for a peer that {peer} is selected"))
        .at("conform, --only, --case and --skip together")
        .hint("see warpline conform --list"))
}

/// Whether a case is for the peer's role and a selected requirement.
fn wanted<B>(case: &Case<B>, args: &ConformArgs, role: Role) -> bool {
    let named = |list: &[String]| list.iter().any(|name| name == case.name);
    let asked = args.only.is_empty() || case.ids.iter().any(|id| args.only.iter().any(|o| o == id));
    let picked = (args.case.is_empty() || named(&args.case)) && !named(&args.skip);
    asked && picked && (case.role == Role::Both || case.role == role)
}

/// `None`: the peer has been gone since an earlier case.
fn play<B: Stand>(bench: &mut B, case: &'static Case<B>) -> Option<Played> {
    if bench.progress().gone.is_some() {
        return None;
    }
    let record = bench.begin();
    let played = bench.offers(case.needs);
    let verdict =
        if played { (case.play)(bench).into() } else { Verdict::Skip(case.needs.lacking().into()) };
    let presence = if played { bench.presence(&verdict) } else { Presence::There };
    if matches!(presence, Presence::Gone) {
        // A peer that connects was gone before this case; one that listens is checked after it.
        let absent = bench.role() == Role::Initiator;
        let last = bench.progress().last.unwrap_or(PROBE);
        bench.progress_mut().gone = Some(if absent { last } else { case.name });
        if absent {
            return None;
        }
    }
    bench.progress_mut().last = Some(case.name);
    // The reason why a peer stopped connecting is not known. One that listens was gone, whatever it replied.
    let served = match presence {
        _ if bench.role() == Role::Initiator => None,
        Presence::There => None,
        Presence::Away(time) => Some(format!("for {} seconds", time.as_secs())),
        Presence::Gone => Some("any more".into()),
    };
    let verdict = match served {
        None => verdict,
        Some(time) => {
            record.broken(B::SERVES, "a single connection takes the peer away from all others");
            Verdict::Fail(format!("after it the peer serves no connection {time}"))
        }
    };
    let (entries, findings) = record.take();
    Some(Played { name: case.name, ids: case.ids, verdict, findings, entries })
}

/// Lists the cases, and the requirements that the wire cannot show.
pub(super) fn list<B: Stand>(out: &mut dyn Write) -> CliResult<()> {
    let cases = B::cases();
    for case in &cases {
        let role = match case.role {
            Role::Responder => "listens",
            Role::Initiator => "connects",
            Role::Both => "either",
        };
        writeln!(out, "{role:<9} {:<48} {}", case.name, case.ids.join(" "))?;
    }
    writeln!(out)?;
    let shown =
        |id: &str| B::on_the_way().contains(&id) || cases.iter().any(|case| case.ids.contains(&id));
    for requirement in B::requirements().iter().filter(|r| !shown(&r.id)) {
        writeln!(out, "not shown {:<10} {}", requirement.id, B::hidden(&requirement.id))?;
    }
    Ok(())
}
