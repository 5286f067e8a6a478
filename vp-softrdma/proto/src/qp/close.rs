//! End of a stream: orderly close, Terminate, abort, loss, and what is flushed when.
//!
//! Owner: the QP; touched only by the thread that drives it. Whatever the peer does, every path
//! ends in Idle or Error with both queues empty, given that the provider's close timer runs.

use crate::error::{ProtocolError, TerminateHeaders};
use crate::host::Host;
use crate::qp::effect::{Action, LlpFault, QpEvent};
use crate::qp::read::requests_of;
use crate::qp::sq::Entry;
use crate::qp::{LastTerminate, Qp, Refers, RefusedHeaders, State};
use crate::types::{Role, SendOp, Status};
use crate::wire::ddp::Header;
use crate::wire::rdmap::{Control, Opcode, qn};
use crate::wire::terminate::TerminateRepr;

impl Qp {
    // ---- requested by the consumer ----------------------------------------------------------

    /// RTS -> Closing (RDMAC 6.2.2.2): graceful, or Bad Close if work is pending or messages of the
    /// peer's wait for a receive.
    pub fn close<H: Host>(&mut self, host: &mut H) -> Result<(), State> {
        if self.state != State::Rts {
            return Err(self.state);
        }
        // RDMAC 6.2.5 [VERBS-05]
        if self.has_work() || !self.rx.hold.is_empty() {
            self.bad_close(host);
        } else {
            self.begin_closing(host);
        }
        Ok(())
    }
    /// RTS -> Terminate with 0/0/0 (RDMAC 6.2.2.3) [VERBS-06].
    pub fn terminate<H: Host>(&mut self, host: &mut H) -> Result<(), State> {
        if self.state != State::Rts {
            return Err(self.state);
        }
        self.fail_locally(ProtocolError::LocalCatastrophic, host);
        Ok(())
    }
    /// RTS or Idle -> Error: reset, flush (RDMAC 6.2.2.4, 6.2.1.3) [VERBS-04, VERBS-07]. No effect
    /// in Error; in Closing and Terminate it cuts the graceful close short (Destroy QP) [VERBS-20].
    pub fn abort<H: Host>(&mut self, host: &mut H) {
        match self.state {
            State::Error => {}
            State::Idle => self.enter_error(host),
            State::Rts | State::Closing | State::Terminate => {
                self.actions.push(Action::Reset);
                self.end(host);
            }
        }
    }
    /// Error -> Idle. Everything is flushed by then (RDMAC 6.2.4) [VERBS-11].
    pub fn reset(&mut self) -> Result<(), State> {
        if self.state != State::Error {
            return Err(self.state);
        }
        self.state = State::Idle;
        Ok(())
    }

    // ---- reported by the LLP ----------------------------------------------------------------

    /// All FPDUs up to and including `sequence` were accepted by the LLP: completes sends.
    pub fn handle_sent<H: Host>(&mut self, sequence: u64, host: &mut H) {
        self.tx.accepted = self.tx.accepted.max(sequence.min(self.tx.yielded));
        if self.role == Role::Initiator && self.tx.accepted > 0 {
            self.establish();
        }
        self.retire_and_end(host);
    }
    /// The peer's FIN [MPA-41, DDP-19]: `buffered` octets of an incomplete FPDU were still waiting.
    pub fn handle_fin<H: Host>(&mut self, buffered: usize, host: &mut H) {
        let broken = buffered > 0 || self.rx.in_message();
        match self.state {
            State::Idle | State::Error => return,
            State::Terminate => {}
            State::Closing if broken => return self.bad_close(host),
            State::Closing => {}
            // RDMAC 6.2.2.2 [VERBS-09, ERR-29]
            State::Rts if broken || self.has_work() => {
                self.enter_terminate(ProtocolError::BadLlpClose, None, self.tx.allowed);
                let fault = LlpFault::UnexpectedFin;
                self.actions.push(Action::Event(QpEvent::ConnectionLost(fault)));
                host.flush_receives();
            }
            // It is handled when they have been delivered
            State::Rts if !self.rx.hold.is_empty() => {}
            State::Rts => self.begin_closing(host),
        }
        self.peer_finished = true;
        self.retire_and_end(host);
    }
    /// The stream failed [MPA-37, ERR-28].
    pub fn handle_llp_fault<H: Host>(&mut self, fault: LlpFault, host: &mut H) {
        match self.state {
            State::Idle | State::Error => return,
            // Its end was already reported
            State::Terminate => {}
            State::Rts | State::Closing => {
                self.actions.push(Action::Event(QpEvent::ConnectionLost(fault)));
            }
        }
        if fault != LlpFault::Reset {
            self.actions.push(Action::Reset);
        }
        self.end(host);
    }
    /// Terminate -> Error: everything was sent, and the provider ends the stream without the QP, whose
    /// inbound octets would be ignored (RDMAC 6.2.3) [VERBS-10].
    pub fn handle_left<H: Host>(&mut self, host: &mut H) {
        if self.state == State::Terminate {
            self.enter_error(host);
        }
    }
    /// The close timer ran out [VERBS-08, VERBS-10].
    pub fn handle_close_timeout<H: Host>(&mut self, host: &mut H) {
        if matches!(self.state, State::Closing | State::Terminate) {
            self.handle_llp_fault(LlpFault::CloseTimeout, host);
        }
    }
    /// A local catastrophe outside the core (CQ overrun 0/2/7, RNIC failure 0/2/8): Terminate
    /// [ERR-27].
    pub fn handle_local_error<H: Host>(&mut self, error: ProtocolError, host: &mut H) {
        self.fail_locally(error, host);
    }

    /// An FPDU that was begun cannot be finished, so no Terminate can follow it: the stream is reset
    /// and an event reports it (RDMAC 6.4) [VERBS-12].
    pub fn handle_unfinished<H: Host>(&mut self, host: &mut H) {
        if self.state == State::Rts {
            let error = ProtocolError::LocalCatastrophic;
            self.actions.push(Action::Event(QpEvent::TerminateSent(error)));
        }
        if self.state != State::Idle {
            self.abort(host);
        }
    }

    // ---- ends -------------------------------------------------------------------------------

    /// The peer broke a rule: Terminate, unless the stream is ending already. The first error wins
    /// (RFC 5040 5.4) [RDMAP-24, RDMAP-25, DDP-16].
    pub(crate) fn refuse<H: Host>(
        &mut self,
        error: ProtocolError,
        refused: Option<RefusedHeaders>,
        host: &mut H,
    ) {
        match self.state {
            // The peer is in full operation, or there would be nothing to refuse: a responder's
            // Terminate may go out even if no valid FPDU came first.
            State::Rts => self.fail(error, refused, true, host),
            State::Closing => self.bad_close(host),
            State::Idle | State::Terminate | State::Error => {}
        }
    }
    /// Something went wrong on our side: Terminate without headers [RDMAP-28].
    pub(crate) fn fail_locally<H: Host>(&mut self, error: ProtocolError, host: &mut H) {
        match self.state {
            // RFC 5044 7.1.2(4) [CONN-11]
            State::Rts => self.fail(error, None, self.tx.allowed, host),
            State::Closing => self.bad_close(host),
            State::Idle | State::Terminate | State::Error => {}
        }
    }
    fn fail<H: Host>(
        &mut self,
        error: ProtocolError,
        refused: Option<RefusedHeaders>,
        may_send: bool,
        host: &mut H,
    ) {
        self.enter_terminate(error, refused, may_send);
        self.actions.push(Action::Event(QpEvent::TerminateSent(error)));
        host.flush_receives();
        self.retire_and_end(host);
    }
    fn enter_terminate(
        &mut self,
        error: ProtocolError,
        refused: Option<RefusedHeaders>,
        may_send: bool,
    ) {
        self.leave_rts(State::Terminate);
        if may_send && error.sends_terminate() {
            let message = terminate_for(error, refused);
            let atomic = refused.and_then(|refused| refused.atomic);
            let refers = atomic.map_or(Refers::Peers, |(stag, to)| Refers::PeersAtomic(stag, to));
            self.last_terminate = Some(LastTerminate { refers, message });
            self.tx.terminate = true;
        }
        // RFC 5040 6.2.1 [RDMAP-27, MPA-39]: FIN after the Terminate, not RST
        self.actions.push(Action::CloseGracefully);
    }
    /// The peer's Terminate (RDMAC 6.2.3) [RDMAP-26, VERBS-08]: none goes back.
    pub(crate) fn terminated<H: Host>(&mut self, terminate: &TerminateRepr, host: &mut H) {
        // Some peers swap the nibbles [IOP-10]
        let code = terminate.swapped_code().unwrap_or(terminate.code);
        let most = self.config.max_read_request;
        let request_octets = terminate.ddp.and_then(|header| {
            self.sq.attribute_terminate(Status::RemoteTermination(code), |entry| {
                is_named(entry, &header, most)
            })
        });
        let message = TerminateRepr { code, ..*terminate };
        let refers = Refers::Ours(request_octets);
        self.last_terminate = Some(LastTerminate { refers, message });
        self.leave_rts(State::Terminate);
        self.actions.push(Action::Event(QpEvent::TerminateReceived(code)));
        self.actions.push(Action::CloseGracefully);
        host.flush_receives();
        self.retire_and_end(host);
    }

    fn begin_closing<H: Host>(&mut self, host: &mut H) {
        self.leave_rts(State::Closing);
        self.actions.push(Action::CloseGracefully);
        host.flush_receives();
    }
    /// RDMAC 6.2.5 [VERBS-05, DDP-18]. Earlier completions are not lost.
    pub(crate) fn bad_close<H: Host>(&mut self, host: &mut H) {
        self.actions.push(Action::ResetBehind);
        self.actions.push(Action::Event(QpEvent::BadClose));
        self.end(host);
    }
    fn end<H: Host>(&mut self, host: &mut H) {
        self.actions.push(Action::Detach);
        self.enter_error(host);
    }
    /// RDMAC 6.2.4 [VERBS-11, RDMAP-29]: everything left is flushed now.
    fn enter_error<H: Host>(&mut self, host: &mut H) {
        self.leave_rts(State::Error);
        self.tx.terminate = false;
        host.flush_receives();
        self.sq.flush(self.tx.accepted, host);
    }
    fn leave_rts(&mut self, to: State) {
        debug_assert!(self.state.may_change(to) || self.state.may_modify(to) || to == State::Error);
        self.state = to;
        // RDMAC 6.2.3 [VERBS-10]: the peer's Reads are forgotten
        self.responder.clear();
        self.rx.hold.clear();
    }

    /// Completes what the LLP accepted, and makes the last transition of a close when everything is sent.
    fn retire_and_end<H: Host>(&mut self, host: &mut H) {
        self.sq.retire(self.tx.accepted, host);
        if !self.tx.drained() {
            return;
        }
        match self.state {
            State::Terminate => {
                self.sq.flush(self.tx.accepted, host);
                if self.peer_finished {
                    self.end(host);
                }
            }
            // RDMAC 6.2.5 [VERBS-05]
            State::Closing if self.peer_finished => {
                self.state = State::Idle;
                self.actions.push(Action::Event(QpEvent::CloseComplete));
                self.actions.push(Action::Detach);
            }
            _ => {}
        }
    }
    /// Work that a graceful close would lose. Probes and kicks are not work.
    pub fn has_work(&self) -> bool {
        !self.sq.is_empty() || self.responder.owes_data()
    }
}

/// Headers as RFC 5040 Figure 10 wants them [RDMAP-20, RDMAP-21, RDMAP-22, VERBS-14].
fn terminate_for(error: ProtocolError, refused: Option<RefusedHeaders>) -> TerminateRepr {
    let mut terminate = TerminateRepr::bare(error.terminate_code());
    let Some(refused) = refused else { return terminate };
    let headers = error.headers();
    if headers != TerminateHeaders::None {
        terminate.segment_length = Some(refused.ulpdu_len);
        terminate.ddp = Some(refused.header);
    }
    if headers == TerminateHeaders::DdpAndRead {
        terminate.read_request = refused.read_request;
    }
    terminate
}

/// Whether the segment that the peer refused belongs to this WQE.
fn is_named(entry: &Entry, header: &Header, max_read_request: u32) -> bool {
    match (header, entry.wqe.op) {
        (
            Header::Untagged(h),
            SendOp::Send { .. }
            | SendOp::SendImmediate { .. }
            | SendOp::Immediate { .. }
            | SendOp::WriteImmediate { .. },
        ) => h.qn == qn::SEND && h.msn == entry.msn,
        (Header::Untagged(h), SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. }) => {
            h.qn == qn::REQUEST && h.msn == entry.msn
        }
        (Header::Untagged(h), SendOp::Read { .. }) => {
            let behind_first = h.msn.wrapping_sub(entry.msn);
            h.qn == qn::REQUEST && behind_first < requests_of(entry.octets, max_read_request)
        }
        (
            Header::Tagged(h),
            SendOp::Write { stag, to } | SendOp::WriteImmediate { stag, to, .. },
        ) => {
            Control(h.ulp).opcode() == Some(Opcode::Write)
                && h.stag == stag
                && h.to.wrapping_sub(to) <= u64::from(entry.octets)
        }
        _ => false,
    }
}
