//! Fields of several messages: communication ids, GIDs, private data, and coded reasons.
//!
//! Owner of the state: none, values. Any thread.

use core::fmt;

use crate::cm::mad::Body;

/// The two communication ids of a connection, as the sender of the message sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionIds {
    /// The sender's.
    pub local: u32,
    /// The receiver's.
    pub remote: u32,
}

impl ConnectionIds {
    pub(super) fn parse(body: &Body) -> Self {
        Self { local: body.u32(0), remote: body.u32(4) }
    }
    pub(super) fn emit(self, body: &mut Body) {
        body.put_u32(0, self.local);
        body.put_u32(4, self.remote);
    }
}

/// Global identifier; for RoCE v2 the IP address, IPv4 mapped into IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of an IPv4 address.
    pub const fn of_ipv4([a, b, c, d]: [u8; 4]) -> Self {
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }
}

/// Private data; its length on the wire is fixed for each message, and shorter data is padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Private<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Private<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Private<N> {
    /// Pads `octets` with zeros; `None` if they are too many.
    pub fn new(octets: &[u8]) -> Option<Self> {
        let mut private = Self::default();
        private.0.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(private)
    }
    pub(super) fn parse(body: &Body, at: usize) -> Self {
        Self(body.octets(at))
    }
    pub(super) fn emit(&self, body: &mut Body, at: usize) {
        body.put(at, &self.0);
    }
}

/// Which message a Reject or a message-receipt acknowledgement is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Rejected {
    Req = 0,
    Rep = 1,
    None = 2,
    Reserved = 3,
}

impl Rejected {
    pub(super) const fn parse(bits: u8) -> Self {
        match bits {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::None,
            _ => Self::Reserved,
        }
    }
}

/// Why a connection is refused (InfiniBand volume 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No queue pair available.
    pub const NO_QP: Self = Self(1);
    /// No resources available.
    pub const NO_RESOURCES: Self = Self(3);
    /// A message did not arrive in time.
    pub const TIMEOUT: Self = Self(4);
    /// Communication id unknown.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// No listener has this service id.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// Transport service not supported.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The request was sent again while its connection exists.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The path MTU cannot be used.
    pub const INVALID_MTU: Self = Self(26);
    /// The application refused.
    pub const CONSUMER: Self = Self(28);

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self.0 {
            1 => "no queue pair available",
            2 => "no EE context available",
            3 => "no resources available",
            4 => "time-out",
            5 => "unsupported request",
            6 => "invalid communication id",
            7 => "invalid communication instance",
            8 => "invalid service id",
            9 => "invalid transport service type",
            10 => "stale connection",
            11 => "reliable datagram context does not exist",
            12 | 18 => "GID rejected",
            13 | 19 => "LID rejected",
            14 | 20 => "invalid service level",
            15 | 21 => "invalid traffic class",
            16 | 22 => "invalid hop limit",
            17 | 23 => "invalid packet rate",
            24 | 25 => "port and connection manager redirection",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "rejected by the application",
            29 => "RNR retry count rejected",
            30 => "duplicate local communication id",
            31 => "invalid class version",
            32 => "invalid flow label",
            33 => "invalid alternate flow label",
            _ => "unassigned reason",
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.name())
    }
}

/// Whether a datagram service was found (InfiniBand volume 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// Queue pair and queue key are valid.
    pub const VALID: Self = Self(0);
    /// No such service.
    pub const UNSUPPORTED_SERVICE: Self = Self(1);
    /// The service's owner refused.
    pub const REJECTED: Self = Self(2);
    /// The service has no queue pair.
    pub const NO_QP: Self = Self(3);
    /// Another address offers the service.
    pub const REDIRECTED: Self = Self(4);
}
