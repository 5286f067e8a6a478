//! Ports that are added and removed, in a network namespace of the test's own.

use std::process::{Command, Output};
use std::sync::Arc;

use crate::common::HANG;
use ual::vp_api::{AsyncEvent, PortInfo};
use ual::{Config, Evd, EvdInit, Event, Ia, Stream, Ual};

const ROLE: &str = "UAL_TEST_IN_NAMESPACE";

/// Runs the test below in a namespace, where the only interface is a loopback of its own.
#[test]
fn changes_of_ports_are_reported() {
    match Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output() {
        Ok(Output { status, .. }) if status.success() => {}
        _ => return warpline_skip::skip("ports", warpline_skip::NO_NAMESPACES),
    }
    let output = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "ports::in_a_namespace", "--nocapture"])
        .env(ROLE, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Not a test: what the one above runs.
#[test]
fn in_a_namespace() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    ip(&["link", "set", "lo", "up"]);
    let ia = Ual::with_config(Config::default()).open_any().unwrap();
    let evd = ia.create_evd(EvdInit::new(Stream::Unaffiliated, 64)).unwrap();
    let has = |port: &PortInfo, address: &str| port.addresses.contains(&address.parse().unwrap());
    assert!(ia.ports().unwrap()[0].online);
    ip(&["link", "set", "lo", "down"]);
    until(&ia, &evd, false, |port| !port.online);
    ip(&["link", "set", "lo", "up"]);
    until(&ia, &evd, true, |port| port.online && has(port, "127.0.0.1"));
    ip(&["addr", "add", "10.9.0.1/32", "dev", "lo"]);
    until(&ia, &evd, true, |port| has(port, "10.9.0.1"));
    ip(&["addr", "del", "10.9.0.1/32", "dev", "lo"]);
    until(&ia, &evd, true, |port| !has(port, "10.9.0.1"));
}

fn ip(args: &[&str]) {
    assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
}

/// Waits for an event with this `online`, after which the port must be as `expected`.
fn until(ia: &Ia, evd: &Arc<Evd>, wanted: bool, expected: impl Fn(&PortInfo) -> bool) {
    let bound = warpline_patience::Bound::new("the port to be as expected");
    loop {
        bound.check();
        match evd.wait(Some(HANG)).unwrap() {
            Event::Unaffiliated { port: Some(0), event: AsyncEvent::PortState { online } } => {
                if online == wanted && expected(&ia.ports().unwrap()[0]) {
                    return;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}
