//! Test of `WARPLINE_VERBS_PORT_OFFSET`: a program listens by rdma_cm on a port number that TCP uses, and its
//! client connects to it.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use verbs_programs::process::{Process, is_listening};
use verbs_programs::{Libraries, libraries, skip};
use warpline_patience::until;

const VARIABLE: &str = "WARPLINE_VERBS_PORT_OFFSET";
const OFFSET: u16 = 1000;
/// Time-out of waits, to fail instead of hang.
const BOUND: Duration = Duration::from_secs(60);

/// A number on which TCP listens, with no RDMA listener on it yet.
fn taken() -> TcpListener {
    loop {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = held.local_addr().unwrap().port();
        let above = port.checked_add(OFFSET);
        if above.is_some_and(|above| TcpListener::bind((Ipv4Addr::LOCALHOST, above)).is_ok()) {
            return held;
        }
    }
}

fn rping(libraries: &Libraries, role: &str, port: u16, offset: u16) -> Process {
    let mut command = libraries.command("rping");
    command.args([role, "-a", "127.0.0.1", "-p", &port.to_string(), "-C", "10", "-V"]);
    Process::start({
        command.env(VARIABLE, offset.to_string());
        command
    })
    .unwrap()
}

#[test]
fn rdma_listens_on_a_number_that_tcp_has() {
    if libraries::find("rping").is_none() {
        return skip(
            "ports of rdma_cm beside those of TCP",
            warpline_skip::missing("rdmacm-utils"),
        );
    }
    let libraries = Libraries::build();
    let held = taken();
    let port = held.local_addr().unwrap().port();
    let mut refused = rping(&libraries, "-s", port, 0);
    assert!(refused.wait(BOUND).is_some_and(|status| !status.success()), "TCP has it");
    assert!(refused.printed().contains("Address already in use"), "{}", refused.printed());

    let mut server = rping(&libraries, "-s", port, OFFSET);
    until("a server to listen", || is_listening(port + OFFSET) || server.ended().is_some());
    let mut client = rping(&libraries, "-c", port, OFFSET);
    for (who, side) in [("client", &mut client), ("server", &mut server)] {
        let status = side.wait(BOUND);
        assert!(status.is_some_and(|status| status.success()), "{who}: {}", side.printed());
    }
}
