//! The protocol core of a QP together with the queues that it works on.
//!
//! Belongs to a QP, under its lock. Every call of the core that may complete work is made here.

use iwarp_proto::{Action, Fpdu, Input, LlpFault, ProtocolError, Qp, State};
use vp_soft::memory::AccessError;

use crate::qp::context::{Context, Queues};
use crate::qp::host::{View, wire};
use crate::stream::socket::Fault;

/// The protocol core and the queues.
pub(crate) struct ProtocolCore {
    pub(crate) proto: Qp,
    pub(crate) queues: Queues,
}

impl ProtocolCore {
    /// Received octets, in order; octets of an earlier call that were not consumed precede them.
    pub(crate) fn input(&mut self, context: &Context, octets: &[u8]) -> Input {
        self.proto.handle_input(octets, &mut View::new(context, &mut self.queues))
    }

    /// Octets that were read straight to their place.
    pub(crate) fn direct(&mut self, context: &Context, octets: u32) -> Input {
        self.proto.handle_direct(octets, &mut View::new(context, &mut self.queues))
    }

    /// Receives were posted that messages waited for.
    pub(crate) fn receives(&mut self, context: &Context) {
        self.proto.handle_receives(&mut View::new(context, &mut self.queues));
    }

    /// The oldest message has waited too long for its receive.
    pub(crate) fn hold_timeout(&mut self, context: &Context) {
        self.proto.handle_hold_timeout(&mut View::new(context, &mut self.queues));
    }

    /// Messages wait for a receive, and no more of the stream may be read.
    pub(crate) fn is_full(&self) -> bool {
        self.proto.hold_room() == Some(0)
    }

    /// The peer's FIN, with `buffered` octets of an incomplete FPDU before it.
    pub(crate) fn fin(&mut self, context: &Context, buffered: usize) {
        self.proto.handle_fin(buffered, &mut View::new(context, &mut self.queues));
    }

    /// The stream broke.
    pub(crate) fn broken(&mut self, context: &Context, fault: Fault) {
        let fault = match fault {
            Fault::Reset | Fault::Corrupt => LlpFault::Reset,
            Fault::TimedOut => LlpFault::TimedOut,
            Fault::Unmapped => {
                context.engine.log_unmapped(context.id.0);
                return self.unfinished(context);
            }
        };
        self.proto.handle_llp_fault(fault, &mut View::new(context, &mut self.queues));
    }

    /// Everything up to this FPDU was passed to TCP.
    pub(crate) fn sent(&mut self, context: &Context, sequence: u64) {
        self.proto.handle_sent(sequence, &mut View::new(context, &mut self.queues));
    }

    /// Whether the next messages may be short ones.
    pub(crate) fn has_short(&self) -> bool {
        self.proto.has_short()
    }

    /// Whether the QP is in RTS and has nothing to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.proto.is_idle()
    }

    /// Writes short messages, if they are next, to `out`.
    pub(crate) fn transmit_short(
        &mut self,
        context: &Context,
        out: &mut [u8],
        most: usize,
        each: impl FnMut(usize, u64),
    ) {
        self.proto.transmit_short(&mut View::new(context, &mut self.queues), out, most, each);
    }

    /// The next FPDU.
    pub(crate) fn poll_transmit(&mut self, context: &Context) -> Option<Fpdu> {
        self.proto.poll_transmit(&mut View::new(context, &mut self.queues))
    }

    /// The payload of the last FPDU cannot be read.
    pub(crate) fn source_fault(&mut self, context: &Context, error: AccessError) {
        self.proto.handle_source_fault(wire(error), &mut View::new(context, &mut self.queues));
    }

    /// The stream continues without the QP from here on.
    pub(crate) fn left(&mut self, context: &Context) {
        self.proto.handle_left(&mut View::new(context, &mut self.queues));
    }

    /// The close timer ran out.
    pub(crate) fn close_timeout(&mut self, context: &Context) {
        self.proto.handle_close_timeout(&mut View::new(context, &mut self.queues));
    }

    /// The provider itself cannot continue the stream.
    /// [ERR-27]
    pub(crate) fn fail(&mut self, context: &Context) {
        let error = ProtocolError::StreamCatastrophic;
        self.proto.handle_local_error(error, &mut View::new(context, &mut self.queues));
    }

    /// Octets on the TCP connection of a stream that goes through shared memory.
    pub(crate) fn stray(&mut self, context: &Context) {
        let error = ProtocolError::StrayOctets;
        self.proto.handle_local_error(error, &mut View::new(context, &mut self.queues));
    }

    /// An FPDU cannot be sent or received to its end, because of memory of this end: the stream is reset.
    pub(crate) fn unfinished(&mut self, context: &Context) {
        self.proto.handle_unfinished(&mut View::new(context, &mut self.queues));
    }

    /// RTS -> Closing.
    pub(crate) fn close(&mut self, context: &Context) -> Result<(), State> {
        self.proto.close(&mut View::new(context, &mut self.queues))
    }

    /// RTS -> Terminate.
    pub(crate) fn terminate(&mut self, context: &Context) -> Result<(), State> {
        self.proto.terminate(&mut View::new(context, &mut self.queues))
    }

    /// Any state -> Error.
    pub(crate) fn abort(&mut self, context: &Context) {
        self.proto.abort(&mut View::new(context, &mut self.queues));
    }

    /// The next action that the core requests for the stream.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.proto.poll_action()
    }
}
