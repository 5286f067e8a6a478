//! Test bench of a conformance case: connections to the peer, and what is known about it. Main thread only.
//! Between cases it keeps only the findings of the first probe.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use iwarp_proto::wire::mpa::{EnhancedRepr, FrameKind};
use iwarp_proto::wire::rdmap::Opcode;
use kal_os::Use;

use super::answer;
use super::frames::{self, FrameSpec};
use super::link::{Link, Seen, Startup};
use super::order::target_request;
use super::peer::{Kind, Peer};
use super::record::Record;
use super::verdict::{Play, Presence, Progress, Role, Verdict, fail, skip};
use crate::signals;

/// How long a peer's port may refuse connections: some servers serve one connection and are started again.
const REFUSED: Duration = Duration::from_secs(10);

/// How long a server that serves one connection may take to start again.
const RESTART: Duration = Duration::from_secs(2);

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(50);

/// The beginning of the text about a peer that should connect and does not.
const ABSENT: &str = "the peer did not connect";

/// IRD and ORD that we offer where a case does not care.
pub(super) const DEPTH: u16 = 16;

pub(super) struct Bench {
    /// The peer's part.
    pub(super) role: Role,
    address: SocketAddr,
    listener: Option<TcpListener>,
    pub(super) peer: Peer,
    pub(super) progress: Progress,
    record: Rc<Record>,
    /// How long a response may take.
    pub(super) patience: Duration,
    /// How long the peer may take to connect.
    wait: Duration,
    /// From a Reply to our first FPDU.
    pub(super) settle: Duration,
}

impl Bench {
    /// For a peer that listens at `address`.
    pub(super) fn connecting(address: SocketAddr, patience: Duration, settle: Duration) -> Self {
        Self {
            role: Role::Responder,
            address,
            listener: None,
            peer: Peer::default(),
            progress: Progress::default(),
            record: Record::new(),
            patience,
            wait: patience,
            settle,
        }
    }

    /// For a peer that connects to `address`.
    pub(super) fn listening(
        address: SocketAddr,
        patience: Duration,
        wait: Duration,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let mut this = Self::connecting(address, patience, Duration::ZERO);
        (this.role, this.listener, this.wait) = (Role::Initiator, Some(listener), wait);
        Ok(this)
    }

    /// The peer's address, or ours if it connects.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The state of the peer after a case: one that listens must reply to a good Request; one that
    /// connects must have connected.
    pub(super) fn presence(&mut self, verdict: &Verdict) -> Presence {
        if self.role == Role::Initiator {
            let absent = matches!(verdict, Verdict::Skip(why) if why.starts_with(ABSENT));
            return if absent { Presence::Gone } else { Presence::There };
        }
        let record = std::mem::replace(&mut self.record, Record::new());
        let (spec, started) = (self.usual(), Instant::now());
        let presence = loop {
            let there = matches!(self.start_up(&spec), Ok((_, Ok(_))));
            match started.elapsed() {
                time if there && time < RESTART => break Presence::There,
                time if there => break Presence::Away(time),
                time if time >= REFUSED || signals::caught() => break Presence::Gone,
                _ => std::thread::sleep(AGAIN),
            }
        };
        self.record = record;
        presence
    }

    /// A fresh record for the next case.
    pub(super) fn begin(&mut self) -> Rc<Record> {
        self.record = Record::new();
        self.record.clone()
    }

    /// A TCP connection with the peer, in either role.
    pub(super) fn tcp(&mut self) -> Play<Link> {
        match &self.listener {
            Some(listener) => {
                let stream = accept(listener, self.wait);
                let Some(stream) = stream else {
                    return skip(format!("{ABSENT} within {:?}", self.wait));
                };
                self.record.event("peer connected");
                Ok(Link::new(stream, self.record.clone(), self.patience))
            }
            None => self.dial(),
        }
    }

    fn dial(&self) -> Play<Link> {
        let until = Instant::now() + REFUSED;
        loop {
            match TcpStream::connect_timeout(&self.address, self.patience) {
                Ok(stream) => {
                    self.record.event("connected");
                    return Ok(Link::new(stream, self.record.clone(), self.patience));
                }
                Err(e)
                    if e.kind() == io::ErrorKind::ConnectionRefused
                        && Instant::now() < until
                        && !signals::caught() =>
                {
                    // Retry: nothing notifies the tester when the server is started again.
                    std::thread::sleep(AGAIN);
                }
                Err(e) => {
                    let remedy = kal_os::address_remedy(&e, &self.address, Use::Connect);
                    let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
                    return skip(format!("no TCP connection with {}: {e}{remedy}", self.address));
                }
            }
        }
    }

    /// The default start-up frame for this peer.
    pub(super) fn usual(&self) -> FrameSpec {
        let mut spec = if self.peer.plain {
            FrameSpec::plain(FrameKind::Request)
        } else {
            FrameSpec::enhanced(FrameKind::Request, DEPTH, DEPTH)
        };
        if self.peer.kind == Kind::Target {
            spec.data = target_request(4, false);
        }
        spec
    }

    /// Sends a Request as initiator; returns the Reply, or what was received instead.
    pub(super) fn start_up(&mut self, spec: &FrameSpec) -> Play<(Link, Result<Startup, Seen>)> {
        let mut link = self.tcp()?;
        link.write(&spec.octets());
        let reply = link.startup_frame(FrameKind::Reply);
        if let Ok(reply) = &reply {
            link.startup = Some(reply.clone());
            let crc = spec.crc || reply.fixed.crc;
            link.operate(crc, reply.fixed.markers, spec.markers);
        }
        Ok((link, reply))
    }

    /// Sends a Request, and fails unless the peer accepts.
    pub(super) fn accepted(&mut self, spec: &FrameSpec) -> Play<(Link, Startup)> {
        let (link, reply) = self.start_up(spec)?;
        match reply {
            Ok(reply) if !reply.fixed.rejected => Ok((link, reply)),
            Ok(_) => fail("the request was rejected (R=1)"),
            Err(seen) => fail(format!("the peer replied to the request with {}", seen.text())),
        }
    }

    /// Sends a Request and fails unless it is accepted. Then the tester may send.
    pub(super) fn started_up(&mut self, spec: &FrameSpec) -> Play<Link> {
        let (mut link, _) = self.accepted(spec)?;
        self.pause(&mut link)?;
        Ok(link)
    }

    /// Gives the peer time to be ready, which the wire does not show; it must send nothing.
    fn pause(&self, link: &mut Link) -> Play {
        if link.receives_within(self.settle)
            && !link.startup.as_ref().is_some_and(|s| s.fixed.markers)
        {
            // [CONN-11]
            let seen = link.next_within(Duration::ZERO).text();
            link.record()
                .broken(&["CONN-11"], format!("before our first FPDU the peer sent {seen}"));
        }
        Ok(())
    }

    /// As responder: receives the Request. A plain one from a peer that begins with the enhanced form is its
    /// retry after the last case, and is not judged.
    pub(super) fn requested(&mut self) -> Play<(Link, Startup)> {
        loop {
            let mut link = self.tcp()?;
            match link.startup_frame(FrameKind::Request) {
                Ok(request) if self.peer.enhanced && request.block.is_none() => {
                    link.record().kept(&["CONN-18"]);
                }
                Ok(request) => {
                    link.startup = Some(request.clone());
                    return Ok((link, request));
                }
                Err(seen) => {
                    return fail(format!("expected an MPA Request, received {}", seen.text()));
                }
            }
        }
    }

    /// The default Reply to a Request, with CRC on.
    pub(super) fn usual_reply(request: &Startup) -> FrameSpec {
        let mut reply = FrameSpec::plain(FrameKind::Reply);
        reply.revision = request.fixed.revision;
        reply.block = request.block.map(|block| EnhancedRepr {
            ird: block.ord.clamp(1, DEPTH),
            ord: block.ird.min(DEPTH),
            ..block
        });
        reply
    }

    /// Replies and waits for the peer's first message. Then the tester may send.
    pub(super) fn replied(
        &mut self,
        mut link: Link,
        request: &Startup,
        reply: &FrameSpec,
    ) -> Play<Link> {
        link.write(&reply.octets());
        let crc = reply.crc || request.fixed.crc;
        link.operate(crc, request.fixed.markers, reply.markers);
        match link.next() {
            Seen::Ulpdu(ulpdu) => link.first = Some(ulpdu),
            Seen::Nothing => return skip("the peer connects and sends nothing"),
            other => return fail(format!("expected a first FPDU, received {}", other.text())),
        }
        Ok(link)
    }

    /// A connection in full operation, in either role, on which the tester may send.
    pub(super) fn operating(&mut self) -> Play<Link> {
        if self.role == Role::Responder {
            let spec = self.usual();
            return self.started_up(&spec);
        }
        let (link, request) = self.requested()?;
        let reply = Self::usual_reply(&request);
        self.replied(link, &request, &reply)
    }

    /// Fails unless the peer has accepted everything so far: it responds to a zero-length RDMA Read, for
    /// which it checks no STag (RFC 5040 section 5.2.1).
    pub(super) fn goes_on(&self, link: &mut Link) -> Play {
        let msn = link.next_read_msn();
        link.send(&frames::read_request(msn, frames::read_of(0, 0x0bad_5700, u64::MAX - 3)));
        self.answers_probe(link)
    }

    /// The second half of [`Self::goes_on`].
    pub(super) fn answers_probe(&self, link: &mut Link) -> Play {
        loop {
            let seen = link.next();
            let Seen::Ulpdu(ulpdu) = &seen else {
                return fail(format!(
                    "a zero-length RDMA Read behind it was answered with {}",
                    seen.text()
                ));
            };
            match answer::kind(ulpdu) {
                Some(Opcode::ReadResponse) => return probe_response(link, ulpdu),
                Some(Opcode::Terminate) => return fail(format!("the peer sent {}", seen.text())),
                _ => {}
            }
        }
    }
}

/// The response must have the request's STag and TO, and no payload.
fn probe_response(link: &Link, ulpdu: &[u8]) -> Play {
    let ids = &["RDMAP-05", "RDMAP-06", "DDP-10"];
    match answer::tagged(ulpdu) {
        Some((stag, to, [])) if (stag, to) == frames::SINK && answer::last(ulpdu) => {
            link.record().kept(ids);
        }
        Some((_, _, payload @ [_, ..])) => link
            .record()
            .broken(ids, format!("a Read of no octets was answered with {} octets", payload.len())),
        _ => link.record().broken(ids, "a Read of no octets was answered to another place"),
    }
    Ok(())
}

fn accept(listener: &TcpListener, wait: Duration) -> Option<TcpStream> {
    let until = Instant::now() + wait;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream.set_nonblocking(false).ok().map(|()| stream),
            // Also if the peer ended again at once.
            Err(_) if Instant::now() < until && !signals::caught() => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => return None,
        }
    }
}
