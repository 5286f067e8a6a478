//! Wire and protocol errors, and the one table from error to Terminate code.
//!
//! Owner of the state: none, values. Any thread. When the peer dies the error is
//! [`ProtocolError::LlpLost`], for which no Terminate is sent.

use core::fmt;

/// A Terminate's layer, error type and error code (RFC 5040 section 4.8, RFC 6580 registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct TerminateCode {
    pub layer: u8,
    pub etype: u8,
    pub code: u8,
}

impl TerminateCode {
    /// A code from layer, type and code.
    pub const fn new(layer: u8, etype: u8, code: u8) -> Self {
        Self { layer, etype, code }
    }
    /// The first two octets of a Terminate: layer and type are its upper nibbles.
    pub const fn word(self) -> u16 {
        (self.layer as u16) << 12 | (self.etype as u16 & 0x0f) << 8 | self.code as u16
    }
    /// Registered (RFC 6580, RFC 6581 section 11, RFC 7306 section 10).
    pub const fn is_assigned(self) -> bool {
        match (self.layer, self.etype, self.code) {
            (0, 0, _) | (1, 3, _) => true,
            (0, 1, code) => matches!(code, 0..=4 | 9 | 0xff),
            (0, 2, code) => matches!(code, 5..=9 | 0xff),
            (1, 0, code) => code == 0,
            (1, 1, code) => code <= 4,
            (1, 2, code) => matches!(code, 1..=6),
            (2, 0, code) => matches!(code, 1..=7),
            _ => false,
        }
    }
    /// Its name in the registry.
    pub const fn name(self) -> &'static str {
        match (self.layer, self.etype, self.code) {
            (0, 0, _) => "rdmap local catastrophic error",
            (0, 1, 0) => "invalid stag",
            (0, 1, 1) => "base or bounds violation",
            (0, 1, 2) => "access rights violation",
            (0, 1, 3) => "stag not associated with the stream",
            (0, 1, 4) => "tagged offset wraps",
            (0, 1 | 2, 9) => "stag cannot be invalidated",
            (0, 1, 0xff) => "unspecified remote protection error",
            (0, 2, 5) => "invalid rdmap version",
            (0, 2, 6) => "unexpected opcode",
            (0, 2, 7) => "catastrophic error, this stream",
            (0, 2, 8) => "catastrophic error, all streams",
            (0, 2, 0xff) => "unspecified remote operation error",
            (1, 0, 0) => "ddp local catastrophic error",
            (1, 1, 0) => "tagged: invalid stag",
            (1, 1, 1) => "tagged: base or bounds violation",
            (1, 1, 2) => "tagged: stag not associated with the stream",
            (1, 1, 3) => "tagged: offset wraps",
            (1, 1, 4) => "tagged: invalid ddp version",
            (1, 2, 1) => "untagged: invalid queue number",
            (1, 2, 2) => "untagged: no buffer available",
            (1, 2, 3) => "untagged: message sequence number out of range",
            (1, 2, 4) => "untagged: invalid message offset",
            (1, 2, 5) => "untagged: message too long for its buffer",
            (1, 2, 6) => "untagged: invalid ddp version",
            (1, 3, _) => "reserved for the lower layer",
            (2, 0, 1) => "tcp connection closed, terminated or lost",
            (2, 0, 2) => "mpa crc error",
            (2, 0, 3) => "mpa marker and length disagree",
            (2, 0, 4) => "invalid mpa start-up frame",
            (2, 0, 5) => "mpa local catastrophic error",
            (2, 0, 6) => "insufficient ird resources",
            (2, 0, 7) => "no matching rtr option",
            _ => "unassigned code",
        }
    }
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{:x} ({})", self.layer, self.etype, self.code, self.name())
    }
}

/// Octets that do not have the required format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer octets than the header needs.
    Truncated {
        /// Octets needed.
        need: usize,
        /// Octets present.
        have: usize,
    },
    /// The key is neither an MPA Request's nor an MPA Reply's.
    Key {
        /// Offset of the first octet that fits neither.
        at: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { need, have } => write!(f, "{have} octets where {need} are needed"),
            Self::Key { at } => write!(f, "octet {at} belongs to no mpa start-up key"),
        }
    }
}

impl core::error::Error for WireError {}

/// Which headers of the refused segment go with a Terminate (RFC 5040 Figure 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TerminateHeaders {
    /// M = D = R = 0.
    None,
    /// M and D: length and DDP header.
    Ddp,
    /// M, D and R: also the Read Request's header.
    DdpAndRead,
}

macro_rules! protocol_errors {
    ($($(#[doc = $doc:literal])+ $name:ident = $l:literal / $t:literal / $c:literal, $h:ident, $text:literal;)+) => {
        /// A protocol error of the peer's or ours; each maps to one [`TerminateCode`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum ProtocolError {
            $($(#[doc = $doc])+ $name,)+
        }

        impl ProtocolError {
            /// Every variant, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The Terminate's layer, type and code.
            pub const fn terminate_code(self) -> TerminateCode {
                match self {
                    $(Self::$name => TerminateCode::new($l, $t, $c),)+
                }
            }
            /// The headers that go with it [RDMAP-21] (AMB-03: R for 0/1/x on Read Requests only).
            pub const fn headers(self) -> TerminateHeaders {
                match self {
                    $(Self::$name => TerminateHeaders::$h,)+
                }
            }
            const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

// Rows: variant = layer / type / code, headers, text. Ids: reference of requirements, section 8.
protocol_errors! {
    /// A local work request or buffer was refused while a message was built [ERR-27, RDMAP-28].
    LocalCatastrophic = 0 / 0 / 0, None, "a local work request could not be executed";
    /// RDMA Read source: STag unknown, zero, wrong key or revoked [ERR-18].
    ReadStag = 0 / 1 / 0, DdpAndRead, "read request names an invalid source stag";
    /// RDMA Read source: outside the region [ERR-18].
    ReadBounds = 0 / 1 / 1, DdpAndRead, "read request reaches outside its source region";
    /// RDMA Read source: no remote read right [ERR-18].
    ReadAccess = 0 / 1 / 2, DdpAndRead, "read request's source does not grant remote read";
    /// RDMA Read source: other PD or stream [ERR-18].
    ReadNotAssociated = 0 / 1 / 3, DdpAndRead, "read request's source stag belongs to another stream";
    /// RDMA Read source: TO + size wraps [ERR-18].
    ReadWrap = 0 / 1 / 4, DdpAndRead, "read request's source offset plus size wraps";
    /// Atomic target: invalid STag [ERR-30, EXT-14, EXT-15].
    AtomicStag = 0 / 1 / 0, Ddp, "atomic request names an invalid stag";
    /// Atomic target: outside the region [EXT-15].
    AtomicBounds = 0 / 1 / 1, Ddp, "atomic request reaches outside its region";
    /// Atomic target: no remote atomic right [EXT-15].
    AtomicAccess = 0 / 1 / 2, Ddp, "atomic request's target does not grant remote atomics";
    /// Atomic target: other PD or stream [EXT-15].
    AtomicNotAssociated = 0 / 1 / 3, Ddp, "atomic request's stag belongs to another stream";
    /// Atomic target: TO + 8 wraps [EXT-15].
    AtomicWrap = 0 / 1 / 4, Ddp, "atomic request's offset wraps";
    /// Atomic target not aligned to 8 octets [EXT-08].
    AtomicUnaligned = 0 / 2 / 7, Ddp, "atomic request's target is not aligned to 8 octets";
    /// Send with Invalidate of an STag that may not be invalidated [ERR-25, RDMAP-13].
    CannotInvalidate = 0 / 1 / 9, Ddp, "send with invalidate names an stag that cannot be invalidated";
    /// RV is not the negotiated one [ERR-06].
    RdmapVersion = 0 / 2 / 5, Ddp, "wrong rdmap version";
    /// Unknown opcode, or the opcode does not go with the T bit [ERR-07].
    Opcode = 0 / 2 / 6, Ddp, "unexpected rdmap opcode";
    /// AOpCode is neither FetchAdd nor CmpSwap [EXT-05].
    AtomicOpcode = 0 / 2 / 6, Ddp, "unknown atomic operation";
    /// RDMA Read Response with no Read outstanding [ERR-24].
    UnsolicitedReadResponse = 0 / 2 / 6, Ddp, "read response without an outstanding read";
    /// Read or Atomic Request shorter than its header [ERR-21].
    RequestShort = 0 / 2 / 7, Ddp, "read or atomic request is shorter than its header";
    /// A one-segment message without the L bit [ERR-23].
    NotLast = 0 / 2 / 7, Ddp, "message must end with this segment but its l bit is 0";
    /// Immediate Data that is not 8 octets [EXT-02].
    ImmediateLength = 0 / 2 / 0xff, Ddp, "immediate data is not 8 octets long";
    /// Atomic Response of the wrong length or for another request [EXT-10].
    AtomicResponse = 0 / 2 / 0xff, Ddp, "atomic response does not fit the outstanding request";
    /// CQ overrun, SRQ or QP failure on our side [ERR-27].
    StreamCatastrophic = 0 / 2 / 7, None, "local failure that ends this stream";
    /// The whole RNIC failed [ERR-27].
    GlobalCatastrophic = 0 / 2 / 8, None, "local failure that ends all streams";
    /// FIN with work pending [ERR-29].
    BadLlpClose = 0 / 2 / 7, None, "peer closed the connection with work pending";

    /// ULPDU too short for its header, empty, or above 64768 octets [ERR-04, DDP-24].
    UlpduLength = 1 / 0 / 0, None, "ulpdu length is impossible";
    /// Tagged: STag unknown, zero, wrong key or revoked [ERR-13].
    TaggedStag = 1 / 1 / 0, Ddp, "tagged segment names an invalid stag";
    /// Tagged: outside the region [ERR-14].
    TaggedBounds = 1 / 1 / 1, Ddp, "tagged segment reaches outside its region";
    /// Tagged: other PD or stream [ERR-15].
    TaggedNotAssociated = 1 / 1 / 2, Ddp, "tagged segment's stag belongs to another stream";
    /// Tagged: right missing; DDP has no code of its own for it [ERR-17].
    TaggedAccess = 1 / 1 / 2, Ddp, "tagged segment's target does not grant the access";
    /// Tagged: TO + length wraps [ERR-16].
    TaggedWrap = 1 / 1 / 3, Ddp, "tagged segment's offset plus length wraps";
    /// Tagged: DV wrong [ERR-05].
    TaggedVersion = 1 / 1 / 4, Ddp, "wrong ddp version in a tagged segment";
    /// Untagged: queue unknown, or wrong for the opcode [ERR-08].
    QueueNumber = 1 / 2 / 1, Ddp, "wrong queue number";
    /// Read or Atomic Request although IRD is 0 [ERR-20].
    ReadDisabled = 1 / 2 / 1, Ddp, "read or atomic request although none may come in (ird 0)";
    /// No receive buffer posted [ERR-09].
    NoBuffer = 1 / 2 / 2, Ddp, "no receive buffer for the message";
    /// More Read or Atomic Requests than IRD [ERR-19].
    ReadQueueOverflow = 1 / 2 / 2, Ddp, "more outstanding read or atomic requests than the ird";
    /// MSN gap, repeat or out of range [ERR-10].
    MsnRange = 1 / 2 / 3, Ddp, "message sequence number is not the next one";
    /// MO out of range or not contiguous [ERR-11].
    MessageOffset = 1 / 2 / 4, Ddp, "message offset is not the next one";
    /// Longer than the receive buffer [ERR-12].
    MessageTooLong = 1 / 2 / 5, Ddp, "message is longer than its receive buffer";
    /// Read or Atomic Request longer than its header [ERR-22].
    RequestLong = 1 / 2 / 5, Ddp, "read or atomic request is longer than its header";
    /// Untagged: DV wrong [ERR-05].
    UntaggedVersion = 1 / 2 / 6, Ddp, "wrong ddp version in an untagged segment";

    /// TCP closed, reset or timed out: nothing can be sent [ERR-28, MPA-37].
    LlpLost = 2 / 0 / 1, None, "tcp connection is lost";
    /// CRC mismatch [ERR-02, MPA-37].
    Crc = 2 / 0 / 2, None, "mpa crc does not match";
    /// Marker does not point at the FPDU's header [ERR-03, MPA-37].
    Marker = 2 / 0 / 3, None, "mpa marker and fpdu length disagree";
    /// Octets on the TCP connection of a stream whose FPDUs go through shared memory.
    StrayOctets = 2 / 0 / 3, None, "octets on the tcp connection of a local stream";
    /// Bad start-up frame: close, send nothing [ERR-01, MPA-37].
    StartupFrame = 2 / 0 / 4, None, "invalid mpa start-up frame";
    /// Local failure in enhanced start-up [CONN-32].
    StartupCatastrophic = 2 / 0 / 5, None, "local failure during mpa start-up";
    /// The peer's ORD exceeds what our IRD can be [CONN-24].
    InsufficientIrd = 2 / 0 / 6, None, "peer's ord exceeds our ird";
    /// No RTR kind in common [CONN-29].
    NoCommonRtr = 2 / 0 / 7, None, "no ready-to-receive kind in common";
    /// A Terminate too short for its control word: close, send nothing [ERR-26, RDMAP-32].
    MalformedTerminate = 0 / 2 / 0xff, None, "peer sent a malformed terminate";
}

impl ProtocolError {
    /// Whether a Terminate may go out for it: not when the stream is gone or never was in full
    /// operation, and never as a response to a Terminate [ERR-01, ERR-26, ERR-28].
    pub const fn sends_terminate(self) -> bool {
        !matches!(self, Self::LlpLost | Self::StartupFrame | Self::MalformedTerminate)
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TerminateCode { layer, etype, code } = self.terminate_code();
        write!(f, "{} (terminate {layer}/{etype}/{code:x})", self.text())
    }
}

impl core::error::Error for ProtocolError {}
