//! Link-local IPv6 addresses: listed with their interface, and connected to between two hosts, on both devices.

use std::process::Stdio;

use serde_json::Value;
use warpline_tests::netns::Netns;

use crate::support::{Running, line_with, text, warpline};

/// Where an interface has no other address.
#[test]
fn a_link_local_address_is_listed_and_connected_to_with_its_interface() {
    let (server, client) = match Netns::pair(1500) {
        Ok(pair) => pair,
        Err(why) => return warpline_skip::skip("link-local addresses", &why),
    };
    server.exec(&["ip", "addr", "del", "10.77.0.1/24", "dev", "veth"]).unwrap();
    let program = warpline().get_program().to_str().unwrap().to_owned();
    // Not before the kernel has found out that it is unique.
    warpline_patience::until("a link-local address", || listed(&server, &program).is_some());
    let address = listed(&server, &program).unwrap();
    for device in ["vp_softrdma", "vp_roce"] {
        let mut serve = server.command(&program);
        serve.args(["ping", "--serve", &format!("[{address}]:0"), "--device", device]);
        let mut serving = Running::new(serve.stdout(Stdio::piped()).spawn().unwrap());
        let line = line_with(&mut serving.stdout(), |line| line.starts_with("serving"));
        let port = line.rsplit(':').next().unwrap();
        let mut ping = client.command(&program);
        let at = format!("[{address}]:{port}");
        warpline_patience::until("the client's address", || listed(&client, &program).is_some());
        let output =
            ping.args(["ping", &at, "-c", "2", "-i", "0", "--device", device]).output().unwrap();
        assert!(output.status.success(), "{device}: {}", text(&output.stderr));
    }
}

/// The link-local address that `warpline devices` lists, of an interface that is online.
fn listed(host: &Netns, program: &str) -> Option<String> {
    let output = host.command(program).args(["devices", "--json"]).output().unwrap();
    let listing: Value = serde_json::from_slice(&output.stdout).unwrap();
    let providers = listing["providers"].as_array().unwrap().iter();
    let devices = providers.filter_map(|provider| provider["devices"].as_array()).flatten();
    let ports = devices.filter_map(|device| device["ports"].as_array()).flatten();
    let online = ports.filter(|port| port["interface"] == "veth" && port["online"] == true);
    let addresses = online.filter_map(|port| port["addresses"].as_array()).flatten();
    let found = addresses.filter_map(Value::as_str).find(|address| address.starts_with("fe80"));
    found.map(str::to_owned)
}
