//! Endpoints that are reset and used again after every kind of end, and adapters that are closed
//! with everything in flight.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use ual::vp_api::Role;
use ual::{
    AcceptParams, ConnEvent, ConnectParams, ConvertParams, Disconnect, Ep, EpState, Error,
    FailReason, Listen,
};

use crate::common::{HANG, LOCALHOST, Side, policy};
use crate::fake::{self, Behaviour, Meanwhile};

/// An end, or a failed attempt, of one pair of endpoints.
type End = fn(&Pair);

struct Pair {
    client: Side,
    server: Side,
    listen: Arc<Listen>,
    active: Arc<Ep>,
    passive: Arc<Ep>,
}

impl Pair {
    fn connect(&self) {
        self.active.connect(ConnectParams::new(self.listen.addresses()[0])).unwrap();
        self.passive.accept(self.server.request().request, AcceptParams::default()).unwrap();
        self.client.established();
        self.server.established();
    }

    fn over(&self) {
        for side in [&self.client, &self.server] {
            let event = side.conn_event();
            assert!(
                matches!(event, ConnEvent::Disconnected { .. } | ConnEvent::Broken { .. }),
                "{event}"
            );
        }
    }

    /// Resets an endpoint to unconnected, from any state.
    fn reset(&self) {
        for ep in [&self.active, &self.passive] {
            // Refused while a Terminate is on its way, which does not take long.
            let bound = warpline_patience::Bound::new("the endpoint to be reset");
            while ep.state() == EpState::Nonoperational {
                bound.check();
                match ep.reset() {
                    Ok(_) => {}
                    Err(Error::InvalidState { state, .. }) => {
                        assert_eq!(state, "still disconnecting");
                        std::thread::yield_now();
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            assert_eq!(ep.state(), EpState::Unconnected);
        }
    }
}

fn graceful(pair: &Pair) {
    pair.connect();
    pair.active.disconnect(Disconnect::Graceful).unwrap();
    pair.over();
}

fn graceful_by_the_passive_end(pair: &Pair) {
    pair.connect();
    pair.passive.disconnect(Disconnect::Graceful).unwrap();
    pair.over();
}

fn abrupt(pair: &Pair) {
    pair.connect();
    pair.passive.disconnect(Disconnect::Abrupt).unwrap();
    pair.over();
}

fn abrupt_at_both_ends(pair: &Pair) {
    pair.connect();
    pair.passive.disconnect(Disconnect::Abrupt).unwrap();
    pair.active.disconnect(Disconnect::Abrupt).unwrap();
    pair.over();
}

fn terminated(pair: &Pair) {
    pair.connect();
    // No receive is posted for it.
    pair.client.send(&pair.active, 1, 0, 10);
    pair.over();
    // The send that caused it: completed or flushed.
    pair.client.completion();
}

fn rejected(pair: &Pair) {
    pair.active.connect(ConnectParams::new(pair.listen.addresses()[0])).unwrap();
    ual::cm::reject(pair.server.request().request, b"").unwrap();
    assert!(matches!(pair.client.conn_event(), ConnEvent::Rejected { .. }));
}

fn refused(pair: &Pair) {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    pair.active.connect(ConnectParams::new(nobody)).unwrap();
    match pair.client.conn_event() {
        ConnEvent::Failed(error) => assert_eq!(error.reason, FailReason::Refused),
        other => panic!("{other}"),
    }
}

fn cancelled(pair: &Pair) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    pair.active.connect(ConnectParams::new(silent.local_addr().unwrap())).unwrap();
    pair.active.disconnect(Disconnect::Graceful).unwrap();
    match pair.client.conn_event() {
        ConnEvent::Failed(error) => assert_eq!(error.reason, FailReason::Cancelled),
        other => panic!("{other}"),
    }
}

fn misused(pair: &Pair) {
    let zero = ConnectParams::new(SocketAddr::new(LOCALHOST, 0));
    assert!(pair.active.connect(zero).is_err());
    let stale = ual::RequestId::from_raw(1 << 63 | 5);
    assert!(pair.passive.accept(stale, AcceptParams::default()).is_err());
}

/// The roles change: the side that accepted before connects now.
fn the_other_way(pair: &Pair) {
    let listen = pair.client.listen(LOCALHOST);
    pair.passive.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    pair.active.accept(pair.client.request().request, AcceptParams::default()).unwrap();
    pair.client.established();
    pair.server.established();
    pair.passive.disconnect(Disconnect::Graceful).unwrap();
    pair.over();
}

fn converted(pair: &Pair) {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let plain = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    pair.passive.convert(accepted.into(), ConvertParams::new(Role::Responder)).unwrap();
    pair.active.convert(plain.into(), ConvertParams::new(Role::Initiator)).unwrap();
    pair.client.established();
    pair.server.established();
    pair.active.disconnect(Disconnect::Graceful).unwrap();
    pair.over();
}

#[test]
fn endpoints_survive_every_kind_of_end_many_times() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let (listen, active, passive) = (server.listen(LOCALHOST), client.ep(), server.ep());
    let pair = Pair { client, server, listen, active, passive };
    let ends: [End; 11] = [
        graceful,
        rejected,
        graceful_by_the_passive_end,
        abrupt,
        refused,
        the_other_way,
        terminated,
        cancelled,
        converted,
        misused,
        abrupt_at_both_ends,
    ];
    for round in 0..4 {
        for at in 0..ends.len() {
            // In each round every end follows a different one.
            ends[(at * (2 * round + 1)) % ends.len()](&pair);
            pair.reset();
        }
        // No event is left, and a connection works.
        pair.connect();
        pair.server.post_recv(&pair.passive, 1, 0, 100);
        pair.client.send(&pair.active, 2, 0, 100);
        assert_eq!(pair.server.success().wr_id, 1);
        assert_eq!(pair.client.success().wr_id, 2);
        pair.active.disconnect(Disconnect::Graceful).unwrap();
        pair.over();
        pair.reset();
    }
    for side in [&pair.client, &pair.server] {
        assert_eq!(side.connection.queued() + side.completions.queued(), 0);
    }
}

// Of two threads that reset an endpoint one succeeds; the other must not end what begins after that.
#[test]
fn a_late_reset_does_not_affect_the_next_connection() {
    let meanwhile: Arc<Mutex<Option<Meanwhile>>> = Arc::default();
    let client = Side::of(&fake::ual(Behaviour::Queried(meanwhile.clone()), policy()));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = ConnectParams::new(silent.local_addr().unwrap());
    let ep = client.ep();
    ep.connect(to.clone()).unwrap();
    ep.disconnect(Disconnect::Graceful).unwrap();
    assert!(matches!(client.conn_event(), ConnEvent::Failed(_)));
    let faster = ep.clone();
    *meanwhile.lock().unwrap() = Some(Box::new(move || {
        faster.reset().unwrap();
        faster.connect(to).unwrap();
    }));
    assert!(matches!(ep.reset(), Err(Error::InvalidState { .. })));
    assert!(meanwhile.lock().unwrap().is_none());
    assert_eq!(ep.state(), EpState::ActivePending);
}

#[test]
fn an_adapter_is_taken_down_with_everything_in_flight() {
    let client = Side::new(policy());
    for _ in 0..10 {
        let server = Side::new(policy());
        let listen = server.listen(LOCALHOST);
        let address = listen.addresses()[0];
        // One connected, one whose request waits, one half open, one attempt, two conversions.
        let (active, passive) = (client.ep(), server.ep());
        active.connect(ConnectParams::new(address)).unwrap();
        passive.accept(server.request().request, AcceptParams::default()).unwrap();
        client.established();
        let waiting = client.ep();
        waiting.connect(ConnectParams::new(address)).unwrap();
        let request = server.request();
        let mut half_open = TcpStream::connect(address).unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let attempt = server.ep();
        attempt.connect(ConnectParams::new(silent.local_addr().unwrap())).unwrap();
        let conversions = [Role::Initiator, Role::Responder].map(|role| {
            let stream = TcpStream::connect(silent.local_addr().unwrap()).unwrap();
            let ep = server.ep();
            ep.convert(stream.into(), ConvertParams::new(role)).unwrap();
            ep
        });
        assert!(matches!(server.ia.close(), Err(Error::InUse { .. })));
        for ep in conversions.iter().chain([&passive, &attempt]) {
            ep.close().unwrap();
        }
        listen.close().unwrap();
        server.lmr.close().unwrap();
        for evd in [&server.completions, &server.requests, &server.connection] {
            evd.close().unwrap();
        }
        server.pz.close().unwrap();
        server.ia.close().unwrap();
        // Its request can no longer be accepted; its peers see the end.
        assert!(matches!(ual::cm::reject(request.request, b""), Err(Error::Closed(_))));
        half_open.set_read_timeout(Some(HANG)).unwrap();
        let _ = half_open.read_to_end(&mut Vec::new());
        // Not dropped: the connection thread may use one of them just now.
        active.close().unwrap();
        waiting.close().unwrap();
        while client.connection.dequeue().unwrap().is_some() {}
    }
}
