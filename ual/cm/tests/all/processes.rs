//! Peers in another process that is killed or stopped at any moment: in the rendezvous, in the stream, or
//! between two connections. Everything that this end has begun ends, and others are served meanwhile.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use ual_cm::{AcceptParams, ConnEvent, ConnectParams, Disconnect, Policy};
use vp_api::{Data, QpState, RecvWr, SendFlags, SendOp, SendWr, WorkCompletion};

use crate::common::{Machine, TestEndpoint, TestListener, as_connectee, next, runs};

const ROLE: &str = "WARPLINE_PROCESS_ROLE";
/// Longest time, in microseconds, that the peer runs after its first connection: enough for some connections.
const LONGEST: u64 = 4000;
/// Receives of an end of a connection.
const RECEIVES: u64 = 2;

/// A policy with time limits that a test can wait for.
fn policy() -> Policy {
    let soon = Duration::from_millis(150);
    Policy {
        connect_timeout: soon,
        request_timeout: soon,
        close_timeout: soon,
        probe_after: Some(Duration::from_millis(50)),
        ..Policy::default()
    }
}

/// The result of a connection, for the output of a test.
type Seen = BTreeMap<String, u64>;

fn record(seen: &mut Seen, event: &ConnEvent) {
    let what = match event {
        ConnEvent::Established(made) => match made.local {
            Ok(()) => "local".into(),
            Err(why) => format!("TCP ({})", why.code()),
        },
        ConnEvent::Failed(error) => error.reason.code().into(),
        ConnEvent::Broken { cause, .. } => cause.code().into(),
        ConnEvent::Disconnected { .. } => "closed".into(),
        other => other.to_string(),
    };
    *seen.entry(what).or_default() += 1;
}

/// Posts numbered receives; returns how many were accepted.
fn post_receives(endpoint: &TestEndpoint, wr_id: u64) -> u64 {
    let post = |_: &u64| endpoint.qp.post_recv(&[RecvWr { wr_id, sgl: &[] }]).is_ok();
    (0..RECEIVES).filter(post).count() as u64
}

/// Posts a Send; returns how many were accepted.
fn post_send(endpoint: &TestEndpoint) -> u64 {
    let (op, flags) = (SendOp::Send { solicited: false, invalidate: None }, SendFlags::SIGNALED);
    endpoint.qp.post_send(&[SendWr { wr_id: 7, op, data: Data::Sgl(&[]), flags }]).is_ok().into()
}

/// One connection with a message, by the end that connects; `None`: there was none.
fn connection(at: &Machine, to: SocketAddr, seen: &mut Seen) -> Option<()> {
    let (endpoint, events) = at.endpoint();
    let begun = at.cm.connect(&as_connectee(&endpoint), ConnectParams::new(to));
    let made = begun.ok().map(|()| next(&events, "event of the end that connects"));
    made.iter().for_each(|event| record(seen, event));
    let established = matches!(made, Some(ConnEvent::Established(_)));
    if established {
        // None is accepted if the connection has ended meanwhile.
        let due = post_receives(&endpoint, 5) + post_send(&endpoint);
        let _ = at.cm.disconnect(&as_connectee(&endpoint), Disconnect::Graceful);
        record(seen, &next(&events, "end of the end that connects"));
        // Each of them once.
        (0..due).for_each(|_| _ = at.completion());
    }
    forget(at, &endpoint);
    assert_eq!(at.cq.poll(&mut [WorkCompletion::BLANK]), Ok(0));
    established.then_some(())
}

fn forget(at: &Machine, endpoint: &TestEndpoint) {
    at.cm.forget(endpoint.qp.id());
    at.rnic.destroy_qp(endpoint.qp.id()).unwrap();
}

/// An end of a machine that accepts.
struct End {
    endpoint: Arc<TestEndpoint>,
    events: Receiver<ConnEvent>,
    /// Numbers its receives; counts those that have not completed.
    number: u64,
    due: u64,
    established: bool,
}

/// All of them.
#[derive(Default)]
struct Ends {
    open: Vec<End>,
    number: u64,
    seen: Seen,
}

impl Ends {
    /// Accepts requests, and polls completions and events.
    fn serve(&mut self, at: &Machine, listener: &TestListener) {
        if let Ok(request) = listener.requests.recv_timeout(Duration::from_micros(200)) {
            let (endpoint, events) = at.endpoint();
            self.number += 1;
            assert_eq!(post_receives(&endpoint, self.number), RECEIVES);
            let accept = AcceptParams::default();
            match at.cm.accept(&as_connectee(&endpoint), request.request, accept) {
                Ok(()) => self.open.push(End {
                    endpoint,
                    events,
                    number: self.number,
                    due: RECEIVES,
                    established: false,
                }),
                // It has ended meanwhile.
                Err(_) => forget(at, &endpoint),
            }
        }
        self.completions(at);
        let mut n = 0;
        while n < self.open.len() {
            let end = &mut self.open[n];
            let Ok(event) = end.events.try_recv() else {
                n += 1;
                continue;
            };
            record(&mut self.seen, &event);
            if let ConnEvent::Established(_) = event {
                end.established = true;
                continue;
            }
            if end.established {
                warpline_patience::until("all receives to complete", || {
                    self.completions(at);
                    self.open[n].due == 0
                });
            }
            forget(at, &self.open.remove(n).endpoint);
        }
    }

    fn completions(&mut self, at: &Machine) {
        let mut out = [WorkCompletion::BLANK];
        while at.cq.poll(&mut out).unwrap() == 1 {
            // An end that was never established gets no event.
            if let Some(end) = self.open.iter_mut().find(|end| end.number == out[0].wr_id) {
                end.due = end.due.checked_sub(1).expect("a receive completes once");
            }
        }
    }
}

/// This program again, as a peer.
struct Peer(Child);

impl Peer {
    fn start(role: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::plays_the_peer", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn gets(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn address(&mut self) -> SocketAddr {
        // Stays open: libtest ends a peer that cannot write after a minute that its test runs for long.
        let out = BufReader::new(self.0.stdout.as_mut().unwrap());
        let mut lines = out.lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix("address ")?.to_owned()));
        address.expect("the peer says its address").parse().unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test but the child of those below.
#[test]
fn plays_the_peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let machine = Machine::new();
    if let Ok(address) = role.parse() {
        loop {
            connection(&machine, address, &mut Seen::new());
        }
    }
    let listener = machine.listener();
    println!("\naddress {}", listener.address);
    std::io::stdout().flush().unwrap();
    let mut ends = Ends::default();
    loop {
        ends.serve(&machine, &listener);
    }
}

/// A random moment of a run.
fn moment(run: usize) -> Duration {
    let mut random = run as u64 + 1;
    for _ in 0..3 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
    }
    Duration::from_micros(random % LONGEST)
}

/// Two machines of this process have a connection meanwhile.
fn others_are_served(near: &Machine, far: &Machine, listener: &TestListener) {
    let (mut ends, mut seen, to) = (Ends::default(), Seen::new(), listener.address);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| connection(near, to, &mut seen));
        while !connecting.is_finished() || !ends.open.is_empty() {
            ends.serve(far, listener);
        }
        connecting.join().unwrap().expect("a connection");
    });
    // On a machine that is too busy for the rendezvous it is over TCP.
    assert!(seen.contains_key("closed"), "{seen:?}");
}

/// The peer has connected and sent nothing yet. Until it does this end may not send (RFC 5044 7.1), so it
/// cannot detect that the peer is stopped, neither through memory nor through TCP.
fn may_not_send(end: &TestEndpoint) -> bool {
    let info = end.qp.query().unwrap();
    info.state == QpState::Rts && info.counters.fpdus_received == 0
}

/// The peer connects, over and over.
fn who_connects(signal: Signal) {
    let (machine, near, far) = (Machine::with(policy()), Machine::new(), Machine::new());
    let (listener, other) = (machine.listener(), far.listener());
    let (mut ends, mut early) = (Ends::default(), 0);
    for run in 0..runs() {
        let peer = Peer::start(&listener.address.to_string());
        warpline_patience::until("a connection", || {
            ends.serve(&machine, &listener);
            !ends.open.is_empty()
        });
        let until = Instant::now() + moment(run);
        while Instant::now() < until {
            ends.serve(&machine, &listener);
        }
        peer.gets(signal);
        others_are_served(&near, &far, &other);
        warpline_patience::until("every connection of the peer to end, or to begin", || {
            ends.serve(&machine, &listener);
            ends.open.iter().all(|end| signal == Signal::STOP && may_not_send(&end.endpoint))
        });
        early += ends.open.len();
        drop(peer);
        warpline_patience::until("every connection of the peer to end", || {
            ends.serve(&machine, &listener);
            ends.open.is_empty()
        });
    }
    println!("{signal:?} of who connects: {:?}, {early} before they began", ends.seen);
    assert!(ends.seen["local"] > 0);
}

/// The peer accepts.
fn who_accepts(signal: Signal) {
    let (machine, near, far) = (Machine::with(policy()), Machine::new(), Machine::new());
    let other = far.listener();
    let (mut seen, mut longest) = (Seen::new(), Duration::ZERO);
    for run in 0..runs() {
        let mut peer = Peer::start("accepts");
        let address = peer.address();
        warpline_patience::until("a connection", || {
            connection(&machine, address, &mut seen).is_some()
        });
        let (_never, timer) = channel::<()>();
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                loop {
                    let begun = Instant::now();
                    let made = connection(&machine, address, &mut seen);
                    longest = longest.max(begun.elapsed());
                    if made.is_none() {
                        break;
                    }
                }
            });
            let _ = timer.recv_timeout(moment(run));
            peer.gets(signal);
            others_are_served(&near, &far, &other);
            connecting.join().unwrap();
        });
    }
    println!("{signal:?} of who accepts: {seen:?}; the longest connection {longest:?}");
    assert!(seen["local"] > 0);
}

#[test]
fn an_initiator_is_killed_at_any_moment() {
    who_connects(Signal::KILL);
}

#[test]
fn an_initiator_is_stopped_at_any_moment() {
    who_connects(Signal::STOP);
}

#[test]
fn an_acceptor_is_killed_at_any_moment() {
    who_accepts(Signal::KILL);
}

#[test]
fn an_acceptor_is_stopped_at_any_moment() {
    who_accepts(Signal::STOP);
}
