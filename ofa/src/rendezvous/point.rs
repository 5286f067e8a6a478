//! Listening points of the rendezvous: where peers connect to find a queue pair, and requests that come
//! early.
//!
//! A point has 256 slots; another is opened when all are taken. Slots are assigned in turn, so that a
//! number is not used again at once. Requests are delivered by the connection manager's thread, or by a
//! caller that does its work.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use kal_os::lock;
use ual_cm::{
    Cm, ConnRequest, Policies, Policy, RequestId, RequestSink, Serves, ServiceRequest, reject,
};

use crate::errno::Errno;
use crate::rendezvous::name::{self, Hello, Name};
use crate::rendezvous::retry::Retries;

const SLOTS: usize = 256;
/// How long an early request may wait, and its sender for the reply.
const EARLY_TIMEOUT: Duration = Duration::from_secs(600);
/// Early requests per queue pair.
const EARLY: usize = 8;

/// The policy of a rendezvous: programs may take long between the RTR of one end and that of the other.
pub(crate) fn patient(policy: &Policy) -> Policy {
    Policy { connect_timeout: EARLY_TIMEOUT, answer_timeout: EARLY_TIMEOUT, ..policy.clone() }
}

/// The queue pair at a slot.
pub(crate) trait PeerTarget: Send + Sync {
    /// A peer has requested it; returns false if the peer is not the expected one.
    fn on_peer(&self, peer: PeerRequest) -> bool;
}

/// A request of a peer.
#[derive(Clone, Copy)]
pub(crate) struct PeerRequest {
    pub(crate) request: RequestId,
    pub(crate) from: Name,
    /// The peer accepts Sends with Immediate.
    pub(crate) immediates: bool,
}

/// The points of an adapter.
#[derive(Default)]
pub(crate) struct Points {
    points: Mutex<Vec<Arc<Point>>>,
    pub(crate) retries: Arc<Retries>,
}

/// A listening point.
struct Point {
    port: u16,
    slots: Mutex<SlotTable>,
}

struct SlotTable {
    places: [Option<Weak<dyn PeerTarget>>; SLOTS],
    taken: [bool; SLOTS],
    next: usize,
}

/// A queue pair's slot at a point, released when it is dropped.
pub(crate) struct Slot {
    point: Arc<Point>,
    at: usize,
}

/// Requests that came before the queue pair was changed to RTR.
#[derive(Default)]
pub(crate) struct EarlyPeers(Vec<PeerRequest>);

impl Points {
    /// A slot for a queue pair that is about to be created.
    ///
    /// # Errors
    /// Those of bind(2) and listen(2) for a further point.
    pub(crate) fn place(&self, cm: &Cm, main: IpAddr) -> Result<Slot, Errno> {
        let mut points = lock(&self.points);
        if let Some(slot) = points.iter().find_map(take) {
            return Ok(slot);
        }
        let point = open(cm, main)?;
        points.push(point.clone());
        take(&point).ok_or(Errno(libc::ENOMEM))
    }
}

fn take(point: &Arc<Point>) -> Option<Slot> {
    let mut places = lock(&point.slots);
    let at = (0..SLOTS).map(|step| (places.next + step) % SLOTS).find(|at| !places.taken[*at])?;
    places.taken[at] = true;
    places.next = at + 1;
    Some(Slot { point: point.clone(), at })
}

/// `main`: the device's address.
fn open(cm: &Cm, main: IpAddr) -> Result<Arc<Point>, Errno> {
    let any: IpAddr = match main {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let bound = cm.bind(&[SocketAddr::new(any, 0)], Serves::Connections)?;
    let listening = cm.listen(bound)?;
    let port = listening.addresses().first().map_or(0, SocketAddr::port);
    let places = [const { None }; SLOTS];
    let slots = Mutex::new(SlotTable { places, taken: [false; SLOTS], next: 0 });
    let point = Arc::new(Point { port, slots });
    let sink: Arc<dyn RequestSink> = point.clone();
    let default = patient(&cm.policies().default);
    let peers = cm.policies().peers.iter().map(|(network, policy)| (*network, patient(policy)));
    cm.serve(listening, &sink, Policies { default, peers: peers.collect() }, false);
    Ok(point)
}

impl Slot {
    /// The queue pair number of this slot.
    pub(crate) fn number(&self) -> u32 {
        name::number(self.at as u8, self.point.port)
    }

    /// The queue pair is created: peers can find it from now on.
    pub(crate) fn publish(&self, qp: Weak<dyn PeerTarget>) {
        lock(&self.point.slots).places[self.at] = Some(qp);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut places = lock(&self.point.slots);
        places.places[self.at] = None;
        places.taken[self.at] = false;
    }
}

impl RequestSink for Point {
    fn request(self: Arc<Self>, request: ConnRequest) -> bool {
        let Some(hello) = Hello::parse(&request.private_data) else { return false };
        let (port, slot) = name::parts(hello.to);
        let qp = lock(&self.slots).places[usize::from(slot)].as_ref().and_then(Weak::upgrade);
        let Some(qp) = qp.filter(|_| port == self.port) else { return false };
        let sender = hello.sender();
        let from = request.ends.remote.address.ip().to_canonical();
        // The sender claims an address that it does not connect from.
        if from != sender.address && !meets_any() {
            return false;
        }
        let immediates = hello.takes_immediates();
        qp.on_peer(PeerRequest { request: request.request, from: sender, immediates })
    }

    fn service_request(self: Arc<Self>, _: ServiceRequest) -> bool {
        false
    }
}

/// Peers behind address translation do not know their address.
pub(crate) fn meets_any() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    *ASKED.get_or_init(read_meet_any)
}

fn read_meet_any() -> bool {
    const NAME: &str = "WARPLINE_VERBS_MEET_ANY";
    match std::env::var(NAME).as_deref().map(str::trim) {
        Ok("1") => true,
        Err(_) | Ok("" | "0") => false,
        Ok(other) => {
            eprintln!("warpline: {NAME}: `{other:.100}` is neither 0 nor 1, and is ignored");
            false
        }
    }
}

impl EarlyPeers {
    /// Keeps a request; false: there are too many.
    pub(crate) fn add(&mut self, peer: PeerRequest) -> bool {
        let fits = self.0.len() < EARLY;
        if fits {
            self.0.push(peer);
        }
        fits
    }

    /// The request of this peer, the last if it came several times; all others are rejected.
    pub(crate) fn take(&mut self, from: Name) -> Option<PeerRequest> {
        let mut found = None;
        for peer in self.0.drain(..) {
            let other = if peer.from == from { found.replace(peer) } else { Some(peer) };
            if let Some(other) = other {
                // It may be gone already.
                let _ = reject(other.request, &[]);
            }
        }
        found
    }
}

impl Drop for EarlyPeers {
    fn drop(&mut self) {
        for peer in self.0.drain(..) {
            // It may be gone already.
            let _ = reject(peer.request, &[]);
        }
    }
}
