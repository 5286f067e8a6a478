//! Test support: two queue pairs in one process with memory, receives, and a channel that loses, repeats and
//! reorders packets.

use std::collections::VecDeque;

use roce_proto::icrc::{Envelope, Ip, of_datagram};
use roce_proto::psn::Psn;
use roce_proto::rc::{
    Access, AccessError, AtomicOp, Completion, Delivered, Host, Mtu, Qp, RcConfig, Source, Transmit,
};
use roce_proto::wire::packet::Packet;

pub(crate) const RKEY: u32 = 0x1234;

pub(crate) fn crc32(crc: u32, octets: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(octets);
    hasher.finalize()
}

/// A random generator with a seed, so that failures can be repeated.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub(crate) fn config(mtu: Mtu, window: u16) -> RcConfig {
    RcConfig {
        destination: 0x11,
        mtu,
        send_psn: Psn::new(0xff_fff0),
        receive_psn: Psn::new(0xff_fff0),
        retry_count: 7,
        rnr_retry: 7,
        rnr_limit: None,
        ack_timeout: Some(1000),
        count_after: 0,
        min_rnr_timer: 1,
        initiator_depth: 4,
        responder_resources: 4,
        window,
        send_depth: 64,
    }
}

/// The host of one end.
#[derive(Default)]
pub(crate) struct Memory {
    /// Memory of [`RKEY`], from address 0.
    pub(crate) remote: Vec<u8>,
    /// Octets of requests, by slot: sources of Sends and Writes, sinks of Reads and atomics.
    pub(crate) local: Vec<Vec<u8>>,
    /// Capacities of the posted receives.
    pub(crate) receives: VecDeque<usize>,
    pub(crate) current: Vec<u8>,
    pub(crate) delivered: Vec<(Delivered, Vec<u8>)>,
    pub(crate) failed_receives: usize,
    pub(crate) invalidated: Vec<u32>,
    /// What its queue pair does not serve.
    pub(crate) disallowed: Option<Access>,
}

impl Host for Memory {
    fn take_receive(&mut self) -> Option<u64> {
        let room = self.receives.pop_front()?;
        self.current = vec![0; room];
        Some(room as u64)
    }
    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        let offset = offset as usize;
        self.current[offset..offset + octets.len()].copy_from_slice(octets);
        Ok(())
    }
    fn complete_receive(&mut self, delivered: Delivered) {
        let len = if delivered.is_write { 0 } else { delivered.len as usize };
        let octets = self.current[..len].to_vec();
        self.delivered.push((delivered, octets));
    }
    fn fail_receive(&mut self) {
        self.failed_receives += 1;
    }
    fn allows(&mut self, access: Access, _: &roce_proto::wire::extended::Reth) -> bool {
        self.disallowed != Some(access)
    }
    fn check(&mut self, rkey: u32, address: u64, len: u32, _: Access) -> Result<(), AccessError> {
        let end = address.checked_add(u64::from(len)).ok_or(AccessError)?;
        if rkey == RKEY && end <= self.remote.len() as u64 { Ok(()) } else { Err(AccessError) }
    }
    fn place(&mut self, rkey: u32, address: u64, octets: &[u8]) -> Result<(), AccessError> {
        self.check(rkey, address, octets.len() as u32, Access::Write)?;
        self.remote[address as usize..][..octets.len()].copy_from_slice(octets);
        Ok(())
    }
    fn atomic(&mut self, rkey: u32, address: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.check(rkey, address, 8, Access::Atomic)?;
        let place = &mut self.remote[address as usize..][..8];
        let original = u64::from_ne_bytes(place.try_into().unwrap());
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if compare == original => swap,
            AtomicOp::CompareSwap { .. } => original,
            AtomicOp::FetchAdd { add } => original.wrapping_add(add),
        };
        place.copy_from_slice(&new.to_ne_bytes());
        Ok(original)
    }
    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.invalidated.push(rkey);
        Ok(())
    }
    fn place_response(&mut self, slot: u32, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        let sink = &mut self.local[slot as usize];
        sink[offset as usize..][..octets.len()].copy_from_slice(octets);
        Ok(())
    }
}

/// A queue pair and its host.
pub(crate) struct End {
    pub(crate) qp: Qp,
    pub(crate) memory: Memory,
    pub(crate) done: Vec<Completion>,
    /// Packets sent.
    pub(crate) sent: usize,
}

pub(crate) const ENVELOPE: Envelope = Envelope {
    ip: Ip::V4 { source: [127, 0, 0, 1], destination: [127, 0, 0, 1], id: 0, dont_fragment: true },
    source_port: 49152,
    destination_port: 4791,
};

impl End {
    pub(crate) fn new(config: RcConfig) -> Self {
        let qp = Qp::new(config).unwrap();
        Self { qp, memory: Memory::default(), done: Vec::new(), sent: 0 }
    }

    /// The octets of a packet, as a socket would send them.
    pub(crate) fn datagram(&self, transmit: &Transmit) -> Option<Vec<u8>> {
        let mut datagram = transmit.headers.emit().as_slice().to_vec();
        match transmit.source {
            Source::None => {}
            Source::Request { slot, offset, len } => {
                datagram
                    .extend(&self.memory.local[slot as usize][offset as usize..][..len as usize]);
            }
            Source::Memory { rkey, address, len } => {
                let end = address as usize + len as usize;
                if rkey != RKEY || end > self.memory.remote.len() {
                    return None;
                }
                datagram.extend(&self.memory.remote[address as usize..end]);
            }
        }
        datagram.extend(std::iter::repeat_n(0, usize::from(transmit.headers.bth.pad)));
        datagram.extend([0; 4]);
        let icrc = of_datagram(crc32, &ENVELOPE, &datagram).unwrap();
        datagram.splice(datagram.len() - 4.., icrc);
        Some(datagram)
    }

    /// All packets that it has to send now.
    pub(crate) fn transmit(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        while let Some(transmit) = self.qp.poll_transmit(now) {
            self.sent += 1;
            match self.datagram(&transmit) {
                Some(datagram) => datagrams.push(datagram),
                None => self.qp.handle_source_fault(&transmit),
            }
        }
        self.done.extend(std::iter::from_fn(|| self.qp.poll_completion()));
        datagrams
    }

    pub(crate) fn receive(&mut self, now: u64, datagram: &[u8]) {
        let icrc = of_datagram(crc32, &ENVELOPE, datagram).unwrap();
        assert_eq!(icrc, datagram[datagram.len() - 4..]);
        let packet = Packet::parse(datagram).unwrap();
        self.qp.handle_packet(now, &packet, &mut self.memory);
        self.done.extend(std::iter::from_fn(|| self.qp.poll_completion()));
    }
}

/// Fault rates of the channel, in percent.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) reordered: u64,
}

/// Two ends and the channel between them.
pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
    /// Datagrams in transit to each end.
    pub(crate) way: [VecDeque<Vec<u8>>; 2],
    pub(crate) now: u64,
    pub(crate) weather: Weather,
}

impl Pair {
    pub(crate) fn new(config: RcConfig, weather: Weather) -> Self {
        let ends = [End::new(config), End::new(config)];
        Self { ends, way: Default::default(), now: 0, weather }
    }

    fn carry(&mut self, from: usize, random: &mut Random) {
        self.ends[from].qp.begin_call(random.chance(50));
        for datagram in self.ends[from].transmit(self.now) {
            let way = &mut self.way[1 - from];
            if random.chance(self.weather.lost) {
                continue;
            }
            if random.chance(self.weather.repeated) {
                way.push_back(datagram.clone());
            }
            let at = match random.chance(self.weather.reordered) {
                true => random.below(way.len() as u64 + 1) as usize,
                false => way.len(),
            };
            way.insert(at, datagram);
        }
    }

    /// One step; false if nothing is left to do.
    pub(crate) fn step(&mut self, random: &mut Random) -> bool {
        let first = random.below(2) as usize;
        for end in [first, 1 - first] {
            self.carry(end, random);
        }
        let mut moved = false;
        for end in [first, 1 - first] {
            for _ in 0..=random.below(8) {
                let Some(datagram) = self.way[end].pop_front() else { break };
                self.now += 1;
                self.ends[end].receive(self.now, &datagram);
                moved = true;
            }
        }
        if moved || self.way.iter().any(|way| !way.is_empty()) {
            return true;
        }
        let Some(deadline) = self.ends.iter().filter_map(|end| end.qp.deadline()).min() else {
            return false;
        };
        self.now = self.now.max(deadline);
        self.ends.iter_mut().for_each(|end| end.qp.handle_timeout(self.now));
        true
    }

    /// Steps until nothing is left to do.
    pub(crate) fn run(&mut self, random: &mut Random) {
        let steps = (0..200_000).take_while(|_| self.step(random)).count();
        assert!(steps < 200_000, "the two ends do not come to rest");
    }
}
