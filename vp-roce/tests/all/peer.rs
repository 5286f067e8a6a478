//! A peer made of `roce-proto` on a socket of the test, which may lose, repeat and damage what it sends.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use kal_os::udp::segments;
use roce_proto::cm::addresses::{Addresses, Pair};
use roce_proto::cm::connection::{Connection, Event, Patience};
use roce_proto::cm::mad::{self, Mad};
use roce_proto::cm::message::{Gid, Message, Req};
use roce_proto::cm::{QKEY, QPN, tcp_service};
use roce_proto::icrc::{Envelope, Ip, of_datagram};
use roce_proto::psn::Psn;
use roce_proto::rc::{
    Access, AccessError, AtomicOp, Delivered, Host, Mtu, Qp, RcConfig, Source, timeout,
};
use roce_proto::ud::{self, Outgoing};
use roce_proto::wire::bth::{Bth, Opcode};
use roce_proto::wire::packet::Packet;
use warpline_patience::Bound;

/// The port of RoCE.
const PORT: u16 = 4791;
/// The GUID of the provider: it checks the invariant CRC of such a peer in full.
pub(crate) const OURS: u64 = 0x5741_5250_4c00_0001;
/// Another one.
pub(crate) const STRANGER: u64 = 0x0200_0000_0000_0001;

pub(crate) fn crc32(crc: u32, octets: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(octets);
    hasher.finalize()
}

/// A random generator with a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// Its receives, which have room for everything, and its sources.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) local: Vec<Vec<u8>>,
    current: Vec<u8>,
    pub(crate) arrived: VecDeque<Vec<u8>>,
}

impl Host for Memory {
    fn take_receive(&mut self) -> Option<u64> {
        self.current.clear();
        Some(1 << 20)
    }
    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        assert_eq!(offset as usize, self.current.len());
        self.current.extend(octets);
        Ok(())
    }
    fn complete_receive(&mut self, _: Delivered) {
        self.arrived.push_back(std::mem::take(&mut self.current));
    }
    fn fail_receive(&mut self) {}
    fn allows(&mut self, _: Access, _: &roce_proto::wire::extended::Reth) -> bool {
        true
    }
    fn check(&mut self, _: u32, _: u64, _: u32, _: Access) -> Result<(), AccessError> {
        Err(AccessError)
    }
    fn place(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), AccessError> {
        Err(AccessError)
    }
    fn atomic(&mut self, _: u32, _: u64, _: AtomicOp) -> Result<u64, AccessError> {
        Err(AccessError)
    }
    fn invalidate(&mut self, _: u32) -> Result<(), AccessError> {
        Err(AccessError)
    }
    fn place_response(&mut self, _: u32, _: u32, _: &[u8]) -> Result<(), AccessError> {
        Err(AccessError)
    }
}

/// See the module.
pub(crate) struct Peer {
    udp: UdpSocket,
    here: Ipv4Addr,
    there: Ipv4Addr,
    begun: Instant,
    pub(crate) qp: Option<Qp>,
    pub(crate) memory: Memory,
    pub(crate) random: Random,
    /// Packets in a hundred that are lost, each way, and repeated.
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    /// The last datagram with data that it sent.
    pub(crate) sent: Vec<u8>,
    /// The provider's queue pair.
    destination: u32,
    /// Notifications of congestion that arrived.
    pub(crate) reports: u32,
    /// It is of another implementation: its packets have no mark.
    pub(crate) is_stranger: bool,
}

impl Peer {
    pub(crate) fn new(here: Ipv4Addr, there: IpAddr) -> Self {
        let IpAddr::V4(there) = there else { panic!("IPv4") };
        let udp = UdpSocket::bind((here, PORT)).unwrap();
        udp.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        rustix::net::sockopt::set_ip_mtu_discover(
            &udp,
            rustix::net::sockopt::Ipv4PathMtuDiscovery::DO,
        )
        .unwrap();
        let (qp, memory, random) = (None, Memory::default(), Random(0x9e37_79b9_7f4a_7c15));
        let (begun, sent) = (Instant::now(), Vec::new());
        let (lost, repeated, destination, reports) = (0, 0, 0, 0);
        Self {
            udp,
            here,
            there,
            begun,
            qp,
            memory,
            random,
            lost,
            repeated,
            sent,
            destination,
            reports,
            is_stranger: false,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// Has its packets arrive as if a congested router had marked them (RFC 3168), or not.
    pub(crate) fn mark(&self, marked: bool) {
        rustix::net::sockopt::set_ip_tos(&self.udp, if marked { 3 } else { 0 }).unwrap();
    }

    /// Opcode and PSN of the next packet for its queue pair, which it does not handle.
    pub(crate) fn packet(&self) -> Option<(Opcode, u32)> {
        let mut buffer = [0; 65_536];
        let len = self.udp.recv(&mut buffer).ok()?;
        let bth = Packet::parse(&buffer[..len]).unwrap().headers.bth;
        (bth.destination == 0x1234).then_some((bth.opcode, bth.psn.get()))
    }

    /// From now on datagrams arrive as they were sent, several in one call: for [`Peer::together`].
    pub(crate) fn join(&self) {
        segments::prepare(&self.udp, false).unwrap();
    }

    /// The next datagrams that arrive in one call, with their traffic class and whether every invariant CRC is correct.
    pub(crate) fn together(&self) -> (Vec<Vec<u8>>, u8, bool) {
        let mut buffer = vec![0; segments::MAX_OCTETS];
        let bound = Bound::new("datagrams");
        let received = loop {
            bound.check();
            match segments::receive(&self.udp, &mut buffer) {
                Ok(received) => break received,
                Err(_) => std::thread::yield_now(),
            }
        };
        let all = buffer[..received.len].chunks(received.segment).map(<[u8]>::to_vec);
        let all: Vec<Vec<u8>> = all.collect();
        let (source, destination) = (self.there.octets(), self.here.octets());
        let whole = (0..).zip(&all).all(|(id, datagram)| {
            let ip = Ip::V4 { source, destination, id, dont_fragment: true };
            let envelope = Envelope { ip, source_port: PORT, destination_port: PORT };
            of_datagram(crc32, &envelope, datagram).as_ref() == datagram.last_chunk()
        });
        (all, received.class, whole)
    }

    /// Reports congestion to the provider.
    pub(crate) fn report(&self) {
        // InfiniBand annex A17: opcode, BECN, 16 octets of zeros.
        let destination = self.destination.to_be_bytes();
        let mut datagram = vec![0x81, 0x40, 0xff, 0xff, 0x40, 0, 0, 0];
        datagram[5..].copy_from_slice(&destination[1..]);
        datagram.resize(12 + 16, 0);
        self.seal(&mut datagram);
        self.raw(&datagram);
    }

    /// Sends octets as they are.
    pub(crate) fn raw(&self, datagram: &[u8]) {
        self.udp.send_to(datagram, (self.there, PORT)).unwrap();
    }

    /// Fills in the invariant CRC.
    pub(crate) fn seal(&self, datagram: &mut Vec<u8>) {
        datagram.extend([0; 4]);
        let (source, destination) = (self.here.octets(), self.there.octets());
        let ip = Ip::V4 { source, destination, id: 0, dont_fragment: true };
        let envelope = Envelope { ip, source_port: PORT, destination_port: PORT };
        let crc = of_datagram(crc32, &envelope, datagram).unwrap();
        *datagram.last_chunk_mut().unwrap() = crc;
    }

    pub(crate) fn send_mad(&self, mad: &Mad) {
        self.raw(&self.mad(mad));
    }

    /// The datagram with a message of the connection manager.
    pub(crate) fn mad(&self, mad: &Mad) -> Vec<u8> {
        let outgoing = Outgoing {
            destination: QPN,
            source: QPN,
            qkey: QKEY,
            psn: Psn::new(0),
            immediate: None,
            solicited: false,
            len: 256,
        };
        let mut datagram = outgoing.headers().emit().as_slice().to_vec();
        datagram.extend(mad.emit());
        self.seal(&mut datagram);
        datagram
    }

    /// Sends a datagram with this payload.
    pub(crate) fn send_datagram(&self, outgoing: Outgoing, payload: &[u8]) {
        let mut datagram = outgoing.headers().emit().as_slice().to_vec();
        datagram.extend(payload);
        datagram.resize(datagram.len().next_multiple_of(4), 0);
        self.seal(&mut datagram);
        self.raw(&datagram);
    }

    /// The next message of the connection manager that arrives.
    pub(crate) fn message(&self) -> Message {
        let bound = Bound::new("a message");
        let mut buffer = [0; 65_536];
        loop {
            bound.check();
            let Ok(len) = self.udp.recv(&mut buffer) else { continue };
            let packet = Packet::parse(&buffer[..len]).unwrap();
            let incoming = ud::accept(&packet, QKEY, mad::LEN).unwrap();
            return Message::parse(&Mad::parse(incoming.payload).unwrap()).unwrap();
        }
    }

    /// A request for `to`, as the provider sends it.
    pub(crate) fn request(&self, to: SocketAddr, id: u32, guid: u64) -> Req {
        let pair = Pair::V4 { source: self.here.octets(), destination: self.there.octets() };
        Req {
            local_id: id,
            service: tcp_service(to.port()),
            ca_guid: guid,
            qpn: 0x1234,
            responder_resources: 4,
            initiator_depth: 4,
            remote_response_timeout: 14,
            local_response_timeout: 14,
            transport: 0,
            starting_psn: Psn::new(100),
            retry_count: 7,
            rnr_retry_count: 7,
            pkey: 0xffff,
            mtu: Mtu::Octets1024.code(),
            max_cm_retries: 15,
            srq: false,
            local_gid: Gid::of_ipv4(self.here.octets()),
            remote_gid: Gid::of_ipv4(self.there.octets()),
            flow_label: 0,
            rate: 0,
            traffic_class: 0,
            hop_limit: 64,
            service_level: 0,
            ack_timeout: 14,
            private: Addresses { source_port: 9, pair }.with(&[]).unwrap(),
        }
    }

    /// Connects; returns the private data of the reply.
    pub(crate) fn connect(&mut self, to: SocketAddr, guid: u64) -> Vec<u8> {
        let req = self.request(to, 77, guid);
        let mut machine = Connection::connect(req, 5, Patience::of(14, 15), self.now());
        let bound = Bound::new("the connection");
        let mut buffer = [0; 65_536];
        loop {
            bound.check();
            machine.handle_timeout(self.now());
            while let Some(mad) = machine.poll_transmit() {
                self.send_mad(&mad);
            }
            let Ok(len) = self.udp.recv(&mut buffer) else { continue };
            let packet = Packet::parse(&buffer[..len]).unwrap();
            let mad = Mad::parse(ud::accept(&packet, QKEY, mad::LEN).unwrap().payload).unwrap();
            let event = machine.handle(&Message::parse(&mad).unwrap(), self.now());
            let Some(Event::Replied(rep)) = event else { continue };
            self.destination = rep.qpn;
            self.qp = Some(Qp::new(self.config(&rep, &req)).unwrap());
            machine.ready().unwrap();
            self.send_mad(&machine.poll_transmit().unwrap());
            return rep.private.0.to_vec();
        }
    }

    fn config(&self, rep: &roce_proto::cm::message::Rep, req: &Req) -> RcConfig {
        RcConfig {
            destination: rep.qpn,
            mtu: Mtu::Octets1024,
            send_psn: rep.starting_psn,
            receive_psn: req.starting_psn,
            retry_count: 7,
            rnr_retry: 7,
            rnr_limit: None,
            ack_timeout: timeout(10),
            count_after: 0,
            min_rnr_timer: 1,
            initiator_depth: 4,
            responder_resources: 4,
            window: 16,
            send_depth: 256,
        }
    }

    /// Sends what is to be sent.
    pub(crate) fn emit(&mut self) {
        let now = self.now();
        let qp = self.qp.as_mut().unwrap();
        qp.handle_timeout(now);
        let mut all = Vec::new();
        while let Some(transmit) = qp.poll_transmit(now) {
            let mut datagram = transmit.headers.emit().as_slice().to_vec();
            if let Source::Request { slot, offset, len } = transmit.source {
                let from = &self.memory.local[slot as usize];
                datagram.extend(&from[offset as usize..][..len as usize]);
            }
            datagram.extend(std::iter::repeat_n(0, transmit.headers.bth.pad.into()));
            all.push((datagram, transmit.source != Source::None));
        }
        for (mut datagram, has_data) in all {
            if self.is_stranger {
                datagram[Bth::CONGESTION_AT] = 0;
            }
            self.seal(&mut datagram);
            if !self.random.chance(self.lost) {
                self.raw(&datagram);
            }
            if self.random.chance(self.repeated) {
                self.raw(&datagram);
            }
            if has_data {
                self.sent = datagram;
            }
        }
    }

    /// Sends what is to be sent, and handles what arrives within a millisecond.
    pub(crate) fn step(&mut self) {
        self.emit();
        let mut buffer = [0; 65_536];
        let Ok(len) = self.udp.recv(&mut buffer) else { return };
        if self.random.chance(self.lost) {
            return;
        }
        let packet = Packet::parse(&buffer[..len]).unwrap();
        self.reports += u32::from(packet.headers.bth.opcode == Opcode::Cnp);
        if packet.headers.bth.destination == 0x1234 {
            let now = self.now();
            self.qp.as_mut().unwrap().handle_packet(now, &packet, &mut self.memory);
        }
    }
}
