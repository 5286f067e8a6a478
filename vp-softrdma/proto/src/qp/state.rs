//! The five QP states and their transitions (RDMAC Verbs 6.2).
//!
//! Owner: the QP. Pure functions here. When the peer dies the QP goes to Error, or through
//! Terminate if a Terminate may still be sent.

/// The five states of RDMAC Verbs 6.2 [VERBS-01].
///
/// ```dot
/// digraph qp {
///     Idle -> Rts [label="start"];
///     Idle -> Error [label="abort"];
///     Rts -> Closing [label="close, or FIN with nothing pending"];
///     Rts -> Terminate [label="terminate, any error, Terminate or FIN received"];
///     Rts -> Error [label="abort, LLP fault, Bad Close"];
///     Closing -> Idle [label="both FINs"];
///     Closing -> Error [label="data, LLP fault, timer"];
///     Terminate -> Error [label="closed, LLP fault, timer"];
///     Error -> Idle [label="reset"];
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No stream. Work may be posted; nothing is processed.
    Idle,
    /// Full operation.
    Rts,
    /// Graceful close under way; nothing may be posted.
    Closing,
    /// A Terminate was sent or received; inbound octets are dropped; ends by itself.
    Terminate,
    /// The stream is gone and all work is flushed.
    Error,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Rts, Self::Closing, Self::Terminate, Self::Error];

    /// Whether the consumer may ask for this change by Modify QP (RDMAC 6.2) [VERBS-01].
    pub const fn may_modify(self, to: Self) -> bool {
        match self {
            Self::Idle => matches!(to, Self::Idle | Self::Rts | Self::Error),
            Self::Rts => !matches!(to, Self::Idle),
            Self::Error => matches!(to, Self::Idle),
            // RDMAC 6.2.3, 6.2.5 [VERBS-05, VERBS-10]
            Self::Closing | Self::Terminate => false,
        }
    }

    /// Whether the QP may make this change on its own (RDMAC 6.2) [VERBS-01].
    pub const fn may_change(self, to: Self) -> bool {
        match self {
            Self::Idle | Self::Error => false,
            Self::Rts => matches!(to, Self::Closing | Self::Terminate | Self::Error),
            Self::Closing => matches!(to, Self::Idle | Self::Error),
            Self::Terminate => matches!(to, Self::Error),
        }
    }
}
