//! `warpline explain`: why a connection is not faster. Samples a process for a while, and names causes in the order
//! of their share, each with the figures that show it and what to do. If no cause has a fifth of the time, it says
//! so and prints the figures.

mod args;
mod ask;
mod causes;
mod evidence;
mod find;
mod glance;
mod peer;
mod processor;
mod watch;

use std::io::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};
use state_page::read::QueuePair;

pub(crate) use args::ExplainArgs;

use crate::error::CliResult;
use crate::signals;
use crate::stat::pages::Seen;
use causes::{LEAST, Verdict, unknown, verdicts};
use evidence::{Evidence, STARVED};

/// Samples, and prints the causes.
pub(crate) fn run(args: &ExplainArgs, out: &mut dyn Write) -> CliResult<()> {
    signals::catch()?;
    let evidence = watch::watch(args)?;
    let verdicts = verdicts(&evidence);
    match args.json {
        true => writeln!(out, "{:#}", json(&evidence, &verdicts))?,
        false => out.write_all(text(&evidence, &verdicts).as_bytes())?,
    }
    Ok(())
}

/// Samples this connection, and returns what the command prints about it.
pub(crate) fn of_connection(seen: &Seen, qp: &QueuePair, seconds: Duration) -> String {
    let which = args::Which { pid: seen.page.process.pid, qp: Some(qp.qp) };
    let evidence = watch::watch_one(which, seen.clone(), qp.clone(), seconds);
    format!("in {:.1} s:\n{}", evidence.seconds, findings(&evidence, &verdicts(&evidence)))
}

/// The JSON. Names of fields and causes are a contract.
fn json(of: &Evidence, verdicts: &[Verdict]) -> Value {
    let cause = |verdict: &Verdict| {
        json!({
            "cause": verdict.cause.name(),
            "share": verdict.share,
            "shows": verdict.shows,
            "remedy": verdict.remedy,
        })
    };
    let figures = of.figures().into_iter().map(|(name, value)| (name.to_owned(), value.into()));
    json!({
        "connection": of.name,
        "pid": of.pid,
        "device": of.device,
        "qp": of.qp,
        "seconds": of.seconds,
        "without_processor": of.starved,
        "causes": verdicts.iter().map(cause).collect::<Vec<_>>(),
        "figures": figures.collect::<Map<String, Value>>(),
        "peer": of.peer.as_ref().map(|peer| peer.pid),
        "notes": notes(of),
    })
}

/// What the reader should know besides.
fn notes(of: &Evidence) -> Vec<String> {
    let starved = of.peer.as_ref().filter(|_| of.peer_starved() > STARVED).map(|peer| {
        let share = 100.0 * of.peer_starved();
        format!(
            "for {share:.0} % of the time the busiest thread of the peer, {} {}, was ready to run and had no processor",
            peer.pid, peer.exe
        )
    });
    of.notes.iter().cloned().chain(starved).chain(unknown(of)).collect()
}

/// For people: the connection, then what was found.
fn text(of: &Evidence, verdicts: &[Verdict]) -> String {
    format!("{}, in {:.1} s\n{}", of.name, of.seconds, findings(of, verdicts))
}

/// Causes, or the figures if there is none.
fn findings(of: &Evidence, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for (n, verdict) in verdicts.iter().enumerate() {
        let share = (100.0 * verdict.share).round();
        text += &format!("{}. {} ({share} %)\n", n + 1, verdict.cause.name());
        text += &format!("   shows  {}\n   try    {}\n", verdict.shows, verdict.remedy);
    }
    if verdicts.is_empty() {
        text += &format!("no cause has {:.0} % of the time; the figures:\n", 100.0 * LEAST);
        for (name, value) in of.figures() {
            text += &format!("   {name:<22} {value}\n");
        }
    }
    notes(of).iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cause_the_figures_are_listed_and_what_is_not_known_is_said() {
        let samples = evidence::Samples { taken: 10, sq_empty: 10, ..Default::default() };
        let of =
            Evidence { connected: true, seconds: 1.0, samples, arms: 1, ..Evidence::default() };
        let verdicts = verdicts(&of);
        let text = findings(&of, &verdicts);
        assert!(verdicts.is_empty(), "{text}");
        assert!(text.contains("no cause has 20 % of the time; the figures:"), "{text}");
        assert!(text.contains("send queue empty"), "{text}");
        assert!(text.contains("or waits for its peer is not known here"), "{text}");
        let seen = peer::Peer { pid: 7, stopped: 1.0, ..peer::Peer::default() };
        let of = Evidence { peer: Some(seen), ..of };
        assert!(unknown(&of).is_none());
    }
}
