//! Tests of the state page and the socket for requests. Each test runs in its own process, with its own runtime
//! directory, because all adapters of a process share a page.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::common::{LOCALHOST, Side, connect, is_alone, policy};
use serde_json::Value;
use state_page::layout::state;
use state_page::place::{self, Limits, Outcome};
use state_page::read::{Page, QueuePair};
use ual::config::Observe;
use ual::vp_api::{Remote, SendOp};
use ual::{Config, Disconnect, Ep, Ual};

const MESSAGES: u64 = 100;

fn directory() -> PathBuf {
    place::directory(|name| std::env::var_os(name), rustix::process::geteuid().as_raw())
}

/// The page of this process, if it has one.
fn page() -> Option<Page> {
    let found =
        place::pages(&directory(), rustix::process::geteuid().as_raw(), None, &mut { Limits::ALL })
            .ok()?;
    let alive = found.into_iter().filter_map(|found| match found.outcome {
        Outcome::Alive(page) => Some(*page),
        _ => None,
    });
    alive.into_iter().find(|page| page.process.pid == std::process::id())
}

fn local(ep: &Ep) -> Option<SocketAddr> {
    ep.qp_info().unwrap().local
}

/// The record of an endpoint.
fn of(ep: &Ep) -> Option<QueuePair> {
    let local = local(ep);
    let mut all = page()?.queue_pairs.into_iter();
    all.find(|qp| qp.qp == ep.id().0 && qp.local == local && local.is_some())
}

/// Sends a request to this process.
fn query(question: &str) -> Value {
    let path = directory().join(format!("{}.sock", std::process::id()));
    let mut stream = UnixStream::connect(path).unwrap();
    writeln!(stream, "{question}").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{question}: {error}: {line}"))
}

#[test]
fn a_record_counts_the_octets_of_its_connection() {
    if !is_alone("observe::a_record_counts_the_octets_of_its_connection") {
        return;
    }
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    for n in 0..MESSAGES {
        server.post_recv(&passive, n, 0, 8);
        client.send(&active, n, 0, 8);
        client.success();
        server.success();
    }
    let to = Remote { stag: server.lmr.stag(), to: server.region.addr() };
    client.post(&active, 1, SendOp::Write { remote: to }, 0, 40_000);
    client.post(&active, 2, SendOp::Read { remote: to, invalidate_sink: false }, 0, 5_000);
    client.success();
    client.success();
    // Both messages of the last exchange were sent: the Read's response has arrived.
    let (sent, received) = (of(&active).unwrap(), of(&passive).unwrap());
    assert!(sent.is_written() && received.is_written());
    assert_eq!((sent.messages_sent, received.responses_sent), (MESSAGES + 2, 1));
    assert_eq!(received.octets_received, 8 * MESSAGES + 40_000);
    assert_eq!((sent.octets_sent, sent.octets_received), (received.octets_received, 5_000));
    let counters = active.qp_info().unwrap().counters;
    assert_eq!((sent.fpdus_sent, sent.send_calls), (counters.fpdus_sent, counters.send_calls));
    assert_eq!((sent.state, sent.remote), (state::RTS, local(&passive)));
    assert_eq!((sent.sends_outstanding, received.recvs_posted), (0, 0));
    server.post_recv(&passive, 7, 0, 8);
    assert_eq!(of(&passive).unwrap().recvs_posted, 1);

    // The same by a request; and the adapters.
    let page = page().unwrap();
    let one =
        query(&format!("{{\"ask\":\"queue_pair\",\"device\":{},\"qp\":{}}}", sent.device, sent.qp));
    assert_eq!(one["queue_pairs"][0]["counters"]["octets_sent"], sent.octets_sent);
    assert!(one["queue_pairs"][0]["tcp"]["mss"].as_u64().unwrap() > 500, "{one}");
    let all = query("{\"ask\":\"queue_pairs\"}");
    assert!(all["queue_pairs"].as_array().unwrap().len() >= 2 && all["more"] == false, "{all}");
    let device = page.devices.iter().find(|(index, _)| *index == sent.device).unwrap();
    assert_eq!((device.1.regions, device.1.region_octets, device.1.qps), (1, 65536, 1));
    assert_eq!(device.1.cm[0], 1, "one connection was established");
    for wrong in ["x", "{}", "{\"ask\":\"x\"}", "{\"ask\":\"queue_pair\",\"device\":99,\"qp\":1}"] {
        assert!(query(wrong)["error"].is_string(), "{wrong}");
    }

    // After the end, a second connection of the same endpoint, and one that is freed.
    active.disconnect(Disconnect::Graceful).unwrap();
    client.conn_event();
    server.conn_event();
    assert!(matches!(of(&active).unwrap().state, state::ERROR | state::IDLE));
    active.reset().unwrap();
    passive.reset().unwrap();
    active.connect(ual::ConnectParams::new(listen.addresses()[0])).unwrap();
    let request = server.request();
    passive.accept(request.request, ual::AcceptParams::default()).unwrap();
    server.established();
    client.established();
    let again = of(&active).unwrap();
    assert!(again.generation > sent.generation && again.began > sent.began);
    assert_eq!((again.state, again.messages_sent), (state::RTS, MESSAGES + 2));
    let id = active.id().0;
    active.close().unwrap();
    assert!(page_has_not(id, again.local), "a freed endpoint has no record");
}

fn page_has_not(qp: u32, local: Option<SocketAddr>) -> bool {
    page().unwrap().queue_pairs.iter().all(|of| of.qp != qp || of.local != local)
}

#[test]
fn a_wrapped_provider_publishes_too() {
    if !is_alone("observe::a_wrapped_provider_publishes_too") {
        return;
    }
    let mut config = Config { policy: policy(), ..Config::default() };
    config.providers.wrap = vec!["stats".parse().unwrap()];
    let ual = Ual::with_config(config);
    let (client, server) = (Side::of(&ual), Side::of(&ual));
    let listen = server.listen(LOCALHOST);
    let (active, _passive) = connect(&client, &server, &listen);
    assert!(of(&active).unwrap().is_written());
    let verbs = query("{\"ask\":\"verbs\"}");
    assert_eq!(verbs["verbs"][0]["provider"], "vp_softrdma", "{verbs}");
}

#[test]
fn a_process_with_publish_off_has_no_page() {
    if !is_alone("observe::a_process_with_publish_off_has_no_page") {
        return;
    }
    let observe = Observe { publish: false };
    let ual = Ual::with_config(Config { observe, policy: policy(), ..Config::default() });
    let (client, server) = (Side::of(&ual), Side::of(&ual));
    let listen = server.listen(LOCALHOST);
    let (active, _passive) = connect(&client, &server, &listen);
    assert!(of(&active).is_none());
}
