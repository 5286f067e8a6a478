//! Tests of `warpline conform --roce`: against the provider in both roles, and against a simple peer, which has one fault
//! at a time: each is seen by its requirement.

mod faults;
mod manager;
mod memory;
mod peer;
mod provider;
mod requester;
mod responder;
mod wire;

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::Value;

use self::faults::{FAULTS, Fault};
use self::peer::Peer;
use crate::support::{run, text};

/// Testers at once: they mostly wait.
const AT_ONCE: usize = 6;

fn with_verdict(report: &Value, verdict: &str) -> BTreeSet<String> {
    let all = report["requirements"].as_array().unwrap().iter();
    let of = all.filter(|row| row["verdict"] == verdict);
    of.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// The report about a peer, or why there is none.
fn report(peer: &Peer, options: &[&str]) -> Result<Value, String> {
    let address = peer.address.to_string();
    let output = run(&[&["conform", "--roce", &address, "--json"], options].concat());
    serde_json::from_slice(&output.stdout).map_err(|_| text(&output.stderr))
}

/// Cases that fail, with why.
fn failures(report: &Value) -> Vec<String> {
    let cases = report["cases"].as_array().unwrap().iter();
    let failed = cases.filter(|case| case["octets"].is_array());
    failed.map(|case| format!("{}: {} {}", case["name"], case["why"], case["beside"])).collect()
}

#[test]
fn a_peer_without_fault_passes() {
    let peer = Peer::start(None);
    let report = report(&peer, &[]).unwrap();
    let failed = failures(&report);
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(with_verdict(&report, "fail"), BTreeSet::new());
}

#[test]
fn each_fault_is_seen_by_its_requirement() {
    let (queue, missed) = (Mutex::new(FAULTS.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some((fault, id)) = next else { return };
                    if let Some(what) = unseen(*fault, id) {
                        missed.lock().unwrap().push(what);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{} of {}: {missed:#?}", missed.len(), FAULTS.len());
}

/// What is wrong with the report about a fault.
fn unseen(fault: Fault, id: &str) -> Option<String> {
    let peer = Peer::start(Some(fault));
    let report = match report(&peer, &["--only", id, "-W", "1.5"]) {
        Ok(report) => report,
        Err(why) => return Some(format!("{fault:?} breaks {id}: {why}")),
    };
    let failed = with_verdict(&report, "fail");
    (!failed.contains(id)).then(|| format!("{fault:?} breaks {id}, seen: {failed:?}"))
}
