//! Rules of the configuration at real connections: refusals at both ends, numbers of connections, and what a
//! rule changes at the socket and in the start-up.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use ual::vp_api::{NativeEvent, NativeParams, Role};
use ual::{
    AcceptParams, Config, ConnEvent, ConnectParams, ConvertParams, Disconnect, Ep, EpState, Error,
    FailReason, ListenInit, LocalStreams, NotLocal, Policy, Ual,
};

use crate::common::{LOCALHOST, Side, connect, over_tcp, policy};
use crate::fake::{self, Behaviour, Manager};

/// The configuration with these rules. Each has a file name of its own: numbers of connections are counted by it.
fn config(rules: &str) -> Config {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("rules-{}.toml", NEXT.fetch_add(1, Ordering::Relaxed));
    let config = Config::parse(rules, Path::new(&name)).unwrap();
    Config { policy: policy(), ..config }
}

fn side(rules: &str) -> Side {
    Side::of(&Ual::with_config(config(rules)))
}

fn plain() -> Side {
    Side::new(policy())
}

const DENY_CONNECT: &str = r#"
[[rule]]
match = { peer = "127.0.0.0/8", role = "connect" }
action = { deny = "not from here" }
"#;

#[test]
fn a_rule_refuses_to_connect_whatever_policy_the_program_brings() {
    let (client, server) = (side(DENY_CONNECT), plain());
    let listen = server.listen(LOCALHOST);
    for own in [None, Some(Policy { local: LocalStreams::Off, ..policy() })] {
        let ep = client.ep();
        let params = ConnectParams { policy: own, ..ConnectParams::new(listen.addresses()[0]) };
        match ep.connect(params) {
            Err(Error::Denied(denied)) => {
                assert!(denied.place.ends_with(".toml:3"), "{denied}");
                assert!(denied.to_string().ends_with("not from here"), "{denied}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(ep.state(), EpState::Unconnected);
    }
}

#[test]
fn a_rule_refuses_requests_and_the_peer_gets_a_reject() {
    let rules = "[[rule]]\nmatch = { role = \"accept\" }\naction = { deny = \"closed\" }";
    let (client, server) = (plain(), side(rules));
    let init = ListenInit {
        // Rules override the listener's own policy, too.
        policy: Some(over_tcp()),
        ..ListenInit::new(SocketAddr::new(LOCALHOST, 0), &server.requests)
    };
    let listen = server.ia.listen(init).unwrap();
    let ep = client.ep();
    ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    rejected(&client);
    assert_eq!(server.ia.cm_counters().rejected, 1);
}

#[test]
fn a_converted_socket_meets_rules_in_both_roles() {
    for (role, name) in [(Role::Initiator, "connect"), (Role::Responder, "accept")] {
        let denying = side(&format!(
            "[[rule]]\nmatch = {{ role = \"{name}\" }}\naction = {{ deny = \"no\" }}"
        ));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let refused = denying.ep().convert(client.into(), ConvertParams::new(role)).unwrap_err();
        assert!(matches!(refused.error, Error::Denied(_)), "{}", refused.error);
    }
}

#[test]
fn the_next_address_of_a_peer_meets_its_own_rule() {
    let rules = "[[rule]]\nmatch = { peer = \"127.0.0.2\" }\naction = { deny = \"not there\" }";
    let (client, server) = (side(rules), plain());
    let listen = server.listen("127.0.0.2".parse().unwrap());
    let there = listen.addresses()[0];
    // Nothing listens at the first address.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ep = client.ep();
    ep.connect(ConnectParams { alternatives: vec![there], ..ConnectParams::new(nobody) }).unwrap();
    match client.conn_event() {
        ConnEvent::Failed(error) => {
            assert!(matches!(error.reason, FailReason::Denied(_)), "{error}");
            assert_eq!(error.reason.code(), "cm-denied");
        }
        other => panic!("{other}"),
    }
}

fn rejected(client: &Side) {
    match client.conn_event() {
        ConnEvent::Rejected { .. } => {}
        other => panic!("{other}"),
    }
}

fn limited(role: &str, most: u32) -> String {
    format!("[[rule]]\nmatch = {{ role = \"{role}\" }}\naction = {{ connections = {most} }}")
}

/// Closes a connection at its active end, and waits for both events.
fn close(client: &Side, server: &Side, active: &Arc<Ep>, how: Disconnect) {
    active.disconnect(how).unwrap();
    client.conn_event();
    server.conn_event();
}

fn reset(ep: &Ep) {
    let bound = warpline_patience::Bound::new("the endpoint to be reset");
    while ep.state() != EpState::Unconnected {
        bound.check();
        let _ = ep.reset();
    }
}

#[test]
fn every_end_of_a_connection_makes_room_for_another() {
    let (client, server) = (side(&limited("connect", 2)), plain());
    let listen = server.listen(LOCALHOST);
    let to = || ConnectParams::new(listen.addresses()[0]);
    let (held, _other) = connect(&client, &server, &listen);
    let full = |client: &Side| {
        let refused = client.ep().connect(to()).unwrap_err();
        assert!(refused.to_string().contains("`connections` allows 2"), "{refused}");
    };
    for how in [Disconnect::Graceful, Disconnect::Abrupt] {
        let (active, _passive) = connect(&client, &server, &listen);
        full(&client);
        close(&client, &server, &active, how);
        // The endpoint itself, again.
        reset(&active);
        active.connect(to()).unwrap();
        full(&client);
        // Rejected by the peer's application.
        server.ia.reject(server.request().request, &[]).unwrap();
        rejected(&client);
    }
    // Freed while it connects, and while it is connected.
    let ep = client.ep();
    ep.connect(to()).unwrap();
    full(&client);
    drop(server.request());
    ep.close().unwrap();
    let (active, _passive) = connect(&client, &server, &listen);
    full(&client);
    active.close().unwrap();
    assert!(matches!(
        server.conn_event(),
        ConnEvent::Broken { .. } | ConnEvent::Disconnected { .. }
    ));
    // Nobody listens.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for _ in 0..3 {
        let ep = client.ep();
        ep.connect(ConnectParams::new(nobody)).unwrap();
        assert!(matches!(client.conn_event(), ConnEvent::Failed(_)));
    }
    let (_last, _its) = connect(&client, &server, &listen);
    full(&client);
    drop(held);
}

#[test]
fn a_server_takes_as_many_as_its_rule_says() {
    let (client, server) = (plain(), side(&limited("accept", 1)));
    let listen = server.listen(LOCALHOST);
    let to = || ConnectParams::new(listen.addresses()[0]);
    for _ in 0..3 {
        let (active, passive) = connect(&client, &server, &listen);
        let ep = client.ep();
        ep.connect(to()).unwrap();
        rejected(&client);
        close(&client, &server, &active, Disconnect::Abrupt);
        reset(&passive);
        // A request that the application rejects.
        let ep = client.ep();
        ep.connect(to()).unwrap();
        server.ia.reject(server.request().request, &[]).unwrap();
        rejected(&client);
    }
}

#[test]
fn of_a_thousand_connects_from_several_threads_exactly_so_many_succeed() {
    let (client, server) = (side(&limited("connect", 7)), plain());
    let listen = server.listen(LOCALHOST);
    let address = listen.addresses()[0];
    let begun: Vec<Arc<Ep>> = std::thread::scope(|scope| {
        let attempts = || {
            let one = |_| {
                let ep = client.ep();
                ep.connect(ConnectParams::new(address)).is_ok().then_some(ep)
            };
            (0..250).filter_map(one).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(attempts)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(begun.len(), 7);
}

/// The socket of this process that is connected from this address.
fn socket_at(local: SocketAddr) -> OwnedFd {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut copies = numbers.filter_map(|number| {
        rustix::process::pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok()
    });
    let is_it = |fd: &OwnedFd| {
        let at = rustix::net::getsockname(fd).ok().and_then(|at| SocketAddr::try_from(at).ok());
        at == Some(local) && rustix::net::getpeername(fd).is_ok()
    };
    copies.find(is_it).expect("the connection's socket")
}

/// The octets that the kernel may send of it in a second.
fn rate_of(socket: &OwnedFd) -> u64 {
    let (mut rate, mut len) = (0u64, size_of::<u64>() as libc::socklen_t);
    let (fd, place) = (socket.as_raw_fd(), (&raw mut rate).cast());
    let option = libc::SO_MAX_PACING_RATE;
    // SAFETY: the descriptor is open while `socket` is borrowed; `place` has `len` octets.
    assert_eq!(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, place, &mut len) }, 0);
    rate
}

#[test]
fn rate_and_code_point_are_those_of_the_socket_and_the_stream_stays_on_tcp() {
    const RULE: &str = "action = { rate = \"200Mbit\", dscp = 46 }";
    for (role, far) in [("connect", NotLocal::Rate), ("accept", NotLocal::PeerPlain)] {
        let ruled = side(&format!("[[rule]]\nmatch = {{ role = \"{role}\" }}\n{RULE}"));
        let other = plain();
        let (client, server) = if role == "connect" { (&ruled, &other) } else { (&other, &ruled) };
        let listen = server.listen(LOCALHOST);
        let (active, passive) = (client.ep(), server.ep());
        active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
        passive.accept(server.request().request, AcceptParams::default()).unwrap();
        let (at_server, at_client) = (server.established(), client.established());
        assert_eq!(at_client.local, Err(far));
        let of_it = if role == "connect" { at_client } else { at_server };
        assert_eq!(of_it.local, Err(NotLocal::Rate));
        let socket = socket_at(of_it.ends.local.address);
        assert_eq!(rate_of(&socket), 25_000_000);
        assert_eq!(rustix::net::sockopt::ip_tos(&socket).unwrap(), 46 << 2);
    }
}

#[test]
fn the_stream_is_as_the_rule_says() {
    let rules = "[[rule]]\nmatch = {}\naction = { local = \"off\", crc = \"off\" }";
    let (client, server) = (side(rules), side(rules));
    let listen = server.listen(LOCALHOST);
    let (active, _passive) = connect(&client, &server, &listen);
    let made = active.established().unwrap();
    assert_eq!((made.crc, made.local), (false, Err(NotLocal::Policy)));
}

#[test]
fn a_rule_keeps_connections_off_an_adapter_and_programs_off_a_device() {
    let elsewhere = "[[rule]]\nmatch = { role = \"connect\" }\naction = { device = [\"acme\"] }";
    let (client, server) = (side(elsewhere), plain());
    let listen = server.listen(LOCALHOST);
    let refused = client.ep().connect(ConnectParams::new(listen.addresses()[0])).unwrap_err();
    assert!(refused.to_string().contains("`device` allows acme"), "{refused}");
    let none = "[[rule]]\nmatch = {}\naction = { device = [\"acme\"] }";
    assert!(matches!(Ual::with_config(config(none)).open_any(), Err(Error::NoDevice { .. })));
    let one = "[[rule]]\nmatch = {}\naction = { device = [\"acme\", \"vp_softrdma\"] }";
    assert_eq!(Ual::with_config(config(one)).open_any().unwrap().provider(), "vp_softrdma");
}

/// A device with its own connection manager cannot keep a rate; it can refuse.
#[test]
fn a_device_that_connects_itself_has_the_rules_that_it_can_keep() {
    let peer: SocketAddr = "192.0.2.9:99".parse().unwrap();
    for (action, key) in [("rate = \"1Gbit\"", "`rate`"), ("deny = \"no\"", "no")] {
        let manager = Arc::new(Manager::default());
        let rules = format!("[[rule]]\nmatch = {{}}\naction = {{ {action} }}");
        let behaviour = Behaviour::Native(manager.clone());
        let side = Side::of(&fake::configured(behaviour, config(&rules)));
        let refused = side.ep().connect(ConnectParams::new(peer)).unwrap_err();
        assert!(refused.to_string().contains(key), "{refused}");
        let _listen = side.listen(std::net::Ipv4Addr::UNSPECIFIED.into());
        let params = NativeParams { private_data: Vec::new(), ird: 1, ord: 1 };
        manager.report(NativeEvent::Request { listener: 0, request: 7, peer, local: None, params });
        assert!(matches!(manager.asked(), fake::Asked::Reject(7, _)));
    }
}
