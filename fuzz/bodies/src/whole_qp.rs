//! A whole QP against a peer that does anything: it must not panic, must touch nothing but what it
//! asked the host about, must send at most one Terminate and nothing after it, and in the end every
//! work request and every receive is complete exactly once.
//!
//! Set-up octets: flags (CRC, markers, role, extensions, RTR, hold), limits. Then records: what happens,
//! how much of it, and octets if it takes any.

mod host;

use iwarp_proto::mpa::Tx;
use iwarp_proto::{
    Action, Crc32c, LlpFault, Payload, ProtocolError, Qp, QpConfig, Role, RtrKind, SendOp, SendWqe,
    Stag, State, StreamConfig, Want,
};

use crate::{crc32c, set_up};
use host::{MEMORY, Memory};

/// Runs one input.
pub fn run(input: &[u8]) {
    let ([flags, limits], mut octets) = set_up(input);
    let mut run = Run::new(flags, limits);
    while let [what, amount, rest @ ..] = octets {
        let (now, later) = rest.split_at(usize::from(*amount).min(rest.len()));
        octets = if run.step(*what, *amount, now) { later } else { rest };
        run.drain();
    }
    run.finish();
}

struct Run {
    qp: Qp,
    memory: Memory,
    /// How the peer frames what is to be valid.
    peer: Tx,
    input: Vec<u8>,
    posted: u64,
    /// FPDUs that the LLP has not accepted yet.
    unsent: Vec<u64>,
    terminated: bool,
    released: bool,
}

impl Run {
    fn new(flags: u8, limits: u8) -> Self {
        let (crc, markers) = (flags & 1 != 0, flags & 2 != 0);
        let (ird, ord) = (u16::from(limits & 3), u16::from(limits >> 2 & 3));
        let config = QpConfig {
            sq_depth: 8,
            max_ird: ird,
            max_ord: ord,
            max_read_request: 200,
            extensions: flags & 8 != 0,
            hold: if flags & 0x40 != 0 { 1000 } else { 0 },
            crc32c,
        };
        let stream = StreamConfig {
            role: if flags & 4 != 0 { Role::Initiator } else { Role::Responder },
            crc,
            markers_tx: limits & 0x80 != 0,
            markers_rx: markers,
            mulpdu: 128,
            ird,
            ord,
            rtr: [None, Some(RtrKind::Send), Some(RtrKind::Write), Some(RtrKind::Read)]
                [usize::from(flags >> 4 & 3)],
            send_immediates: limits & 0x40 != 0,
        };
        let mut qp = Qp::new(config);
        qp.start(stream).expect("a new QP is Idle");
        let peer = Tx::new(crc.then_some(crc32c as Crc32c), markers);
        Self {
            qp,
            memory: Memory::new(),
            peer,
            input: Vec::new(),
            posted: 0,
            unsent: Vec::new(),
            terminated: false,
            released: false,
        }
    }

    /// One record; returns whether it took the octets.
    fn step(&mut self, what: u8, amount: u8, octets: &[u8]) -> bool {
        let memory = &mut self.memory;
        match what % 16 {
            0 => self.feed(octets),
            1 | 2 => self.feed_ulpdu(octets),
            3 => self.feed_large(octets),
            4 => return self.post(amount),
            5 => {
                let count = self.unsent.len().min(usize::from(amount));
                if let Some(sequence) = self.unsent.drain(..count).next_back() {
                    self.qp.handle_sent(sequence, memory);
                }
                return false;
            }
            6 => self.qp.handle_fin(self.input.len(), memory),
            7 => self.qp.handle_llp_fault(
                if amount & 1 == 0 { LlpFault::Reset } else { LlpFault::TimedOut },
                memory,
            ),
            8 => drop(self.qp.close(memory)),
            9 => drop(self.qp.terminate(memory)),
            10 => self.qp.handle_close_timeout(memory),
            11 => memory.toggle(),
            12 => {
                memory.post_receive(usize::from(amount));
                self.qp.handle_receives(memory);
            }
            13 => self.qp.kick(),
            14 => drop(self.qp.probe()),
            _ if amount & 1 != 0 => self.qp.handle_hold_timeout(memory),
            _ => self.qp.handle_local_error(ProtocolError::StreamCatastrophic, memory),
        }
        what % 16 < 4
    }

    /// Octets as they are.
    fn feed(&mut self, octets: &[u8]) {
        if self.released {
            return;
        }
        self.input.extend(octets);
        let input = self.qp.handle_input(&self.input, &mut self.memory);
        self.input.drain(..input.consumed);
        match input.want {
            Want::Octets(count) => assert!(count > self.input.len() && count < 66_100),
            Want::Nothing => assert!(self.input.is_empty()),
            Want::Direct { destination, offset, remaining } => {
                assert!(self.input.is_empty() && remaining > 0);
                let piece = vec![0x5a; remaining.min(77) as usize];
                match self.memory.place_direct(destination, offset, &piece) {
                    Ok(()) => {
                        let len = piece.len() as u32;
                        self.qp.handle_direct(len, &mut self.memory);
                    }
                    // The place is gone: the octets show it again.
                    Err(_) => {
                        self.qp.handle_input(&piece, &mut self.memory);
                    }
                }
            }
        }
    }
    /// A ULPDU in a frame that MPA accepts.
    fn feed_ulpdu(&mut self, ulpdu: &[u8]) {
        if ulpdu.is_empty() || !self.input.is_empty() {
            return;
        }
        let plan = self.peer.plan(ulpdu.len() as u16);
        let mut frame = vec![0; plan.wire_len()];
        let head = [&plan.length_field()[..], ulpdu].concat();
        plan.encode(&head, &mut frame, |_, _| Ok::<(), ()>(())).expect("nothing to copy");
        self.feed(&frame);
    }
    /// The same, its payload long.
    fn feed_large(&mut self, octets: &[u8]) {
        let fill = octets.last().copied().unwrap_or(0);
        let mut ulpdu = octets.to_vec();
        ulpdu.resize(octets.len() + 3000, fill);
        self.feed_ulpdu(&ulpdu);
    }

    fn post(&mut self, kind: u8) -> bool {
        let (stag, to) = (Stag(0x100), u64::from(kind));
        let op = match kind % 10 {
            0 => SendOp::Send { solicited: false, invalidate: None },
            1 => SendOp::Send { solicited: true, invalidate: Some(stag) },
            2 => SendOp::Write { stag, to },
            3 => SendOp::WriteImmediate { stag, to, data: 1, solicited: false },
            4 => SendOp::Immediate { data: 2, solicited: true },
            5 => SendOp::FetchAdd { stag, to, add: 1, mask: 0 },
            6 => SendOp::Local,
            7 => SendOp::SendImmediate { immediate: 3, solicited: kind & 0x40 != 0 },
            _ => SendOp::Read {
                sink_stag: stag,
                sink_to: 0,
                source_stag: stag,
                source_to: to,
                invalidate_sink: kind & 0x40 != 0,
            },
        };
        let wqe = SendWqe { op, read_fence: kind & 0x80 != 0, local_fence: kind == 0x7f };
        if let Ok(slot) = self.qp.post_send(wqe) {
            self.memory.posted_work(slot, self.posted);
            self.posted += 1;
        }
        false
    }

    /// Takes out whatever the QP wants to send and do.
    fn drain(&mut self) {
        loop {
            self.drain_short();
            let Some(fpdu) = self.qp.poll_transmit(&mut self.memory) else { break };
            let mut octets = vec![0; fpdu.wire_len()];
            let memory = &self.memory;
            let copied = fpdu.encode(&mut octets, |_, out| match fpdu.payload {
                Payload::Source { stag, to, len } => {
                    memory.check_source(stag, to, len)?;
                    out.fill(1);
                    Ok(())
                }
                Payload::Local { offset, len, .. } => {
                    assert!((offset + len) as usize <= MEMORY);
                    out.fill(2);
                    Ok(())
                }
                Payload::None => unreachable!("no payload to copy"),
            });
            match copied {
                Ok(()) => {
                    assert!(!self.terminated, "nothing after a Terminate");
                    self.terminated = self.qp.state() == State::Terminate;
                    self.unsent.push(fpdu.sequence);
                }
                Err(error) => self.qp.handle_source_fault(error, &mut self.memory),
            }
        }
        while let Some(action) = self.qp.poll_action() {
            assert!(!self.released, "nothing after Detach");
            if action == Action::Detach {
                self.released = true;
                assert!(matches!(self.qp.state(), State::Idle | State::Error));
            }
        }
    }

    /// Has short messages written to a buffer, a few at a time.
    fn drain_short(&mut self) {
        let Self { qp, memory, unsent, .. } = self;
        let mut octets = [0; 8192];
        let mut each = |_: usize, sequence: u64| unsent.push(sequence);
        while qp.transmit_short(memory, &mut octets, 3, &mut each) > 0 {}
    }

    fn finish(mut self) {
        self.qp.abort(&mut self.memory);
        self.drain_after_end();
        assert_eq!(self.qp.state(), State::Error);
        assert_eq!(self.qp.outstanding_sends(), 0);
        assert_eq!((self.qp.waiting(), self.qp.hold_room()), (None, None));
        self.memory.assert_complete(self.posted);
        self.qp.reset().expect("Error");
    }
    fn drain_after_end(&mut self) {
        assert!(self.qp.poll_transmit(&mut self.memory).is_none());
        while self.qp.poll_action().is_some() {}
    }
}
