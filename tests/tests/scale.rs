//! Test of 2,000 connections in one process, all exchanging data, and the cost of an idle one.

use std::process::Command;
use std::time::Duration;

use itapi::{Ep, Evd, Ia, Operation, Work};
use warpline_tests::target::Target;

const CONNECTIONS: usize = 2_000;
const ROUNDS: usize = 3;
/// Time-out of waits, to fail instead of hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends on every connection at once and waits until every echo is back.
fn exchange(eps: &[Ep], evd: &Evd, round: usize) {
    for (index, ep) in eps.iter().enumerate() {
        let message = format!("round {round}, connection {index}");
        ep.post(Work::send(message.as_bytes()).unsignalled()).expect("room for one send");
    }
    let mut echoes = 0;
    let bound = warpline_patience::Bound::new("the echoes of a round");
    while echoes < eps.len() {
        bound.check();
        let completion = evd.wait_success(PATIENCE).expect("every echo comes back");
        if completion.operation == Operation::Recv {
            let ep = eps.iter().find(|ep| ep.id() == completion.ep).expect("one of ours");
            let buffer = completion.into_buffer().expect("a receive has a buffer");
            let text = String::from_utf8(buffer.to_vec()).expect("text");
            assert!(text.starts_with(&format!("round {round}, ")), "{text}");
            ep.post_recv(buffer).expect("room again");
            echoes += 1;
        }
    }
}

#[test]
fn two_thousand_connections_exchange_data() {
    warpline_tests::raise_descriptor_limit();
    let mut command = Command::new(env!("CARGO_BIN_EXE_target"));
    // Memory of a connection over TCP; a local stream also has rings.
    command.arg("127.0.0.1:0").env("WARPLINE_LOCAL", "off");
    let mut target = Target::start(command);
    let before = target.check();

    let ia = Ia::open().expect("SoftRDMA works everywhere");
    let pz = ia.pz().expect("protection zone");
    let evd = ia.evd(4 * CONNECTIONS as u32).expect("event dispatcher");
    let eps: Vec<Ep> = (0..CONNECTIONS)
        .map(|index| {
            let ep = pz.ep(&evd).depth(4, 4).build().expect("endpoint");
            ep.post_recv(pz.buffer(64).expect("buffer")).expect("room for a receive");
            // At the server one receive for a message, and one for the next, which may come before the
            // completion of the echo returns the first.
            ep.connect(target.address, &[2]).unwrap_or_else(|e| panic!("connection {index}: {e}"));
            ep
        })
        .collect();
    for round in 0..ROUNDS {
        exchange(&eps, &evd, round);
    }
    let after = target.check();
    assert_eq!(after.connections, CONNECTIONS as u64);
    let each = after.rss.saturating_sub(before.rss) / CONNECTIONS as u64;
    println!("{each} octets of the server's memory per connection, queues and buffers included");
    // 256 of them are a connection's slot in the state page.
    assert!(each < 18 * 1024, "{each} octets per idle connection");
    exchange(&eps, &evd, ROUNDS);
}
