//! The tester against the provider, as listening and as connecting peer, over IPv4, IPv6 and VLAN interfaces.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use warpline_tests::netns::Netns;

use super::{failures, with_verdict};
use crate::conform::start;
use crate::support::{Running, line_with, rest, run, text, warpline};

/// What a listening peer that obeys commands shows.
const LISTENS: &[&str] = &[
    "ROCE-01", "ROCE-03", "ROCE-04", "ROCE-05", "ROCE-06", "ROCE-07", "ROCE-09", "ROCE-10",
    "ROCE-12", "ROCE-13", "IBRC-01", "IBRC-02", "IBRC-03", "IBRC-04", "IBRC-05", "IBRC-06",
    "IBRC-07", "IBRC-08", "IBRC-09", "IBRC-10", "IBRC-11", "IBRC-12", "IBRC-13", "IBRC-14",
    "IBRC-15", "IBRC-16", "IBRC-17", "IBRC-18", "IBRC-19", "IBRC-26", "IBRC-27", "IBRC-28",
    "IBRC-29", "IBRC-30", "IBRC-31", "IBRC-32", "IBRC-33", "IBRC-34", "IBRC-35", "IBRC-36",
    "IBRC-37", "IBRC-38", "IBRC-39", "IBRC-40", "IBRC-41", "IBRC-42", "IBRC-43", "IBRC-44",
    "IBRC-45", "IBRC-46", "IBRC-47", "IBRC-48", "IBRC-49", "IBRC-50", "IBRC-51", "IBUD-01",
    "IBUD-02", "IBUD-03", "IBUD-05", "IBCM-01", "IBCM-02", "IBCM-03", "IBCM-04", "IBCM-05",
    "IBCM-06", "IBCM-07", "IBCM-08", "IBCM-09", "IBCM-10", "IBCM-11", "IBCM-12", "IBCM-13",
    "IBCM-14", "IBCM-15", "IBCM-16", "IBCM-17", "IBCM-18", "IBCM-19", "IBCM-20", "IBCM-21",
];

/// What `warpline ping` shows, which connects.
const CONNECTS: &[&str] = &[
    "ROCE-06", "IBRC-05", "IBRC-06", "IBRC-07", "IBRC-09", "IBRC-15", "IBRC-34", "IBRC-42",
    "IBRC-45", "IBRC-49", "IBCM-01", "IBCM-02", "IBCM-03", "IBCM-05", "IBCM-06", "IBCM-07",
    "IBCM-08", "IBCM-11", "IBCM-14", "IBCM-16", "IBCM-17", "IBCM-18",
];

// [ROCE-01, ROCE-03, ROCE-04, ROCE-05, ROCE-06, ROCE-07, ROCE-09, ROCE-10, ROCE-12, ROCE-13]
// [IBRC-01, IBRC-02, IBRC-03, IBRC-04, IBRC-05, IBRC-06, IBRC-07, IBRC-08, IBRC-09, IBRC-10]
// [IBRC-11, IBRC-12, IBRC-13, IBRC-14, IBRC-15, IBRC-16, IBRC-17, IBRC-18, IBRC-19, IBRC-26]
// [IBRC-27, IBRC-28, IBRC-29, IBRC-30, IBRC-31, IBRC-32, IBRC-33, IBRC-34, IBRC-35, IBRC-36]
// [IBRC-37, IBRC-38, IBRC-39, IBRC-40, IBRC-41, IBRC-42, IBRC-43, IBRC-44, IBRC-45, IBRC-46]
// [IBRC-47, IBRC-48, IBRC-49, IBRC-50, IBRC-51, IBUD-01, IBUD-02, IBUD-03, IBUD-05, IBCM-01]
// [IBCM-02, IBCM-03, IBCM-04, IBCM-05, IBCM-06, IBCM-07, IBCM-08, IBCM-09, IBCM-10, IBCM-11]
// [IBCM-12, IBCM-13, IBCM-14, IBCM-15, IBCM-16, IBCM-17, IBCM-18, IBCM-19, IBCM-20, IBCM-21]
#[test]
fn we_listen_and_nothing_fails() {
    let target = start(&["conform", "--roce", "--serve", "127.0.0.1:0"], "serving");
    let output = run(&["conform", "--roce", &target.address, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(failures(&report), Vec::<String>::new());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(report["peer"]["kind"], "warpline's target");
    let passed = with_verdict(&report, "pass");
    let missing: Vec<_> = LISTENS.iter().filter(|id| !passed.contains(**id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn we_connect_and_nothing_fails() {
    let listen = ["conform", "--roce", "--listen", "127.0.0.1:0", "--wait", "20"];
    // An own address for the tester: the provider's processes share those that they have.
    let address = format!("127.{}.0.9:0", 128 + std::process::id() % 100);
    let mut tester = start(&[&listen[..3], &[&address], &listen[4..]].concat(), "waiting");
    let (address, done) = (tester.address.clone(), Arc::new(AtomicBool::new(false)));
    let calling = std::thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(Ordering::Relaxed) {
                let ping = ["ping", &address, "-c", "2", "-i", "0", "-q", "--device", "vp_roce"];
                run(&ping);
            }
        }
    });
    let report = rest(&mut tester.output);
    let code = tester.process.code();
    done.store(true, Ordering::Relaxed);
    calling.join().unwrap();
    assert_eq!(code, Some(0), "{report}");
    let passed = report.lines().find(|line| line.starts_with("pass ")).unwrap();
    let missing: Vec<_> = CONNECTS.iter().filter(|id| !passed.contains(**id)).collect();
    assert!(missing.is_empty(), "{missing:?}: {report}");
}

/// The report of a tester on one host about a target on another one.
fn between(server: &Netns, client: &Netns, address: &str, only: &str) -> Value {
    let program = warpline().get_program().to_str().unwrap().to_owned();
    let mut serve = server.command(&program);
    serve.args(["conform", "--roce", "--serve", address]);
    let mut serving = Running::new(serve.stdout(Stdio::piped()).spawn().unwrap());
    let line = line_with(&mut serving.stdout(), |line| line.starts_with("serving"));
    let at = line.rsplit(' ').next().unwrap();
    let mut tester = client.command(&program);
    let output = tester.args(["conform", "--roce", at, "--json", "--only", only]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

// [ROCE-14]
#[test]
fn frames_over_ipv6_are_taken() {
    let (server, client) = match Netns::pair(1500) {
        Ok(pair) => pair,
        Err(why) => return warpline_skip::skip("RoCE over IPv6", &why),
    };
    for (host, address) in [(&server, "fd77::1/64"), (&client, "fd77::2/64")] {
        host.exec(&["ip", "addr", "add", address, "dev", "veth", "nodad"]).unwrap();
    }
    let report = between(&server, &client, "[fd77::1]:0", "ROCE-14,ROCE-06,IBRC-29,IBUD-02");
    assert_eq!(failures(&report), Vec::<String>::new());
    let passed = with_verdict(&report, "pass");
    for id in ["ROCE-14", "ROCE-06", "IBRC-29", "IBUD-02"] {
        assert!(passed.contains(id), "{id}: {report:#}");
    }
}

// [ROCE-15]
#[test]
fn frames_with_a_vlan_tag_are_taken() {
    let (server, client) = match Netns::pair(1500) {
        Ok(pair) => pair,
        Err(why) => return warpline_skip::skip("RoCE in a VLAN", &why),
    };
    for (host, address) in [(&server, "10.78.0.1/24"), (&client, "10.78.0.2/24")] {
        let add =
            ["ip", "link", "add", "link", "veth", "name", "tagged", "type", "vlan", "id", "5"];
        if let Err(why) = host.exec(&add) {
            return warpline_skip::skip("RoCE in a VLAN", &why);
        }
        host.exec(&["ip", "addr", "add", address, "dev", "tagged"]).unwrap();
        host.exec(&["ip", "link", "set", "tagged", "up"]).unwrap();
    }
    let report = between(&server, &client, "10.78.0.1:0", "ROCE-15");
    assert_eq!(failures(&report), Vec::<String>::new());
    assert!(with_verdict(&report, "pass").contains("ROCE-15"), "{report:#}");
}

#[test]
fn a_peer_that_does_not_answer_is_reported() {
    let output = run(&["conform", "--roce", "127.0.0.1:9", "-W", "0.3"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    let why = text(&output.stderr);
    assert!(why.contains("RoCE v2"), "{why}");
    let listing = text(&run(&["conform", "--roce", "--list"]).stdout);
    for printed in ["IBRC-05", "not shown IBUC-01", "listens", "connects"] {
        assert!(listing.contains(printed), "{printed}: {listing}");
    }
    for wrong in [&["conform", "127.0.0.1:1", "--from", "127.0.0.2"][..], &["conform", "--roce"]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let other = run(&["conform", "--roce", "127.0.0.1:1", "--only", "MPA-01"]);
    assert_eq!(other.status.code(), Some(2));
}
