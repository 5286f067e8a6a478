//! Tests of a server of rdma_cm that is started without an option: clients by either device reach it where it is bound
//! to none, and where it is bound to a device (`id->verbs`), those of this device only.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::process::{Command, ExitStatus};

use verbs_programs::process::{Process, free_port, is_listening};
use verbs_programs::{Libraries, libraries, skip};
use warpline_patience::{HANG, until};
use warpline_tests::netns::Netns;

const ADDRESS: &str = "10.77.0.1";

fn rping(mut command: Command, role: &[&str], address: &str, port: u16) -> Process {
    command.arg("rping").args(role).args(["-a", address, "-p", &port.to_string(), "-C", "10"]);
    Process::start(command).unwrap()
}

fn ended(process: &mut Process) -> ExitStatus {
    let ended = process.wait(HANG);
    ended.unwrap_or_else(|| panic!("it did not end: {}", process.printed()))
}

fn has_rping() -> bool {
    let has = libraries::find("rping").is_some();
    if !has {
        skip("servers of rdma_cm on both devices", warpline_skip::missing("rdmacm-utils"));
    }
    has
}

#[test]
fn a_server_that_is_bound_to_no_device_serves_clients_by_each() {
    if !has_rping() {
        return;
    }
    let libraries = Libraries::build();
    for address in ["127.0.0.1", "0.0.0.0"] {
        let port = free_port();
        let mut server = rping(libraries.run(None), &["-s", "-P"], address, port);
        until("a server to listen", || is_listening(port) || server.ended().is_some());
        for option in [Some("--roce"), Some("--iwarp"), None, Some("--roce")] {
            let mut command = libraries.run(option);
            // It listens by RoCE just after it listens by TCP.
            command.env("WARPLINE_CONFIG", libraries::root().join("tests/verbs/roce.toml"));
            let mut client = rping(command, &["-c"], "127.0.0.1", port);
            let status = ended(&mut client);
            assert!(
                status.success() && server.ended().is_none(),
                "{option:?}: {}\nThe server at {address}:\n{}",
                client.printed(),
                server.printed()
            );
        }
    }
}

#[test]
fn a_server_that_is_bound_to_a_device_serves_clients_of_this_one() {
    let (host, _peer) = match (has_rping(), Netns::pair(1500)) {
        (true, Ok(pair)) => pair,
        (true, Err(why)) => return skip("servers of rdma_cm on one device", &why),
        (false, _) => return,
    };
    let libraries = Libraries::build();
    let run = |option: Option<&str>| {
        let inner = libraries.run(option);
        let mut command = host.command(inner.get_program().to_str().unwrap());
        command.args(inner.get_args());
        command
    };
    let port = free_port();
    // It reports the port at which it listens only when it is reached: the first client tries until then.
    let mut server = rping(run(None), &["-s", "-P"], ADDRESS, port);
    let patient = |mut command: Command| {
        command.env("WARPLINE_CONFIG", libraries::root().join("tests/verbs/roce.toml"));
        command
    };
    let mut first = rping(patient(run(Some("--iwarp"))), &["-c"], ADDRESS, port);
    assert!(ended(&mut first).success(), "{}\n{}", first.printed(), server.printed());
    let mut other = rping(run(Some("--roce")), &["-c"], ADDRESS, port);
    let status = ended(&mut other);
    assert!(!status.success(), "{}", other.printed());
    assert!(other.printed().contains("REJECTED"), "{}", other.printed());
    let mut last = rping(run(Some("--iwarp")), &["-c"], ADDRESS, port);
    assert!(ended(&mut last).success() && server.ended().is_none(), "{}", last.printed());
}
