//! Two QPs, a virtual clock, and between them two octet streams that may split, delay, and
//! break at any octet.
//!
//! Owner of the state: the test; one thread. When one end dies the other sees it by FIN, by reset, or by
//! nothing at all until its close timer runs out.

pub(crate) mod memory;

use std::collections::VecDeque;

use iwarp_proto::{
    Action, LlpFault, PostError, Qp, QpConfig, QpEvent, Role, SendOp, SendWqe, State, StreamConfig,
    Want,
};
use memory::{Memory, Work};

use crate::common::crc32c;

/// Ticks of the virtual clock until a close is given up.
const CLOSE_TIMER: u64 = 1000;

pub(crate) const CONFIG: QpConfig = QpConfig {
    sq_depth: 32,
    max_ird: 4,
    max_ord: 4,
    max_read_request: 1500,
    extensions: true,
    hold: 0,
    crc32c,
};

/// CRC on, no markers, small segments.
pub(crate) const STREAM: StreamConfig = StreamConfig {
    role: Role::Initiator,
    crc: true,
    markers_tx: false,
    markers_rx: false,
    mulpdu: 256,
    ird: 4,
    ord: 4,
    rtr: None,
    send_immediates: false,
};

/// Rounds of the longest script, a hundred times over.
const MOST_ROUNDS: u32 = 2_000_000;

/// Bounds a loop that waits for `what`: call it in each round.
pub(crate) fn rounds(what: &str) -> impl FnMut() + '_ {
    let mut left = MOST_ROUNDS;
    move || {
        left -= 1;
        assert!(left > 0, "after {MOST_ROUNDS} rounds still waiting for: {what}");
    }
}

pub(crate) fn plain(op: SendOp) -> SendWqe {
    SendWqe { op, read_fence: false, local_fence: false }
}
pub(crate) const SEND: SendOp = SendOp::Send { solicited: false, invalidate: None };

/// One end: QP, memory, and the octets in its socket.
pub(crate) struct End {
    pub(crate) qp: Qp,
    pub(crate) memory: Memory,
    pub(crate) events: Vec<QpEvent>,
    pub(crate) detached: bool,
    /// RST was requested.
    pub(crate) reset: bool,
    /// FIN was requested.
    pub(crate) closing: bool,
    /// Follow `Want::Direct` as a provider would.
    pub(crate) direct: bool,
    /// Times that a destination was read into directly.
    pub(crate) direct_reads: u64,
    pub(crate) sent_ids: Vec<u64>,
    pub(crate) receive_ids: Vec<u64>,
    /// All octets that the socket accepted.
    pub(crate) sent: Vec<u8>,
    input: Vec<u8>,
    output: VecDeque<u8>,
    /// End of each FPDU yielded, in octets of `written`, and its number.
    marks: VecDeque<(u64, u64)>,
    written: u64,
    accepted: u64,
    next_id: u64,
}

impl End {
    pub(crate) fn new(config: QpConfig) -> Self {
        Self {
            qp: Qp::new(config),
            memory: Memory::default(),
            events: Vec::new(),
            detached: false,
            reset: false,
            closing: false,
            direct: false,
            direct_reads: 0,
            sent_ids: Vec::new(),
            receive_ids: Vec::new(),
            sent: Vec::new(),
            input: Vec::new(),
            output: VecDeque::new(),
            marks: VecDeque::new(),
            written: 0,
            accepted: 0,
            next_id: 1,
        }
    }
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }
    /// Posts work; its identifier.
    pub(crate) fn try_post(&mut self, wqe: SendWqe, work: Work) -> Result<u64, PostError> {
        let slot = self.qp.post_send(wqe)?;
        let id = self.id();
        self.memory.work.insert(slot, Work { id, ..work });
        self.sent_ids.push(id);
        Ok(id)
    }
    pub(crate) fn post(&mut self, wqe: SendWqe, work: Work) -> u64 {
        self.try_post(wqe, work).expect("room and state to post")
    }
    pub(crate) fn send(&mut self, octets: &[u8]) -> u64 {
        self.post(plain(SEND), gather(octets))
    }
    pub(crate) fn write(&mut self, stag: u32, to: u64, octets: &[u8]) -> u64 {
        let op = SendOp::Write { stag: iwarp_proto::Stag(stag), to };
        self.post(plain(op), gather(octets))
    }
    pub(crate) fn read(&mut self, sink: (u32, u64), source: (u32, u64), len: u32) -> u64 {
        self.post(plain(read_op(sink, source)), Work { len, ..Work::default() })
    }
    pub(crate) fn receive(&mut self, len: usize) -> u64 {
        let id = self.id();
        self.memory.posted.push_back((id, vec![0; len]));
        self.receive_ids.push(id);
        id
    }
    /// Runs `transmit_short`, `poll_transmit` and `poll_action` until none has more.
    pub(crate) fn pump(&mut self) {
        self.poll_actions();
        let mut round = rounds("the QP to have nothing to send");
        loop {
            round();
            while self.pump_short(2) > 0 {
                round();
            }
            let Some(fpdu) = self.qp.poll_transmit(&mut self.memory) else { break };
            let mut octets = vec![0; fpdu.wire_len()];
            let (memory, payload) = (&self.memory, fpdu.payload);
            let copied = fpdu.encode(&mut octets, |offset, out| copy(memory, payload, offset, out));
            match copied {
                Ok(()) => {
                    assert!(!self.reset, "nothing leaves behind a reset");
                    self.written += octets.len() as u64;
                    self.output.extend(&octets);
                    self.marks.push_back((self.written, fpdu.sequence));
                }
                Err(error) => self.qp.handle_source_fault(error, &mut self.memory),
            }
            self.poll_actions();
        }
    }
    /// Writes up to `most` short messages; returns how many.
    pub(crate) fn pump_short(&mut self, most: usize) -> usize {
        let mut octets = vec![0; 8192];
        let Self { qp, memory, marks, written, .. } = self;
        let before = *written;
        let messages = qp.transmit_short(memory, &mut octets, most, |len, sequence| {
            *written += len as u64;
            marks.push_back((*written, sequence));
        });
        self.output.extend(&octets[..(self.written - before) as usize]);
        assert!(messages == 0 || !self.reset, "nothing leaves behind a reset");
        messages
    }
    fn poll_actions(&mut self) {
        let mut round = rounds("the QP to have no action");
        while let Some(action) = self.qp.poll_action() {
            round();
            assert!(!self.detached, "nothing behind Detach: {action:?}");
            match action {
                Action::Event(event) => self.events.push(event),
                Action::CloseGracefully => self.closing = true,
                Action::Reset | Action::ResetBehind => self.reset = true,
                Action::Detach => self.detached = true,
            }
        }
    }
    /// The LLP accepts up to `count` octets.
    pub(crate) fn accept(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.output.len());
        let octets: Vec<u8> = self.output.drain(..count).collect();
        self.accepted += count as u64;
        self.sent.extend(&octets);
        let mut sent = None;
        while let Some((end, sequence)) = self.marks.front()
            && *end <= self.accepted
        {
            sent = Some(*sequence);
            self.marks.pop_front();
        }
        if let Some(sequence) = sent {
            self.qp.handle_sent(sequence, &mut self.memory);
        }
        octets
    }
    /// Octets arrive.
    pub(crate) fn feed(&mut self, octets: &[u8]) {
        self.input.extend(octets);
        let input = self.qp.handle_input(&self.input, &mut self.memory);
        self.input.drain(..input.consumed);
        match input.want {
            Want::Octets(count) => assert!(count > self.input.len(), "more is needed"),
            Want::Direct { .. } | Want::Nothing => assert!(self.input.is_empty(), "none left"),
        }
    }
    /// Octets arrive; those that may be placed directly are.
    pub(crate) fn feed_direct(&mut self, mut octets: &[u8]) {
        let mut round = rounds("octets to be placed directly");
        while !octets.is_empty() && self.input.is_empty() {
            round();
            let input = self.qp.handle_input(&[], &mut self.memory);
            let Want::Direct { destination, offset, remaining } = input.want else { break };
            let (now, later) = octets.split_at(octets.len().min(remaining as usize));
            self.direct_reads += 1;
            octets = later;
            match self.memory.place_direct(destination, offset, now) {
                Ok(()) => {
                    let len = now.len() as u32;
                    assert_eq!(self.qp.handle_direct(len, &mut self.memory).consumed, 0);
                }
                // The destination is gone: pass the octets in the usual way.
                Err(_) => self.feed(now),
            }
        }
        self.feed(octets);
    }
    pub(crate) fn fin(&mut self) {
        self.qp.handle_fin(self.input.len(), &mut self.memory);
    }
    pub(crate) fn fault(&mut self, fault: LlpFault) {
        self.qp.handle_llp_fault(fault, &mut self.memory);
    }
    /// All octets that the QP wants to send now, accepted at once.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.pump();
        let octets = self.accept(usize::MAX);
        self.pump();
        octets
    }
    pub(crate) fn idle(&self) -> bool {
        self.output.is_empty()
    }
    /// Status of each completion, in order.
    pub(crate) fn statuses(&self) -> Vec<iwarp_proto::Status> {
        self.memory.completions.iter().map(|c| c.1).collect()
    }
    /// Every work request and every receive completed exactly once, sends in posting order.
    pub(crate) fn assert_all_complete(&self) {
        let done: Vec<u64> = self.memory.completions.iter().map(|c| c.0).collect();
        assert_eq!(done, self.sent_ids, "sends, in order, once");
        let mut receives: Vec<u64> = self.memory.received.iter().map(|r| r.id).collect();
        receives.extend(&self.memory.flushed);
        assert_eq!(receives, self.receive_ids, "receives, in order, once");
        assert_eq!(self.qp.outstanding_sends(), 0);
    }
}

pub(crate) fn gather(octets: &[u8]) -> Work {
    Work { octets: octets.to_vec(), len: octets.len() as u32, ..Work::default() }
}
pub(crate) fn read_op(sink: (u32, u64), source: (u32, u64)) -> SendOp {
    SendOp::Read {
        sink_stag: iwarp_proto::Stag(sink.0),
        sink_to: sink.1,
        source_stag: iwarp_proto::Stag(source.0),
        source_to: source.1,
        invalidate_sink: false,
    }
}

fn copy(
    memory: &Memory,
    payload: iwarp_proto::Payload,
    offset: u32,
    out: &mut [u8],
) -> Result<(), iwarp_proto::AccessError> {
    use iwarp_proto::Payload;
    let octets = match payload {
        Payload::None => &[][..],
        Payload::Local { slot, offset: start, len } => {
            &memory.work[&slot].octets[start as usize..(start + len) as usize]
        }
        Payload::Source { stag, to, len } => memory.source(stag, to, len)?,
    };
    out.copy_from_slice(&octets[offset as usize..offset as usize + out.len()]);
    Ok(())
}

/// What one end's socket has sent and the other has not yet read.
#[derive(Default)]
struct Flight {
    octets: VecDeque<u8>,
    fin_sent: bool,
    fin_read: bool,
    delivered: u64,
}

/// Both ends; index 0 is the initiator.
pub(crate) struct Sim {
    pub(crate) ends: [End; 2],
    flights: [Flight; 2],
    broken: bool,
    dead: [bool; 2],
    now: u64,
    timers: [Option<u64>; 2],
}

impl Sim {
    pub(crate) fn new(streams: [StreamConfig; 2]) -> Self {
        Self::with(CONFIG, streams)
    }
    pub(crate) fn with(config: QpConfig, streams: [StreamConfig; 2]) -> Self {
        let mut ends = [End::new(config), End::new(config)];
        for (end, stream) in ends.iter_mut().zip(streams) {
            end.qp.start(stream).expect("Idle to RTS");
        }
        Self {
            ends,
            flights: Default::default(),
            broken: false,
            dead: [false; 2],
            now: 0,
            timers: [None; 2],
        }
    }
    /// A pair that agreed on everything.
    pub(crate) fn pair(stream: StreamConfig) -> Self {
        Self::new([
            StreamConfig { role: Role::Initiator, ..stream },
            StreamConfig {
                role: Role::Responder,
                markers_tx: stream.markers_rx,
                markers_rx: stream.markers_tx,
                ..stream
            },
        ])
    }
    /// Octets that `from` has sent and the other has read.
    pub(crate) fn delivered(&self, from: usize) -> u64 {
        self.flights[from].delivered
    }
    /// The socket of `from` takes up to `count` octets; its FIN follows the last.
    pub(crate) fn accept(&mut self, from: usize, count: usize) -> bool {
        if self.dead[from] {
            return false;
        }
        self.ends[from].pump();
        self.follow_actions(from);
        if self.broken || self.flights[from].fin_sent {
            return false;
        }
        let octets = self.ends[from].accept(count);
        self.ends[from].pump();
        self.flights[from].octets.extend(&octets);
        let mut moved = !octets.is_empty();
        if self.ends[from].closing && self.ends[from].idle() {
            self.flights[from].fin_sent = true;
            self.timers[from] = Some(self.now + CLOSE_TIMER);
            moved = true;
        }
        self.follow_actions(from);
        moved
    }
    /// The other end reads up to `count` octets that `from` has sent.
    pub(crate) fn deliver(&mut self, from: usize, count: usize) -> bool {
        let flight = &mut self.flights[from];
        let to = &mut self.ends[1 - from];
        if self.dead[1 - from] {
            if !flight.octets.is_empty() && !self.broken {
                self.break_stream();
            }
            return false;
        }
        if self.broken || to.detached {
            return false;
        }
        let count = count.min(flight.octets.len());
        let octets: Vec<u8> = flight.octets.drain(..count).collect();
        flight.delivered += count as u64;
        let mut moved = count > 0;
        if count > 0 && to.direct {
            to.feed_direct(&octets);
        } else if count > 0 {
            to.feed(&octets);
        }
        if flight.octets.is_empty() && flight.fin_sent && !flight.fin_read {
            flight.fin_read = true;
            to.fin();
            moved = true;
        }
        to.pump();
        self.follow_actions(1 - from);
        moved
    }
    fn follow_actions(&mut self, side: usize) {
        let end = &self.ends[side];
        // A socket released after the peer's FIN, with nothing unsent, is closed quietly
        let quiet = end.closing && end.idle() && self.flights[1 - side].fin_read;
        if !self.broken && (end.reset || (end.detached && !quiet)) {
            self.break_stream();
        }
    }
    /// The process of `side` dies: its kernel sends what it accepted, then FIN, and replies
    /// to anything that arrives with RST.
    pub(crate) fn kill(&mut self, side: usize) {
        self.dead[side] = true;
        self.flights[side].fin_sent = true;
    }
    /// Both ends lose the stream, with all octets in flight.
    pub(crate) fn break_stream(&mut self) {
        self.broken = true;
        for side in 0..2 {
            self.flights[side].octets.clear();
            let end = &mut self.ends[side];
            if !end.detached && !self.dead[side] {
                end.fault(LlpFault::Reset);
                end.pump();
            }
        }
    }
    /// Transfers all octets, `chunk` at a time; then lets timers expire.
    pub(crate) fn run_chunked(&mut self, chunk: usize) {
        let mut round = rounds("both ends to be still");
        loop {
            round();
            let mut moved = false;
            for side in 0..2 {
                moved |= self.accept(side, chunk);
                moved |= self.deliver(side, chunk);
            }
            if !moved && !self.fire_timer() {
                return;
            }
        }
    }
    pub(crate) fn run(&mut self) {
        self.run_chunked(usize::MAX);
    }
    fn fire_timer(&mut self) -> bool {
        let due = |side: &usize| {
            self.timers[*side].is_some() && !self.ends[*side].detached && !self.dead[*side]
        };
        let Some(side) = (0..2).filter(due).min_by_key(|side| self.timers[*side]) else {
            return false;
        };
        if let Some(at) = self.timers[side].take() {
            self.now = at;
        }
        let end = &mut self.ends[side];
        end.qp.handle_close_timeout(&mut end.memory);
        end.pump();
        self.follow_actions(side);
        true
    }
    /// Closes from `side` and lets it finish; everything must be complete on both ends.
    pub(crate) fn close(&mut self, side: usize) {
        let end = &mut self.ends[side];
        if end.qp.state() == State::Rts {
            assert_eq!(end.qp.close(&mut end.memory), Ok(()));
        }
        self.run();
        for end in &self.ends {
            assert!(end.detached, "released");
            assert!(matches!(end.qp.state(), State::Idle | State::Error));
            end.assert_all_complete();
        }
    }
}
