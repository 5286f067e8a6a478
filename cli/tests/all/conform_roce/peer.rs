//! A RoCE peer as small as it can be, apart from the provider: one thread, one socket, one connection after the other. It
//! behaves as the target of `warpline conform --serve --roce`, and has one fault if it is told to.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::faults::Fault;
use super::manager::Exchange;
use super::memory::Memory;
use super::requester::Requester;
use super::responder::Responder;
use super::wire::{self, MASK, PORT, Packet};

/// The peer's queue pair for datagrams, and its key.
pub(super) const DATAGRAMS: u32 = 0x4444;
pub(super) const QKEY: u32 = 0x0123_4567;

/// A connection.
pub(super) struct Connection {
    pub(super) qpn: u32,
    pub(super) peer_qpn: u32,
    pub(super) peer: Ipv4Addr,
    pub(super) mtu: usize,
    pub(super) exchange: Exchange,
    pub(super) responder: Responder,
    pub(super) requester: Requester,
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) udp: UdpSocket,
    pub(super) here: Ipv4Addr,
    pub(super) port: u16,
    pub(super) fault: Option<Fault>,
    pub(super) memory: Memory,
    random: u32,
}

impl Shared {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(super) fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random >> 8
    }

    pub(super) fn send(&self, to: Ipv4Addr, mut octets: Vec<u8>) {
        if self.has(Fault::WrongPartitionSent) && octets[0] < 0x20 {
            octets[2] = 0x91;
        }
        if self.has(Fault::PadNotZero) && octets[1] & 0x30 != 0 {
            let at = octets.len() - 5;
            octets[at] = 0x55;
        }
        wire::seal(self.here, to, &mut octets);
        if self.has(Fault::CrcReversed) {
            let at = octets.len() - 4;
            octets[at..].reverse();
        }
        self.udp.send_to(&octets, (to, PORT)).unwrap();
    }
}

pub(super) struct State {
    pub(super) shared: Shared,
    pub(super) connections: Vec<Connection>,
}

/// The thread; it ends with this value.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    pub(crate) fn start(fault: Option<Fault>) -> Self {
        let (udp, here) = socket();
        let port = 18_515;
        let memory = Memory::default();
        let shared = Shared { udp, here, port, fault, memory, random: std::process::id() };
        let stop = Arc::new(AtomicBool::new(false));
        let mut state = State { shared, connections: Vec::new() };
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                while !stop.load(Ordering::Relaxed) {
                    state.step();
                }
            }
        });
        let address = SocketAddr::new(here.into(), port);
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A peer that panics is a fault of the test's.
            thread.join().unwrap();
        }
    }
}

/// A free address of 127.0.0.0/8.
fn socket() -> (UdpSocket, Ipv4Addr) {
    let start = std::process::id() * 7;
    for number in 0..20_000u32 {
        let [a, b, c, _] = (start.wrapping_add(number) << 8).to_be_bytes();
        let here = Ipv4Addr::new(127, 64 | (a ^ b) & 63, c, 1 + (number % 200) as u8);
        let Ok(udp) = UdpSocket::bind((here, PORT)) else { continue };
        udp.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let mode = rustix::net::sockopt::Ipv4PathMtuDiscovery::DO;
        rustix::net::sockopt::set_ip_mtu_discover(&udp, mode).unwrap();
        return (udp, here);
    }
    panic!("no free address");
}

impl State {
    fn step(&mut self) {
        let mut buffer = [0; 9216];
        if let Ok((length, SocketAddr::V4(from))) = self.shared.udp.recv_from(&mut buffer) {
            self.arrived(&buffer[..length], *from.ip(), from.port());
        }
        let now = Instant::now();
        let Self { shared, connections } = self;
        for one in connections.iter_mut() {
            one.tick(shared, now);
        }
        connections.retain(|one| !one.exchange.is_gone(now));
    }

    fn arrived(&mut self, octets: &[u8], from: Ipv4Addr, port: u16) {
        let shared = &self.shared;
        let whole = wire::is_whole(from, shared.here, port, octets);
        if octets.len() < 16 || !(whole || shared.has(Fault::CrcNotChecked)) {
            return;
        }
        if octets[1] & 15 != 0 && !shared.has(Fault::VersionNotChecked) {
            return;
        }
        if octets[2] & 0x7f != 0x7f && !shared.has(Fault::PartitionNotChecked) {
            return;
        }
        let dropped = (port != PORT && shared.has(Fault::SourcePortChecked))
            || (octets[4] & 0x3f != 0 && shared.has(Fault::ReservedBitsChecked))
            || (octets[1] & 0x40 == 0 && shared.has(Fault::MigrationRequired));
        if dropped {
            return;
        }
        let qpn = u32::from_be_bytes([0, octets[5], octets[6], octets[7]]);
        let psn = u32::from_be_bytes([0, octets[9], octets[10], octets[11]]);
        let Some(packet) = wire::read(octets) else {
            if shared.has(Fault::UnknownOpcodeRefused)
                && let Some(one) = self.connections.iter().find(|one| one.qpn == qpn)
            {
                one.acknowledge(shared, psn, 0x61);
            }
            return;
        };
        match (packet.qpn, packet.opcode) {
            (1, 0x64) => self.message(&packet, from),
            (DATAGRAMS, 0x64 | 0x65) => self.datagram(&packet, from),
            (_, 0..=0x17) => self.request(&packet, from),
            _ => {}
        }
    }

    fn request(&mut self, packet: &Packet, from: Ipv4Addr) {
        let Self { shared, connections } = self;
        let found = connections.iter_mut().find(|one| one.qpn == packet.qpn && one.peer == from);
        let Some(one) = found else {
            if shared.has(Fault::UnknownQueuePairRefused)
                && let Some(last) = connections.last()
            {
                last.acknowledge(shared, packet.psn, 0x61);
            }
            return;
        };
        if one.exchange.is_over() || !one.exchange.confirm(shared) {
            return;
        }
        if (0x0d..=0x12).contains(&packet.opcode) {
            one.response(shared, packet);
        } else {
            one.execute(shared, packet);
        }
    }

    fn datagram(&mut self, packet: &Packet, from: Ipv4Addr) {
        let shared = &mut self.shared;
        let is_right = packet.u32(0) == QKEY || shared.has(Fault::QueueKeyNotChecked);
        let fits = packet.payload.len() <= 4096 || shared.has(Fault::LongDatagramTaken);
        if !is_right || !fits {
            return;
        }
        let mut header = vec![0; 40];
        if !shared.has(Fault::NoHeader) {
            header[20] = 0x45;
            header[32..36].copy_from_slice(&from.octets());
            header[36..40].copy_from_slice(&shared.here.octets());
        }
        let shown = packet.payload.len().min(64);
        let shown = if shared.has(Fault::DatagramCut) { shown / 2 } else { shown };
        let mut reply = (packet.payload.len() as u32 + 40).to_be_bytes().to_vec();
        reply.extend(header);
        reply.extend(&packet.payload[..shown]);
        let word = if packet.opcode == 0x65 { packet.u32(8) } else { 0 };
        reply.extend(word.to_be_bytes());
        let to = packet.u32(4) & MASK;
        let deth = [QKEY.to_be_bytes(), DATAGRAMS.to_be_bytes()].concat();
        shared.send(from, wire::build(0x64, 0, to, 0, &deth, &reply));
    }
}

impl Connection {
    /// Sends an acknowledgement.
    pub(super) fn acknowledge(&self, shared: &Shared, psn: u32, syndrome: u8) {
        let header = self.aeth(shared, syndrome);
        shared.send(self.peer, wire::build(0x11, 0, self.peer_qpn, psn & MASK, &header, &[]));
    }

    pub(super) fn aeth(&self, shared: &Shared, syndrome: u8) -> Vec<u8> {
        let msn =
            if shared.has(Fault::CompleteMessagesNotCounted) { 0 } else { self.responder.msn };
        (u32::from(syndrome) << 24 | msn & MASK).to_be_bytes().to_vec()
    }
}
