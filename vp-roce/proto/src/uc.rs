//! Unreliable connections (UC): Sends and RDMA Writes that nobody acknowledges (InfiniBand volume 1, 9.8.3).
//!
//! A request completes when its last packet is returned for sending. The receiver drops a message of which a packet is
//! missing, and everything up to the next message; nothing tells the sender. The caller's part is that of
//! [`crate::rc`].
//!
//! Owner of the state: the holder of the queue pair; one thread at a time. If the peer dies, nothing happens here.
//! Full: posts beyond the depth are refused. What a peer sends never ends the connection; a receive whose own memory
//! cannot be written does.

use alloc::collections::{TryReserveError, VecDeque};

use crate::psn::Psn;
use crate::rc::{
    Access, Completion, Delivered, Host, Mtu, Post, PostError, SendOp, Source, Stats, Status,
    Transmit,
};
use crate::wire::bth::{Bth, DEFAULT_PKEY, OWN_MARK, Opcode, Operation, Position, Rider, Service};
use crate::wire::extended::Reth;
use crate::wire::packet::{Extended, Headers, Packet, pad};

/// Parameters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UcConfig {
    /// The peer's queue pair.
    pub destination: u32,
    /// Path MTU, the same at both ends.
    pub mtu: Mtu,
    /// PSN of our first packet.
    pub send_psn: Psn,
    /// PSN of the peer's first packet.
    pub receive_psn: Psn,
    /// Most send requests that are posted and not completed.
    pub send_depth: u32,
}

/// A message that is not complete.
#[derive(Clone, Copy, Debug)]
enum Incoming {
    Send { arrived: u32 },
    Write { reth: Reth, arrived: u32 },
}

/// Why a packet is dropped, and its message with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// It continues no message that arrives, breaks the protocol, or may not access the memory.
    Stray,
    /// There is no receive that is long enough.
    Unready,
}

/// A queue pair on an unreliable connection.
#[derive(Debug)]
pub struct Qp {
    config: UcConfig,
    queue: VecDeque<Post>,
    /// Packets of the first request that were returned.
    sent: u32,
    next: Psn,
    completions: VecDeque<Completion>,
    paused_until: Option<u64>,
    failed: Option<Status>,
    failed_post: Option<Post>,
    expected: Psn,
    /// `None` at a message's begin, and while packets are dropped up to the next one.
    message: Option<Incoming>,
    /// Octets of a receive that was taken for a message that was dropped: it serves the next one.
    receive: Option<u64>,
    stats: Stats,
}

impl Qp {
    /// Begins a connection; allocates all memory that it needs.
    pub fn new(config: UcConfig) -> Result<Self, TryReserveError> {
        let depth = config.send_depth as usize;
        let (mut queue, mut completions) = (VecDeque::new(), VecDeque::new());
        queue.try_reserve_exact(depth)?;
        completions.try_reserve_exact(depth)?;
        Ok(Self {
            config,
            queue,
            sent: 0,
            next: config.send_psn,
            completions,
            paused_until: None,
            failed: None,
            failed_post: None,
            expected: config.receive_psn,
            message: None,
            receive: None,
            stats: Stats::default(),
        })
    }

    /// Sets [`UcConfig::send_psn`]. Only before the first post.
    pub fn set_send_psn(&mut self, psn: Psn) {
        self.next = psn;
    }

    /// Posts a request. Its octets must stay until its completion.
    pub fn post(&mut self, post: Post) -> Result<(), PostError> {
        if self.failed.is_some() {
            return Err(PostError::Broken);
        }
        // [IBUC-01]
        match post.op {
            SendOp::Read { .. } | SendOp::Atomic { .. } => return Err(PostError::NoReads),
            SendOp::Send { invalidate: Some(_), .. } => return Err(PostError::Riders),
            _ if post.len > MAX_MESSAGE => return Err(PostError::Length),
            _ => {}
        }
        if self.queue.len() + self.completions.len() >= self.config.send_depth as usize {
            return Err(PostError::QueueFull);
        }
        self.queue.push_back(post);
        Ok(())
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        if self.failed.is_some() || self.paused_until.is_some() {
            return None;
        }
        let post = *self.queue.front()?;
        let mtu = self.config.mtu;
        let packets = mtu.packets(post.len);
        let position = Position::of(self.sent == 0, self.sent + 1 == packets);
        let transmit = self.cut(&post, position);
        self.next = self.next.next();
        self.sent += 1;
        if position.ends() {
            self.queue.pop_front();
            self.sent = 0;
            self.stats.requests += 1;
            self.completions.push_back(Completion { slot: post.slot, status: Status::Success });
        }
        Some(transmit)
    }

    fn cut(&self, post: &Post, position: Position) -> Transmit {
        let UcConfig { mtu, destination, .. } = self.config;
        let offset = self.sent.saturating_mul(mtu.octets());
        let len = mtu.octets().min(post.len - offset);
        let mut extended = Extended::default();
        let (immediate, is_write) = match post.op {
            SendOp::Write { address, rkey, immediate } => {
                let reth = Reth { address, rkey, length: post.len };
                extended.reth = position.begins().then_some(reth);
                (immediate, true)
            }
            SendOp::Send { immediate, .. } => (immediate, false),
            // Refused when posted.
            SendOp::Read { .. } | SendOp::Atomic { .. } => (None, false),
        };
        extended.immediate = immediate.filter(|_| position.ends());
        let rider = extended.immediate.map_or(Rider::None, |_| Rider::Immediate);
        let operation = match is_write {
            true => Operation::Write(position, rider),
            false => Operation::Send(position, rider),
        };
        let bth = Bth {
            opcode: Opcode::Transport(Service::Uc, operation),
            solicited: position.ends() && post.solicited,
            migrated: true,
            pad: pad(len),
            pkey: DEFAULT_PKEY,
            congestion: OWN_MARK,
            destination,
            ack_request: false,
            psn: self.next,
        };
        let source = Source::Request { slot: post.slot, offset, len };
        Transmit { headers: Headers { bth, extended }, source }
    }

    /// The path has no room: returns no packets until then.
    pub const fn pause(&mut self, until: u64) {
        self.paused_until = Some(until);
    }

    /// Whether [`Qp::poll_transmit`] would return a packet.
    pub fn has_more(&self) -> bool {
        self.failed.is_none() && self.paused_until.is_none() && !self.queue.is_empty()
    }

    /// When [`Qp::handle_timeout`] is to be called, in microseconds.
    pub const fn deadline(&self) -> Option<u64> {
        self.paused_until
    }

    /// The time of [`Qp::deadline`] has come; before it, nothing happens.
    pub fn handle_timeout(&mut self, now: u64) {
        self.paused_until = self.paused_until.filter(|until| *until > now);
    }

    /// Reports that the memory of the last packet of [`Qp::poll_transmit`] may not be read, and that it was not sent.
    pub fn handle_source_fault(&mut self, transmit: &Transmit) {
        let Source::Request { slot, .. } = transmit.source else { return };
        // The completion of its last packet.
        let done = self.completions.back().is_some_and(|done| done.slot == slot);
        let post = match done {
            true => self.completions.pop_back().and(None),
            false => self.queue.pop_front(),
        };
        self.completions.push_back(Completion { slot, status: Status::LocalProtection });
        self.failed_post = self.failed_post.or(post);
        self.fail(Status::LocalProtection);
    }

    /// The next completion, in the order of posts.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Whether there is one.
    pub fn has_completed(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Why it is broken, if it is.
    pub const fn failed(&self) -> Option<Status> {
        self.failed
    }

    /// The request of this end that failed first, if it is known.
    pub const fn failed_post(&self) -> Option<Post> {
        self.failed_post
    }

    /// What it has counted.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Completes all requests as flushed; nothing is sent any more.
    pub fn flush(&mut self) {
        self.fail(Status::Flushed);
    }

    fn fail(&mut self, status: Status) {
        self.failed = self.failed.or(Some(status));
        self.paused_until = None;
        for post in self.queue.drain(..) {
            self.completions.push_back(Completion { slot: post.slot, status: Status::Flushed });
        }
    }

    /// Handles a packet of the peer whose invariant CRC was checked.
    pub fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) -> Result<(), Dropped> {
        let Opcode::Transport(Service::Uc, operation) = packet.headers.bth.opcode else {
            return Err(Dropped::Stray);
        };
        let (Operation::Send(position, rider) | Operation::Write(position, rider)) = operation
        else {
            return Err(Dropped::Stray);
        };
        let psn = packet.headers.bth.psn;
        // [IBUC-02]
        let follows = psn == self.expected;
        self.expected = psn.next();
        if !follows || position.begins() {
            self.message = None;
        }
        if !self.has_right_length(position, packet.payload) {
            self.message = None;
            return Err(Dropped::Stray);
        }
        let served = match operation {
            Operation::Write(..) => self.write(position, rider, packet, host),
            _ => self.send(position, packet, host),
        };
        if served.is_err() {
            self.message = None;
        } else if position.ends() {
            self.stats.messages += 1;
        }
        served
    }

    /// First and Middle packets are full, Last ones are not empty.
    fn has_right_length(&self, position: Position, payload: &[u8]) -> bool {
        let mtu = self.config.mtu.octets() as usize;
        match position {
            Position::First | Position::Middle => payload.len() == mtu,
            Position::Last => (1..=mtu).contains(&payload.len()),
            Position::Only => payload.len() <= mtu,
        }
    }

    /// The receive for a message. [IBUC-03]
    fn take_receive(&mut self, host: &mut impl Host) -> Result<u64, Dropped> {
        if self.receive.is_none() {
            self.receive = host.take_receive();
        }
        self.receive.ok_or(Dropped::Unready)
    }

    fn complete(&mut self, host: &mut impl Host, delivered: Delivered) {
        self.receive = None;
        host.complete_receive(delivered);
    }

    fn send(
        &mut self,
        position: Position,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) -> Result<(), Dropped> {
        let arrived = match self.message {
            _ if position.begins() => 0,
            Some(Incoming::Send { arrived }) => arrived,
            _ => return Err(Dropped::Stray),
        };
        let room = self.take_receive(host)?;
        let len = arrived.checked_add(packet.payload.len() as u32).ok_or(Dropped::Stray)?;
        if u64::from(len) > room {
            return Err(Dropped::Unready);
        }
        if host.place_receive(arrived, packet.payload).is_err() {
            self.receive = None;
            host.fail_receive();
            self.fail(Status::LocalProtection);
            return Err(Dropped::Stray);
        }
        if !position.ends() {
            self.message = Some(Incoming::Send { arrived: len });
            return Ok(());
        }
        self.message = None;
        let delivered = Delivered {
            len,
            is_write: false,
            immediate: packet.headers.extended.immediate,
            invalidated: None,
            solicited: packet.headers.bth.solicited,
        };
        self.complete(host, delivered);
        Ok(())
    }

    fn write(
        &mut self,
        position: Position,
        rider: Rider,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) -> Result<(), Dropped> {
        let (reth, arrived) = match self.message {
            _ if position.begins() => {
                let reth = packet.headers.extended.reth.ok_or(Dropped::Stray)?;
                check(&reth, host)?;
                (reth, 0)
            }
            Some(Incoming::Write { reth, arrived }) => (reth, arrived),
            _ => return Err(Dropped::Stray),
        };
        let len = arrived.checked_add(packet.payload.len() as u32).ok_or(Dropped::Stray)?;
        // The RETH has the length: neither less nor more.
        if len > reth.length || position.ends() != (len == reth.length) {
            return Err(Dropped::Stray);
        }
        let immediate = packet.headers.extended.immediate.filter(|_| rider == Rider::Immediate);
        if immediate.is_some() {
            self.take_receive(host)?;
        }
        if !packet.payload.is_empty() {
            let address = reth.address.wrapping_add(u64::from(arrived));
            host.place(reth.rkey, address, packet.payload).map_err(|_| Dropped::Stray)?;
        }
        self.message = (!position.ends()).then_some(Incoming::Write { reth, arrived: len });
        if immediate.is_some() {
            let solicited = packet.headers.bth.solicited;
            let delivered =
                Delivered { len, is_write: true, immediate, invalidated: None, solicited };
            self.complete(host, delivered);
        }
        Ok(())
    }
}

/// Longest message (InfiniBand volume 1, 9.8.3).
const MAX_MESSAGE: u32 = 1 << 31;

/// Whether the peer may write there. [IBUC-04]
fn check(reth: &Reth, host: &mut impl Host) -> Result<(), Dropped> {
    if !host.allows(Access::Write, reth) {
        return Err(Dropped::Stray);
    }
    match reth.length {
        0 => Ok(()),
        length => {
            host.check(reth.rkey, reth.address, length, Access::Write).map_err(|_| Dropped::Stray)
        }
    }
}
