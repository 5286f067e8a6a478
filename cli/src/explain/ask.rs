//! What a process reports on its socket.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use ual::observe::questions::{Question, QueuePairs, RoundTrip, Tcp, Verbs};

use crate::stat::pages::Seen;

/// The response, or the reason why there is none.
fn ask<T: DeserializeOwned>(seen: &Seen, question: &Question) -> Result<T, String> {
    crate::ask::ask(seen, question, None).map_err(|why| format!("{why}; the path is not judged"))
}

/// What TCP reports of the connection of a queue pair, or round trips of one that is not over TCP.
pub(super) fn path(
    seen: &Seen,
    device: u32,
    qp: u32,
) -> Result<(Option<Tcp>, Option<RoundTrip>), String> {
    let of: QueuePairs = ask(seen, &Question::QueuePair { device, qp })?;
    Ok(of.queue_pairs.first().map_or((None, None), |of| (of.tcp, of.round_trip)))
}

/// What a `stats` wrapper has counted of each verb so far, over all adapters.
#[derive(Clone, Debug, Default)]
pub(super) struct VerbCounts(BTreeMap<String, Counted>);

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    calls: u64,
    /// Calls that were timed, and their nanoseconds.
    timed: u64,
    total_ns: u64,
}

/// `None`: there is no such wrapper.
pub(super) fn verbs(seen: &Seen) -> Option<VerbCounts> {
    let answer: Verbs = ask(seen, &Question::Verbs {}).ok()?;
    if answer.verbs.is_empty() {
        return None;
    }
    let mut counts = VerbCounts::default();
    for verb in answer.verbs.into_iter().flat_map(|of| of.verbs) {
        let of = counts.0.entry(verb.verb).or_default();
        of.calls = of.calls.saturating_add(verb.calls);
        of.timed = of.timed.saturating_add(verb.timed);
        of.total_ns = of.total_ns.saturating_add(verb.total_ns);
    }
    Some(counts)
}

impl VerbCounts {
    /// Seconds in verbs since `before`, and seconds in those that wait for completions.
    pub(super) fn since(&self, before: &Self) -> (f64, f64) {
        let (mut called, mut waited) = (0.0, 0.0);
        for (verb, now) in &self.0 {
            let before = before.0.get(verb).copied().unwrap_or_default();
            let more = |now: u64, before: u64| now.saturating_sub(before) as f64;
            // Only some calls are timed.
            let mean = more(now.total_ns, before.total_ns) / more(now.timed, before.timed).max(1.0);
            let spent = mean * more(now.calls, before.calls) / 1e9;
            *if verb == "wait" { &mut waited } else { &mut called } += spent;
        }
        (called, waited)
    }
}
