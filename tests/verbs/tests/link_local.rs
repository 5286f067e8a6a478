//! Tests of link-local IPv6 addresses with their interface: rdma_cm between two hosts, and GIDs by path, by unmodified
//! programs on both devices.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::path::Path;

use verbs_programs::process::{Process, free_port};
use verbs_programs::survivor::BOUND;
use verbs_programs::{Libraries, libraries, run, skip};
use warpline_tests::netns::Netns;

/// Two hosts, and the link-local address of the first; `None`: it is reported that the test is skipped.
fn hosts(test: &str, program: &str, package: &str) -> Option<(Netns, Netns, String)> {
    if !libraries::is_installed(program, package, test) {
        return None;
    }
    let (first, second) = match Netns::pair(1500) {
        Ok(pair) => pair,
        Err(why) => {
            skip(test, &why);
            return None;
        }
    };
    // Not before the kernel has found out that it is unique.
    warpline_patience::until("link-local addresses", || {
        [&first, &second].iter().all(|host| link_local(host).is_some())
    });
    let address = link_local(&first).unwrap();
    Some((first, second, address))
}

fn link_local(host: &Netns) -> Option<String> {
    let mut list = host.command("ip");
    list.args(["-6", "-o", "addr", "show", "dev", "veth", "scope", "link", "-tentative"]);
    let output = list.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let address = text.split_whitespace().skip_while(|word| *word != "inet6").nth(1)?;
    Some(format!("{}%veth", address.split('/').next()?))
}

fn start(libraries: &Libraries, host: &Netns, line: &str, on_roce: bool) -> Process {
    let mut words = line.split(' ');
    let mut command = host.command(words.next().unwrap());
    command.args(words).env("LD_LIBRARY_PATH", libraries.directory());
    if on_roce {
        run::on_roce(&mut command);
    }
    Process::start(command).unwrap()
}

fn both_end(both: [Process; 2]) {
    for mut process in both {
        let ended = process.wait(BOUND);
        let printed = process.printed();
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {printed}");
    }
}

/// Binding, listening, resolving and connecting; a client tries until its server listens.
#[test]
fn rdma_cm_connects_two_hosts_by_link_local_addresses() {
    let name = "rdma_cm by link-local addresses";
    let Some((first, second, address)) = hosts(name, "rping", "rdmacm-utils") else { return };
    let libraries = Libraries::build();
    for on_roce in [false, true] {
        let port = free_port();
        let server = format!("rping -s -a {address} -p {port} -C 20 -V");
        let client = format!("rping -c -a {address} -p {port} -C 20 -V");
        let server = start(&libraries, &first, &server, on_roce);
        both_end([start(&libraries, &second, &client, on_roce), server]);
    }
}

/// By the GID of a link-local address: RoCE has one for each address, SoftRDMA for its main address, so where there is
/// no other. The ends exchange their numbers by TCP.
#[test]
fn link_local_gids_are_usable_by_path() {
    let name = "link-local GIDs";
    let program = "ibv_rc_pingpong";
    let Some((first, second, _)) = hosts(name, program, "ibverbs-utils") else { return };
    let libraries = Libraries::build();
    pingpong(&libraries, (&first, &second), "10.77.0.1", true);
    first.exec(&["ip", "addr", "del", "10.77.0.1/24", "dev", "veth"]).unwrap();
    pingpong(&libraries, (&first, &first), "127.0.0.1", false);
}

fn pingpong(libraries: &Libraries, (server, client): (&Netns, &Netns), to: &str, on_roce: bool) {
    let port = free_port();
    let line = format!("ibv_rc_pingpong -p {port} -g 1 -n 100");
    let serving = start(libraries, server, &line, on_roce);
    warpline_patience::until("the server to listen", || {
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/net/{table}"));
        let listens = |table: &String| {
            let output = server.command("cat").arg(Path::new(table)).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains(&format!(":{port:04X} "))
        };
        tables.iter().any(listens)
    });
    let line = format!("{line} {to}");
    both_end([start(libraries, client, &line, on_roce), serving]);
}
