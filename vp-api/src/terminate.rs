//! Terminate messages: their codes, the refused segment as far as this end knows it, and a description in words.
//! Plain values.
//!
//! The end that sends a Terminate knows the region and the segment. The end that receives it knows only the header
//! quoted in it, and its own work request.

use std::borrow::Cow;
use std::fmt;

use crate::{Access, Stag};

/// What grants a right.
const GRANTS: &str = "registration or link of that memory";
/// The same, where this end cannot know which lacks it.
const EITHER: &str = "registration or link of that memory, or the endpoint there,";

/// Decoded Terminate (RFC 5040 section 4.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Terminate {
    /// True if this end sent it.
    pub sent: bool,
    /// 0 RDMAP, 1 DDP, 2 LLP (MPA).
    pub layer: u8,
    /// Error type within the layer.
    pub etype: u8,
    /// Error code within the type.
    pub code: u8,
    /// The refused segment, if the Terminate quotes it and the provider reports it.
    pub refused: Option<RefusedSegment>,
}

/// The segment that a Terminate is about, from its header. If this end sent the Terminate, the peer sent the
/// segment; otherwise this end did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct RefusedSegment {
    pub operation: RefusedOperation,
    /// Octets of the segment, or of the work request that the segment belongs to.
    pub octets: u32,
    /// Whether `octets` are those of the whole operation.
    pub whole: bool,
    /// The memory that it refers to.
    pub target: Option<(Stag, u64)>,
    /// The region, if `memory` is valid memory of this end.
    pub region: Option<RefusedRegion>,
}

/// The operation that a refused segment belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum RefusedOperation {
    Send,
    Write,
    Read,
    ReadResponse,
    Atomic,
    AtomicResponse,
    Immediate,
    /// A message with an unknown opcode.
    Unknown,
}

/// Memory of this end that a refused segment refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct RefusedRegion {
    pub octets: u64,
    pub access: Access,
    pub window: bool,
    /// Whether the connection may use it: it belongs to the connection's protection domain or, as a window, to the
    /// connection.
    pub associated: bool,
}

impl Terminate {
    /// A Terminate of which only the codes are known.
    pub const fn new(sent: bool, layer: u8, etype: u8, code: u8) -> Self {
        Self { sent, layer, etype, code, refused: None }
    }

    /// Whether the code means (RFC 5040 4.8) a local error, or one that ends this stream or all streams: a failure
    /// of the end that sent the Terminate, not caused by the other end. If the Terminate quotes a segment, the
    /// error is about that segment.
    fn is_failure(&self) -> bool {
        let own = matches!(
            (self.layer, self.etype, self.code),
            (0 | 1, 0, _) | (0, 2, 7 | 8) | (2, 0, 5)
        );
        own && self.refused.is_none()
    }

    /// The kind of error.
    fn kind(&self) -> &'static str {
        match (self.layer, self.etype, self.code) {
            (0, 1, _) | (1, 1, 0..=3) => "remote access violation",
            (1, 2, 2) => "no room at the receiver",
            (2, 0, 1) => "lost stream",
            (2, 0, 2 | 3) => "damaged stream",
            // DDP has one code for both.
            (1, 0, _) => "local failure or impossible length",
            _ if self.is_failure() => "local failure",
            _ => "protocol violation",
        }
    }

    /// What is wrong with the refused segment, as the predicate of a sentence.
    fn fault(&self) -> Cow<'static, str> {
        let text = match (self.layer, self.etype, self.code) {
            (0, 1, 0) | (1, 1, 0) => "names an STag that is not valid (freed, or never granted)",
            (0, 1, 1) | (1, 1, 1) => "is beyond the region",
            (0, 1, 2) => return self.needs(),
            // RoCE, whose refusals say no more.
            (0, 1, 0xff) => return self.may_need("or names memory that is not registered there"),
            (0, 1, 3) => "names a region of another protection domain",
            // RFC 5041 7.1: DDP has no separate code for a missing right.
            (1, 1, 2) => match self.refused.and_then(|refused| refused.region) {
                Some(region) if region.associated => return self.needs(),
                Some(_) => "names a region of another protection domain",
                None => return self.may_need("or names memory of another protection domain"),
            },
            (0, 1, 4) | (1, 1, 3) => "wraps around the end of the offsets",
            (0, 1 | 2, 9) => "is to invalidate an STag that cannot be invalidated",
            (0, 2, 0xff) => return self.may_be_invalid(),
            (0, 2, 5) => "has a wrong RDMAP version",
            (0, 2, 6) => "was not expected: its opcode is wrong here",
            (0, 2, 7) => match self.refused {
                // RFC 7306 8.2
                Some(RefusedSegment {
                    operation: RefusedOperation::Atomic, whole: true, ..
                }) => "does not address a multiple of 8 octets",
                _ => "is too short, or is not marked as the last segment of its message",
            },
            (1, 1, 4) | (1, 2, 6) => "has a wrong DDP version",
            (1, 2, 1) => "came to a queue that takes none (RDMA Reads and atomics: IRD is 0)",
            (1, 2, 2) => match self.refused.map(|refused| refused.operation) {
                Some(RefusedOperation::Read | RefusedOperation::Atomic) => {
                    "is more than may be under way at once (IRD)"
                }
                _ => "found no receive posted",
            },
            (1, 2, 3) => "is out of sequence (MSN)",
            (1, 2, 4) => "has a wrong message offset",
            (1, 2, 5) => "is longer than its receive",
            _ => "broke a rule",
        };
        text.into()
    }

    /// Which right is missing, and what would grant it.
    fn needs(&self) -> Cow<'static, str> {
        let Some((refused, name, right)) = self.right() else {
            return "needs a right that the region does not grant".into();
        };
        let by = match (self.sent, self.is_endpoints(&refused, right)) {
            (false, _) => EITHER,
            (true, true) => "endpoint, as it was created,",
            (true, false) => GRANTS,
        };
        format!("needs the right {name}, which the {by} does not grant").into()
    }

    /// Whether the endpoint lacks the right that the refused request needs, and not the memory.
    pub fn is_for_endpoint(&self) -> bool {
        let is = |(refused, _, right): (RefusedSegment, _, _)| self.is_endpoints(&refused, right);
        (self.layer, self.etype, self.code) == (0, 1, 2) && self.right().is_some_and(is)
    }

    /// The endpoint is asked first, whatever the memory is.
    fn is_endpoints(&self, refused: &RefusedSegment, right: Access) -> bool {
        refused.region.map_or(self.sent, |region| region.access.contains(right))
    }

    /// What may be missing, if the other end does not say, or else.
    fn may_need(&self, or: &str) -> Cow<'static, str> {
        let Some((refused, name, _)) = self.right() else {
            return "needs a right that is not granted there".into();
        };
        let unaligned = match refused.operation {
            RefusedOperation::Atomic => " or begins at no multiple of 8 octets",
            _ => "",
        };
        format!("needs the right {name}, which the {EITHER} does not grant, {or}{unaligned}").into()
    }

    /// What an invalid request of RoCE may be: the other end does not say.
    fn may_be_invalid(&self) -> Cow<'static, str> {
        match (self.right(), self.refused) {
            (Some((_, name, _)), _) => format!(
                "needs the right {name}, which the endpoint there does not grant, or is not valid"
            )
            .into(),
            (None, Some(RefusedSegment { operation: RefusedOperation::Send, .. })) => {
                "is longer than its receive, or is not valid".into()
            }
            _ => "broke a rule".into(),
        }
    }

    /// The right that the refused request needs.
    fn right(&self) -> Option<(RefusedSegment, &'static str, Access)> {
        let refused = self.refused?;
        let (name, right) = match refused.operation {
            RefusedOperation::Write => ("REMOTE_WRITE", Access::REMOTE_WRITE),
            RefusedOperation::Read => ("REMOTE_READ", Access::REMOTE_READ),
            RefusedOperation::Atomic => ("REMOTE_ATOMIC", Access::REMOTE_ATOMIC),
            _ => return None,
        };
        Some((refused, name, right))
    }

    /// The meaning of the codes if no segment is quoted.
    fn meaning(&self) -> &'static str {
        match (self.layer, self.etype, self.code) {
            (0, 0, _) => "it could not execute one of its work requests",
            (1, 0, _) => {
                "a buffer of it could not be used, or that the length of an FPDU cannot be"
            }
            (0, 2, 7) => "it could not continue this connection",
            (0, 2, 8) => "its whole adapter failed",
            (2, 0, 1) => "TCP was closed or lost",
            (2, 0, 2) => "the CRC of an FPDU is wrong: octets changed on their way",
            (2, 0, 3) => "a marker and the length of an FPDU disagree",
            (2, 0, 4) => "a start-up frame is invalid",
            (2, 0, 5) => "it failed during start-up",
            (2, 0, 6) => "the other end's ORD exceeds what its IRD can be",
            (2, 0, 7) => "there is no ready-to-receive kind in common",
            _ => "a message of the other end broke a rule",
        }
    }
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, layer, etype, code, refused } = self;
        let (here, there) = if *sent { ("this end", "the peer") } else { ("the peer", "this end") };
        write!(f, "{}: ", self.kind())?;
        match refused {
            Some(refused) => {
                write!(f, "{there}'s {refused} {}", self.fault())?;
                if let Some(region) = refused.region {
                    write!(f, " ({region})")?;
                }
            }
            None if self.is_failure() => write!(f, "{here} says that {}", self.meaning())?,
            None => write!(f, "{here} found that {}", self.specific())?,
        }
        write!(f, " (layer {layer}, type {etype}, code {code:#04x})")
    }
}

impl Terminate {
    fn specific(&self) -> String {
        match self.layer {
            2 => self.meaning().into(),
            _ if self.fault() == "broke a rule" => self.meaning().into(),
            _ => format!("a message of the other end {}", self.fault()),
        }
    }
}

impl fmt::Display for RefusedSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, octets, whole, target, .. } = self;
        if *whole {
            write!(f, "{operation} of {} octets", Thousands(u64::from(*octets)))?;
        } else {
            write!(f, "{operation} (a segment of {} octets)", Thousands(u64::from(*octets)))?;
        }
        match target {
            Some((stag, to)) => write!(f, " at STag {:#010x}, offset {to:#x},", stag.0),
            None => Ok(()),
        }
    }
}

impl fmt::Display for RefusedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "Send",
            Self::Write => "RDMA Write",
            Self::Read => "RDMA Read",
            Self::ReadResponse => "RDMA Read Response",
            Self::Atomic => "atomic operation",
            Self::AtomicResponse => "Atomic Response",
            Self::Immediate => "Immediate Data",
            Self::Unknown => "message",
        })
    }
}

impl fmt::Display for RefusedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.window { "a window of" } else { "registered" };
        write!(f, "{what} {} octets, ", Thousands(self.octets))?;
        let has = |right| self.access.contains(right);
        f.write_str(match (has(Access::REMOTE_READ), has(Access::REMOTE_WRITE)) {
            (true, true) => "read and write",
            (true, false) => "read only",
            (false, true) => "write only",
            (false, false) => "for local use only",
        })?;
        if has(Access::REMOTE_ATOMIC) { f.write_str(", with atomics") } else { Ok(()) }
    }
}

/// A number with commas between groups of thousands.
struct Thousands(u64);

impl fmt::Display for Thousands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1000 {
            return write!(f, "{}", self.0);
        }
        write!(f, "{},{:03}", Thousands(self.0 / 1000), self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: RefusedSegment = RefusedSegment {
        operation: RefusedOperation::Write,
        octets: 4096,
        whole: true,
        target: Some((Stag(0x1234_5600), 0x1000)),
        region: None,
    };

    fn text(sent: bool, (layer, etype, code): (u8, u8, u8), refused: RefusedSegment) -> String {
        Terminate { refused: Some(refused), ..Terminate::new(sent, layer, etype, code) }.to_string()
    }

    #[test]
    fn both_ends_describe_the_refused_request() {
        let region = RefusedRegion {
            octets: 64,
            access: Access::REMOTE_WRITE,
            window: false,
            associated: true,
        };
        assert_eq!(
            text(true, (1, 1, 1), RefusedSegment { region: Some(region), ..WRITE }),
            "remote access violation: the peer's RDMA Write of 4,096 octets at STag 0x12345600, \
             offset 0x1000, is beyond the region (registered 64 octets, write only) \
             (layer 1, type 1, code 0x01)"
        );
        assert_eq!(
            text(false, (1, 1, 1), WRITE),
            "remote access violation: this end's RDMA Write of 4,096 octets at STag 0x12345600, \
             offset 0x1000, is beyond the region (layer 1, type 1, code 0x01)"
        );
        let send = RefusedSegment { operation: RefusedOperation::Send, target: None, ..WRITE };
        assert_eq!(
            text(false, (1, 2, 2), send),
            "no room at the receiver: this end's Send of 4,096 octets found no receive posted \
             (layer 1, type 2, code 0x02)"
        );
    }

    // RFC 5040 4.8: a request that is too short and a failure of the RNIC share a code.
    #[test]
    fn a_segment_that_is_quoted_is_no_local_failure() {
        let read = RefusedSegment { operation: RefusedOperation::Read, target: None, ..WRITE };
        assert_eq!(
            text(true, (0, 2, 7), read),
            "protocol violation: the peer's RDMA Read of 4,096 octets is too short, or is not marked as \
             the last segment of its message (layer 0, type 2, code 0x07)"
        );
        // RFC 7306 8.2: an atomic that is not aligned has the same code.
        let operation = RefusedOperation::Atomic;
        let atomic = RefusedSegment { operation, octets: 8, target: None, ..WRITE };
        assert_eq!(
            text(false, (0, 2, 7), atomic),
            "protocol violation: this end's atomic operation of 8 octets does not address a multiple of 8 \
             octets (layer 0, type 2, code 0x07)"
        );
        let either = "needs the right REMOTE_ATOMIC, which the registration or link of that memory, or the \
                      endpoint there, does not grant";
        assert!(text(false, (0, 1, 2), atomic).contains(either));
        assert!(text(false, (0, 1, 0xff), atomic).contains("or begins at no multiple of 8 octets"));
    }

    // RDMAC 6.1: the endpoint's rights and the region's are needed.
    #[test]
    fn a_right_is_missing_in_the_region_or_in_the_endpoint() {
        let region = |access| {
            let region = RefusedRegion { octets: 64, access, window: false, associated: true };
            text(true, (0, 1, 2), RefusedSegment { region: Some(region), ..WRITE })
        };
        let by_region = "which the registration or link of that memory does not grant";
        assert!(region(Access::REMOTE_READ).contains(by_region));
        let by_endpoint =
            "needs the right REMOTE_WRITE, which the endpoint, as it was created, does not";
        assert!(region(Access::REMOTE_WRITE).contains(by_endpoint));
        assert!(text(true, (0, 1, 2), WRITE).contains(by_endpoint));
        let either = "needs the right REMOTE_WRITE, which the registration or link of that memory, or the \
                      endpoint there, does not grant, or names memory";
        for codes in [(1, 1, 2), (0, 1, 0xff)] {
            assert!(text(false, codes, WRITE).contains(either), "{codes:?}");
        }
        let invalid = "needs the right REMOTE_WRITE, which the endpoint there does not grant, or";
        assert!(text(false, (0, 2, 0xff), WRITE).contains(invalid));
        let send = RefusedSegment { operation: RefusedOperation::Send, target: None, ..WRITE };
        assert!(text(false, (0, 2, 0xff), send).contains("is longer than its receive, or"));
    }

    #[test]
    fn a_ddp_code_with_two_meanings_is_resolved() {
        let with = |associated| {
            let access = Access::REMOTE_READ;
            let region = RefusedRegion { octets: 1 << 20, access, window: true, associated };
            text(true, (1, 1, 2), RefusedSegment { region: Some(region), ..WRITE })
        };
        assert!(with(true).contains("does not grant (a window of 1,048,576 octets, read only)"));
        assert!(with(false).contains("another protection domain"));
        let either = "does not grant, or names memory of another protection domain";
        assert!(text(false, (1, 1, 2), WRITE).contains(either));
    }

    #[test]
    fn a_terminate_without_a_header_is_attributed_to_the_right_end() {
        let text =
            |sent, (layer, etype, code)| Terminate::new(sent, layer, etype, code).to_string();
        for codes in [(0, 0, 0), (0, 2, 7), (0, 2, 8)] {
            assert!(
                text(true, codes).starts_with("local failure: this end says that "),
                "{codes:?}"
            );
            assert!(text(false, codes).starts_with("local failure: the peer says "), "{codes:?}");
        }
        let either = "local failure or impossible length: this end says that a buffer of it could not \
                      be used, or that the length of an FPDU cannot be (layer 1, type 0, code 0x00)";
        assert_eq!(text(true, (1, 0, 0)), either);
        assert_eq!(
            text(true, (2, 0, 2)),
            "damaged stream: this end found that the CRC of an FPDU is wrong: octets changed on \
             their way (layer 2, type 0, code 0x02)"
        );
        assert!(text(true, (1, 1, 0)).contains("a message of the other end names an STag"));
        assert!(
            text(false, (0, 2, 0xff)).contains("the peer found that a message of the other end")
        );
    }
}
