//! What a process reports on its socket.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

/// The response, or the reason why there is none.
fn ask(socket: &Path, question: &Value) -> Result<Value, String> {
    crate::ask::ask(socket, question, None).map_err(|why| format!("{why}; TCP is not judged"))
}

/// What the process reports about a queue pair.
pub(super) fn queue_pair(socket: &Path, device: u32, qp: u32) -> Result<Value, String> {
    let question = json!({ "ask": "queue_pair", "device": device, "qp": qp });
    ask(socket, &question).map(|mut answer| answer["queue_pairs"][0].take())
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
pub(super) fn verbs(socket: &Path) -> Option<VerbCounts> {
    let answer = ask(socket, &json!({ "ask": "verbs" })).ok()?;
    let adapters = answer["verbs"].as_array().filter(|all| !all.is_empty())?;
    let mut counts = VerbCounts::default();
    for verb in adapters.iter().flat_map(|of| of["verbs"].as_array().into_iter().flatten()) {
        let number = |key: &str| verb[key].as_u64().unwrap_or(0);
        let of = counts.0.entry(verb["verb"].as_str().unwrap_or_default().to_owned()).or_default();
        of.calls += number("calls");
        of.timed += number("timed");
        of.total_ns += number("total_ns");
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
