//! Ports that are added and removed, and their addresses, in a network namespace of the test's own thread.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::process::Command;
use std::sync::Arc;

use common::*;
use rustix::thread::UnshareFlags;
use vp_api::*;

fn ip(args: &[&str]) {
    assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
}

/// Checks that the next event is of the only port, and reports this state.
fn await_port_event(events: &Events, online: bool) {
    assert_eq!(events.next(EventSource::Port(0)), AsyncEvent::PortState { online });
}

/// Runs a thread in a new namespace, which only it and the threads and programs that it starts are in.
#[test]
fn changes_of_links_and_addresses_are_reported() {
    // SAFETY: the namespace is that of this thread, which the test has for itself and which ends with it.
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    if unshared.is_err() {
        return warpline_skip::skip("ports", warpline_skip::NO_NAMESPACES);
    }
    let (rnic, events) = (open(), Arc::new(Events::default()));
    rnic.set_async_handler(Some(events.clone()));
    let is = |online, address: &str| {
        let [port] = &rnic.ports().unwrap()[..] else { panic!("one port") };
        port.online == online && port.addresses.contains(&address.parse().unwrap())
    };
    ip(&["link", "set", "lo", "up"]);
    await_port_event(&events, true);
    // First the addresses of one family, then of the other; each is an event, or part of the one before.
    for address in ["10.9.0.1/32", "fd00::9/128"] {
        ip(&["addr", "add", address, "dev", "lo"]);
        let bare = address.split('/').next().unwrap();
        until_told(&events, true, || is(true, bare));
        ip(&["addr", "del", address, "dev", "lo"]);
        until_told(&events, true, || !is(true, bare));
    }
    ip(&["link", "set", "lo", "down"]);
    until_told(&events, false, || !rnic.ports().unwrap()[0].online);
}

/// Waits for an event with this `online`, and until the port is as `expected`.
fn until_told(events: &Events, online: bool, expected: impl Fn() -> bool) {
    warpline_patience::until("the port to be as expected", expected);
    let bound = warpline_patience::Bound::new("an event of the port");
    while events.next(EventSource::Port(0)) != (AsyncEvent::PortState { online }) {
        bound.check();
    }
}
