//! The tester's UDP socket: port 4791 of an own address, and what it receives for each queue pair.
//!
//! Owner: the bench; its links share it. One thread. Every packet that arrives is checked: version, invariant CRC,
//! pad, partition. Packets for queue pairs that are over are dropped.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant};

use roce_proto::icrc::{self, Envelope, Ip};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

use super::packet::{Arrived, Packet, op};
use crate::conform::record::{Record, Way};

/// The port of RoCE v2.
pub(super) const PORT: u16 = 4791;
/// The queue pair of the connection manager.
pub(super) const GSI: u32 = 1;
/// Packets for one queue pair that are kept.
const KEPT: usize = 4096;
/// A wait for packets looks so often for a signal.
const SLICE: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Wire {
    udp: UdpSocket,
    /// Another port of the same address.
    other: UdpSocket,
    pub(super) here: IpAddr,
    there: Cell<IpAddr>,
    inner: RefCell<Inner>,
}

struct Inner {
    record: Rc<Record>,
    queues: Vec<(u32, VecDeque<Arrived>)>,
}

impl Wire {
    /// Binds an own address.
    pub(super) fn bind(here: IpAddr, there: IpAddr) -> io::Result<Self> {
        let open = |port| {
            let udp = UdpSocket::bind((here, port))?;
            match here {
                IpAddr::V4(_) => sockopt::set_ip_mtu_discover(&udp, Ipv4PathMtuDiscovery::DO)?,
                IpAddr::V6(_) => {
                    sockopt::set_ipv6_mtu_discover(&udp, Ipv6PathMtuDiscovery::DO)?;
                    // [ROCE-11]
                    kal_os::udp::accept_zero_checksum(&udp)?;
                }
            }
            Ok::<_, io::Error>(udp)
        };
        let (udp, other) = (open(PORT)?, open(0)?);
        let inner =
            RefCell::new(Inner { record: Record::new(), queues: vec![(GSI, VecDeque::new())] });
        Ok(Self { udp, other, here, there: Cell::new(there), inner })
    }

    /// The peer's address; unspecified: that of any peer that connects.
    pub(super) const fn there(&self) -> IpAddr {
        self.there.get()
    }

    /// From now on the peer is another one.
    pub(super) fn meet(&self, there: IpAddr) {
        self.there.set(there);
    }

    pub(super) fn begin(&self, record: Rc<Record>) {
        self.inner.borrow_mut().record = record;
    }

    pub(super) fn record(&self) -> Rc<Record> {
        self.inner.borrow().record.clone()
    }

    /// From now on packets for `qpn` are kept.
    pub(super) fn open(&self, qpn: u32) {
        self.inner.borrow_mut().queues.push((qpn, VecDeque::new()));
    }

    pub(super) fn close(&self, qpn: u32) {
        self.inner.borrow_mut().queues.retain(|(own, _)| *own != qpn);
    }

    /// Sends a packet with a correct invariant CRC.
    pub(super) fn send(&self, packet: &Packet) {
        self.send_to(self.there(), packet);
    }

    pub(super) fn send_to(&self, there: IpAddr, packet: &Packet) {
        let mut octets = packet.octets();
        self.seal(there, PORT, &mut octets);
        self.raw(there, &octets);
    }

    /// The octets of a packet with a correct invariant CRC, to be spoilt.
    pub(super) fn sealed(&self, packet: &Packet) -> Vec<u8> {
        let mut octets = packet.octets();
        self.seal(self.there(), PORT, &mut octets);
        octets
    }

    /// Fills in the invariant CRC.
    pub(super) fn seal(&self, there: IpAddr, port: u16, octets: &mut [u8]) {
        let envelope = envelope(self.here, there, port);
        if let Some(crc) = icrc::of_datagram(crc32, &envelope, octets)
            && let Some(place) = octets.last_chunk_mut()
        {
            *place = crc;
        }
    }

    /// Sends octets as they are.
    pub(super) fn raw(&self, there: IpAddr, octets: &[u8]) {
        self.record().octets(Way::Sent, octets);
        // What cannot be sent is as if it was lost: the case waits in vain for the response.
        let _ = self.udp.send_to(octets, (there, PORT));
    }

    /// Sends a packet from another UDP port.
    pub(super) fn send_from_elsewhere(&self, packet: &Packet) {
        let Ok(local) = self.other.local_addr() else { return };
        let mut octets = packet.octets();
        self.seal(self.there(), local.port(), &mut octets);
        self.record().octets(Way::Sent, &octets);
        let _ = self.other.send_to(&octets, (self.there(), PORT));
    }

    /// Has packets leave with this traffic class: 3 is "congestion experienced" (RFC 3168).
    pub(super) fn mark(&self, class: u8) {
        let set = match self.here {
            IpAddr::V4(_) => sockopt::set_ip_tos(&self.udp, class),
            IpAddr::V6(_) => sockopt::set_ipv6_tclass(&self.udp, class.into()),
        };
        // Without the mark the case finds nothing, and says so.
        let _ = set;
    }

    /// The next packet for `qpn`, with the address of its sender if it is for the connection manager.
    pub(super) fn next(&self, qpn: u32, wait: Duration) -> Option<Arrived> {
        let until = Instant::now() + wait;
        loop {
            if let Some(packet) = self.take(qpn) {
                return Some(packet);
            }
            let left = until.saturating_duration_since(Instant::now());
            self.receive(left.min(SLICE));
            // Also if packets for others never end.
            if left.is_zero() || crate::signals::caught() {
                return self.take(qpn);
            }
        }
    }

    fn take(&self, qpn: u32) -> Option<Arrived> {
        let mut inner = self.inner.borrow_mut();
        inner.queues.iter_mut().find(|(own, _)| *own == qpn)?.1.pop_front()
    }

    /// Drops what arrived for the connection manager.
    pub(super) fn drain(&self) {
        while self.receive(Duration::from_micros(1)) {}
        let mut inner = self.inner.borrow_mut();
        if let Some((_, queue)) = inner.queues.iter_mut().find(|(own, _)| *own == GSI) {
            queue.clear();
        }
    }

    /// Receives one packet; whether one arrived.
    fn receive(&self, wait: Duration) -> bool {
        let mut buffer = [0; 9216];
        let wait = wait.max(Duration::from_micros(1));
        if self.udp.set_read_timeout(Some(wait)).is_err() {
            return false;
        }
        let Ok((length, from)) = self.udp.recv_from(&mut buffer) else { return false };
        if from.ip() == self.there() || self.there().is_unspecified() {
            self.arrived(&buffer[..length], from);
        }
        true
    }

    fn arrived(&self, octets: &[u8], from: SocketAddr) {
        let mut inner = self.inner.borrow_mut();
        let record = inner.record.clone();
        let destination = octets.get(5..8).map_or(0, |o| u32::from_be_bytes([0, o[0], o[1], o[2]]));
        let is_notice = octets.first() == Some(&op::CNP);
        let queue = inner.queues.iter_mut().find(|(own, _)| *own == destination);
        // What arrives late for a connection that is over belongs to no case.
        let Some((_, queue)) = queue else { return };
        record.octets(Way::Received, octets);
        let packet = match Arrived::read(octets) {
            Ok(packet) => packet,
            Err(what) => {
                let ids: &'static [&'static str] =
                    if is_notice { &["ROCE-10"] } else { &["ROCE-01"] };
                return record.broken(ids, format!("received {what}"));
            }
        };
        if let Err((ids, text)) = judge(&packet, octets, from, self.here) {
            let of = super::packet::name(packet.opcode);
            record.broken(ids, format!("{of}: {text}"));
            // Receivers drop it.
            if ids == ["ROCE-06", "ROCE-07"] {
                return;
            }
        } else if !is_notice {
            record.kept(&["ROCE-01", "ROCE-04", "ROCE-06", "ROCE-07", "IBRC-26"]);
        }
        if queue.len() < KEPT {
            queue.push_back(packet);
        }
    }
}

type Fault = (&'static [&'static str], String);

/// Judges what every packet must have.
fn judge(packet: &Arrived, octets: &[u8], from: SocketAddr, here: IpAddr) -> Result<(), Fault> {
    // [ROCE-06, ROCE-07, ROCE-08]
    if !is_right(octets, from, here) {
        return Err((&["ROCE-06", "ROCE-07"], "its invariant CRC is wrong".into()));
    }
    if packet.version != 0 {
        return Err((&["ROCE-04"], format!("version {}", packet.version)));
    }
    if packet.pkey != 0xffff && packet.pkey != 0x7fff {
        return Err((&["IBRC-27"], format!("partition {:#06x}", packet.pkey)));
    }
    if !packet.whole {
        return Err((
            &["IBRC-26", "ROCE-01"],
            format!("{} octets, no multiple of 4", octets.len()),
        ));
    }
    if packet.padding.iter().any(|octet| *octet != 0) {
        return Err((&["IBRC-26"], "its pad is not zero".into()));
    }
    if packet.opcode == op::CNP && packet.extended.iter().any(|octet| *octet != 0) {
        return Err((&["ROCE-10"], "its 16 octets are not zero".into()));
    }
    Ok(())
}

/// Whether the invariant CRC is right, over IPv4 for some identification.
fn is_right(octets: &[u8], from: SocketAddr, here: IpAddr) -> bool {
    let given = |fragment: bool| {
        let mut envelope = envelope(from.ip(), here, from.port());
        if let Ip::V4 { dont_fragment, .. } = &mut envelope.ip {
            *dont_fragment = fragment;
        }
        match here {
            IpAddr::V4(_) => icrc::identify(crc32, &envelope, octets).is_some(),
            IpAddr::V6(_) => {
                icrc::of_datagram(crc32, &envelope, octets).as_ref() == octets.last_chunk()
            }
        }
    };
    given(true) || (here.is_ipv4() && given(false))
}

fn envelope(from: IpAddr, to: IpAddr, source_port: u16) -> Envelope {
    let ip = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            Ip::V4 { source: from.octets(), destination: to.octets(), id: 0, dont_fragment: true }
        }
        (from, to) => Ip::V6 { source: wide(from), destination: wide(to) },
    };
    Envelope { ip, source_port, destination_port: PORT }
}

/// An address as a GID.
pub(super) fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn crc32(crc: u32, octets: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(octets);
    hasher.finalize()
}
