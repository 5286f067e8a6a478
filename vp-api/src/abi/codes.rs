//! Tables of the header's numeric codes and the Rust enums: each table once, for both directions.

use crate::{
    Addressing, Capabilities, Carrier, ConnectionModel, LocalSide, LogLevel, MwKind, QpState, Role,
    Rtr, ServiceRefusal, Transport, UdState, VpStatus, WcOpcode, WcStatus,
};

macro_rules! codes {
    ($($type:ident $code:ident $from:ident {
        $($name:ident = $number:literal,)+ $(; $other:pat => $instead:expr)?
    })+) => {$(
        pub(super) fn $code(value: $type) -> u32 {
            match value { $($type::$name => $number,)+ $($other => $instead,)? }
        }
        pub(super) fn $from(code: u32) -> Option<$type> {
            match code { $($number => Some($type::$name),)+ _ => None }
        }
    )+};
}

/// No error.
pub(super) const OK: u32 = 0;

codes! {
    VpStatus status_code status {
        InsufficientResources = 1, InvalidModifier = 2, InUse = 4, InvalidHandle = 5,
        Interrupted = 6, Unsupported = 10, CqTooSmall = 11, InvalidPd = 13, InvalidAddress = 15,
        InvalidState = 18, TooManyWrs = 19, InvalidWr = 20, InvalidSgl = 21, InvalidIrdOrd = 25,
        CannotChange = 26, InvalidStag = 27, StagInUse = 30, InvalidAccess = 33,
        NotPrivileged = 75, StillFlushing = 76, InvalidStream = 77, CqOverrun = 78, Os = 79,
        Defect = 80,
        // A code that already crossed as an unknown number crosses again as a defect.
        ; _ => 80
    }
    WcOpcode wc_opcode_code wc_opcode {
        Send = 1, Write = 5, Read = 6, BindMw = 8, FastRegister = 9, InvalidateLocal = 10,
        Recv = 11, Atomic = 16, Immediate = 17, WriteImmediate = 18, RecvImmediate = 19,
    }
    WcStatus wc_status_code wc_status {
        Success = 0, InvalidStag = 27, Flushed = 38, InvalidWqe = 39, LocalCatastrophic = 40,
        RemoteTermination = 41, Bounds = 42, AccessViolation = 43, InvalidPd = 44, Wrap = 45,
        CannotInvalidate = 46, ZeroReadResources = 47, NotPrivileged = 48, StagNotInvalid = 49,
        InvalidWindow = 59, InvalidLength = 60,
    }
    ConnectionModel model_code model { LlpStream = 1, Native = 2, }
    LogLevel level_code level { Error = 1, Warn = 2, Info = 3, Debug = 4, Trace = 5, }
    MwKind kind_code kind { Wide = 1, Narrow = 2, }
    Role role_code role { Initiator = 1, Responder = 2, }
    Rtr rtr_code rtr { Send = 1, Write = 2, Read = 3, }
    UdState ud_state_code ud_state { Operational = 1, Error = 2, }
    ServiceRefusal refusal_code refusal {
        NotSupported = 1, Rejected = 2, NoQueuePair = 3, Redirected = 4,
    }
    LocalSide side_code side { Maker = 1, Other = 2, }
    Carrier carrier_code carrier { Tcp = 0, Local = 1, LocalCorrupt = 2, }
    QpState state_code state { Idle = 1, Rts = 2, Closing = 3, Terminate = 4, Error = 5, }
}

/// The number of [`Addressing::Based`].
pub(super) const BASED: u32 = 2;

/// How octets are addressed; only [`Addressing::Based`] uses `base`.
pub(super) fn addressing(code: u32, base: u64) -> Option<Addressing> {
    match code {
        0 => Some(Addressing::Absolute),
        1 => Some(Addressing::ZeroBased),
        BASED => Some(Addressing::Based(base)),
        _ => None,
    }
}

/// The number and the base of an addressing.
pub(super) fn addressing_code(addressing: Addressing) -> (u32, u64) {
    match addressing {
        Addressing::Absolute => (0, 0),
        Addressing::ZeroBased => (1, 0),
        Addressing::Based(base) => (BASED, base),
    }
}

/// The transport of a device; an unknown or missing one is the vendor's own.
pub(super) fn transport(code: u32) -> Transport {
    match code {
        1 => Transport::Iwarp,
        2 => Transport::InfiniBand,
        _ => Transport::Other,
    }
}

pub(super) fn transport_code(transport: Transport) -> u32 {
    match transport {
        Transport::Other => 0,
        Transport::Iwarp => 1,
        Transport::InfiniBand => 2,
    }
}

/// The capabilities that this version knows. Unknown bits of a newer provider are ignored. Bits of an older header
/// have the meaning that they had there.
pub(super) fn capabilities(bits: u64, minor: u16) -> Capabilities {
    let mut all = Capabilities::from_bits_truncate(bits);
    if minor < 2 && all.contains(Capabilities::MW) {
        all |= Capabilities::NARROW_MW | Capabilities::WIDE_MW;
        all.set(Capabilities::READ_SINK_STAG, all.contains(Capabilities::INVALIDATE));
    }
    // Reserved in earlier versions.
    all.set(Capabilities::UD, minor >= 3 && all.contains(Capabilities::UD));
    all.set(Capabilities::BASED, minor >= 4 && all.contains(Capabilities::BASED));
    all.set(Capabilities::HOLD, minor >= 4 && all.contains(Capabilities::HOLD));
    let immediate = Capabilities::SEND_IMMEDIATE;
    all.set(immediate, minor >= 4 && all.contains(immediate));
    let local = Capabilities::LOCAL_STREAM;
    all.set(local, minor >= 4 && all.contains(local));
    all.set(Capabilities::ALLOW, minor >= 4 && all.contains(Capabilities::ALLOW));
    all.set(Capabilities::DISCARD, minor >= 4 && all.contains(Capabilities::DISCARD));
    all
}

/// Kinds of `ri_qp_change`.
pub(super) mod change {
    pub(in crate::abi) const RTS: u32 = 1;
    pub(in crate::abi) const CLOSING: u32 = 2;
    pub(in crate::abi) const TERMINATE: u32 = 3;
    pub(in crate::abi) const ERROR: u32 = 4;
    pub(in crate::abi) const IDLE: u32 = 5;
    pub(in crate::abi) const LIMITS: u32 = 6;
    pub(in crate::abi) const DRAIN: u32 = 7;
    pub(in crate::abi) const ALLOW: u32 = 8;
    pub(in crate::abi) const DISCARD: u32 = 9;
    /// Bits of the limits that change: ORD, IRD, send depth, receive depth, receive limit.
    pub(in crate::abi) const WHICH: [u32; 5] = [1, 2, 4, 8, 16];
}

/// Flags of `ri_stream`.
pub(super) mod stream {
    pub(in crate::abi) const CRC: u32 = 1;
    pub(in crate::abi) const MARKERS_TX: u32 = 2;
    pub(in crate::abi) const MARKERS_RX: u32 = 4;
    pub(in crate::abi) const EXTENSIONS: u32 = 8;
    pub(in crate::abi) const SEND_IMMEDIATES: u32 = 16;
    pub(in crate::abi) const LOCAL: u32 = 32;
}

/// Flags of `ri_qp_init`, and of `modify` of an SRQ.
pub(super) mod flag {
    pub(in crate::abi) const PRIVILEGED: u32 = 1;
    pub(in crate::abi) const SRQ: u32 = 2;
    pub(in crate::abi) const HOLD: u32 = 4;
    pub(in crate::abi) const SRQ_DEPTH: u32 = 1;
    pub(in crate::abi) const SRQ_LIMIT: u32 = 2;
}

/// Operations of `ri_send_wr`, its flags, and those of `ri_wc`.
pub(super) mod op {
    pub(in crate::abi) const SEND: u32 = 1;
    pub(in crate::abi) const WRITE: u32 = 2;
    pub(in crate::abi) const WRITE_IMMEDIATE: u32 = 3;
    pub(in crate::abi) const IMMEDIATE: u32 = 4;
    pub(in crate::abi) const READ: u32 = 5;
    pub(in crate::abi) const ATOMIC: u32 = 6;
    pub(in crate::abi) const BIND_MW: u32 = 7;
    pub(in crate::abi) const FAST_REGISTER: u32 = 8;
    pub(in crate::abi) const INVALIDATE_LOCAL: u32 = 9;
    pub(in crate::abi) const SEND_IMMEDIATE: u32 = 10;
    pub(in crate::abi) const SOLICITED: u32 = 8;
    pub(in crate::abi) const INVALIDATE: u32 = 16;
    pub(in crate::abi) const INLINE: u32 = 32;
    pub(in crate::abi) const FETCH_ADD: u32 = 0;
    pub(in crate::abi) const CMP_SWAP: u32 = 2;
    pub(in crate::abi) const WC_SOLICITED: u32 = 1;
    pub(in crate::abi) const WC_INVALIDATED: u32 = 2;
    pub(in crate::abi) const WC_IMMEDIATE: u32 = 4;
}

/// Flags of `ri_ud_source`, `ri_ud_send_wr` and `ri_ud_qp_init`, and kinds of `ri_service_event`.
pub(super) mod ud {
    pub(in crate::abi) const IS: u32 = 1;
    pub(in crate::abi) const GRH: u32 = 2;
    pub(in crate::abi) const PATH: u32 = 4;
    pub(in crate::abi) const IMMEDIATE: u32 = 64;
    pub(in crate::abi) const QKEY: u32 = 1;
    pub(in crate::abi) const REQUEST: u32 = 1;
    pub(in crate::abi) const RESOLVED: u32 = 2;
    pub(in crate::abi) const REFUSED: u32 = 3;
    pub(in crate::abi) const FAILED: u32 = 4;
}

/// Kinds of `ri_cm_event`.
pub(super) mod cm {
    pub(in crate::abi) const REQUEST: u32 = 1;
    pub(in crate::abi) const ESTABLISHED: u32 = 2;
    pub(in crate::abi) const REJECTED: u32 = 3;
    pub(in crate::abi) const FAILED: u32 = 4;
    pub(in crate::abi) const DISCONNECTED: u32 = 5;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_of_an_older_header_keep_their_meaning() {
        let windows = Capabilities::MW.bits();
        let both = Capabilities::MW | Capabilities::NARROW_MW | Capabilities::WIDE_MW;
        for minor in [0, 1] {
            assert_eq!(capabilities(windows, minor), both);
            let invalidates = Capabilities::MW | Capabilities::INVALIDATE;
            let sinks = Capabilities::INVALIDATE | Capabilities::READ_SINK_STAG;
            assert_eq!(capabilities(invalidates.bits(), minor), both | sinks);
        }
        assert_eq!(capabilities(windows, 2), Capabilities::MW);
        let datagrams = Capabilities::UD;
        assert_eq!(capabilities(datagrams.bits(), 2), Capabilities::empty());
        assert_eq!(capabilities(datagrams.bits(), 3), datagrams);
        let based = Capabilities::BASED;
        assert_eq!(capabilities(based.bits(), 3), Capabilities::empty());
        assert_eq!(capabilities(based.bits(), 4), based);
        let hold = Capabilities::HOLD;
        assert_eq!(capabilities(hold.bits(), 3), Capabilities::empty());
        assert_eq!(capabilities(hold.bits(), 4), hold);
        let immediate = Capabilities::SEND_IMMEDIATE;
        assert_eq!(capabilities(immediate.bits(), 3), Capabilities::empty());
        assert_eq!(capabilities(immediate.bits(), 4), immediate);
        let local = Capabilities::LOCAL_STREAM;
        assert_eq!(capabilities(local.bits(), 3), Capabilities::empty());
        assert_eq!(capabilities(local.bits(), 4), local);
        let allow = Capabilities::ALLOW;
        assert_eq!(capabilities(allow.bits(), 3), Capabilities::empty());
        assert_eq!(capabilities(allow.bits(), 4), allow);
        let discard = Capabilities::DISCARD;
        assert_eq!(capabilities(discard.bits(), 3), Capabilities::empty());
        assert_eq!(capabilities(discard.bits(), 4), discard);
        // Capabilities of a later version are ignored.
        assert_eq!(capabilities(windows | 1 << 63, 3), Capabilities::MW);
    }
}
