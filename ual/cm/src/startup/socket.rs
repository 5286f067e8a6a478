//! Converting sockets to endpoints, "late RDMA transition" (RFC 5044 section 7.1.2, RDMAC 6.6.1): the
//! parameters, and the checks before anything changes. No state; the caller's thread.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use iwarp_proto::mpa::startup::max_private_data;
use iwarp_proto::wire::mpa::FrameKind;
use iwarp_proto::wire::{ddp, rdmap};
use kal_shim::sock;
use vp_api::Role;

use crate::error::{Error, Result, check_length};
use crate::node::{Ends, Node};
use crate::policy::{Policies, Policy, RuleRole};
use crate::ruled::{AdapterRules, Admission};
use crate::startup::config::asks_markers;

/// Longest last streaming message in octets.
const MAX_LAST_MESSAGE: usize = 1 << 16;

/// How to convert a socket (IT-API `it_socket_convert`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConvertParams {
    /// [`Role::Initiator`]: begins, with the MPA request or the first FPDU. [`Role::Responder`]: waits
    /// for it; the side that sends the last message of the streaming dialogue takes this role (RDMAC
    /// 6.6.1).
    pub role: Role,
    /// Exchange MPA request and reply. `false` (`IT_SC_NO_REQ_REP`): the applications have agreed on
    /// everything that these negotiate. Both ends then use their policy's CRC (`require` or `prefer`:
    /// on) and markers (`prefer` or `require`: on, both ways) and the endpoint's IRD and ORD, which must
    /// match. There is no ready-to-receive message, so the initiator's application must post first.
    pub startup: bool,
    /// Sent in streaming mode before anything else; at most 64 KiB.
    pub last_message: Vec<u8>,
    /// For the peer's application, in the request or the reply; none without start-up.
    pub private_data: Vec<u8>,
    /// Policy for this connection; `None`: the adapter's for the peer.
    pub policy: Option<Policy>,
    /// Octets that the application has read from the socket already, and that belong to RDMA.
    pub received: Vec<u8>,
}

impl ConvertParams {
    /// With start-up, no last message, no private data, the adapter's policy.
    pub const fn new(role: Role) -> Self {
        Self {
            role,
            startup: true,
            last_message: Vec::new(),
            private_data: Vec::new(),
            policy: None,
            received: Vec::new(),
        }
    }
}

/// A socket that was not converted, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ConvertError {
    /// Why.
    #[source]
    pub error: Error,
    /// The socket, untouched.
    pub socket: OwnedFd,
}

/// A conversion that passed the checks.
pub(crate) struct Conversion {
    pub(crate) socket: OwnedFd,
    pub(crate) params: ConvertParams,
    pub(crate) policy: Policy,
    pub(crate) ends: Ends,
    pub(crate) admission: Option<Admission>,
}

impl Conversion {
    /// Checks everything that can be known without touching the socket.
    pub(crate) fn check(
        policies: &Policies,
        rules: &AdapterRules,
        socket: OwnedFd,
        params: ConvertParams,
    ) -> std::result::Result<Self, ConvertError> {
        match check(policies, rules, &socket, &params) {
            Ok((policy, ends, admission)) => Ok(Self { socket, params, policy, ends, admission }),
            Err(error) => Err(ConvertError { error, socket }),
        }
    }

    /// Returns the socket, unconverted.
    pub(crate) fn refuse(self, error: Error) -> ConvertError {
        ConvertError { error, socket: self.socket }
    }
}

type Checked = (Policy, Ends, Option<Admission>);

fn check(
    policies: &Policies,
    rules: &AdapterRules,
    socket: &OwnedFd,
    params: &ConvertParams,
) -> Result<Checked> {
    sock::check_stream(socket).map_err(|unfit| Error::Socket(unfit.to_string()))?;
    let unknown = |error: std::io::Error| Error::Socket(format!("it cannot be examined: {error}"));
    let remote: SocketAddr = sock::peer_addr(socket).map_err(unknown)?;
    let local = sock::local_addr(socket).map_err(unknown)?;
    let mut policy = match &params.policy {
        Some(policy) => policy.clone(),
        None => policies.of(remote.ip()).clone(),
    };
    let (port, role) = match params.role {
        Role::Initiator => (remote.port(), RuleRole::Connect),
        Role::Responder => (local.port(), RuleRole::Accept),
    };
    let rule = rules.apply(&mut policy, remote.ip(), port, role);
    check_lengths(params, &policy)?;
    let mut begun = params.received.clone();
    let mut waiting = [0; 64];
    let count = sock::peek(socket, &mut waiting).map_err(unknown)?;
    begun.extend_from_slice(&waiting[..count]);
    check_begun(params, &policy, &begun)?;
    let admission = rules.admit(rule.as_deref(), false).map_err(Error::Denied)?;
    let ends = Ends { local: Node::local(local), remote: Node::remote(remote, None) };
    Ok((policy, ends, admission))
}

fn check_lengths(params: &ConvertParams, policy: &Policy) -> Result<()> {
    let most = match (params.startup, params.role) {
        (false, _) => 0,
        (true, Role::Initiator) => policy.max_private_data(),
        // An enhanced request makes the reply enhanced [CONN-17].
        (true, Role::Responder) => max_private_data(policy.revision >= 2),
    };
    check_length(params.private_data.len(), most)?;
    let len = params.last_message.len();
    if len > MAX_LAST_MESSAGE {
        return Err(Error::InvalidArgument(format!(
            "the last message has {len} octets, at most {MAX_LAST_MESSAGE} can go with a \
             conversion; send the rest before"
        )));
    }
    Ok(())
}

/// Octets that were read already must be the beginning of RDMA: the rest of a dialogue would be lost, or
/// taken for it.
fn check_begun(params: &ConvertParams, policy: &Policy, begun: &[u8]) -> Result<()> {
    let what = match (params.role, params.startup) {
        _ if begun.is_empty() => return Ok(()),
        (Role::Initiator, _) => "the peer must not send before this end has begun",
        (Role::Responder, true) if begins_request(begun) => return Ok(()),
        (Role::Responder, true) => "they are not an MPA request",
        (Role::Responder, false) => match begins_fpdu(begun, asks_markers(policy)) {
            Some(false) => "they are not an FPDU",
            _ => return Ok(()),
        },
    };
    Err(Error::Socket(format!(
        "octets of the peer were there before the conversion, and {what}; finish the streaming \
         dialogue first"
    )))
}

/// Whether so many octets are, or begin, an MPA request (RFC 5044 7.1.1 [CONN-01]).
fn begins_request(octets: &[u8]) -> bool {
    octets.iter().zip(FrameKind::Request.key()).all(|(octet, due)| octet == due)
}

/// Whether octets begin a stream of FPDUs; `None`: too few to decide.
pub(crate) fn begins_fpdu(octets: &[u8], markers: bool) -> Option<bool> {
    // RFC 5044 4.3 [MPA-10]: the first marker is in front, and points at the FPDU after it.
    let octets = match (markers, octets) {
        (false, octets) => octets,
        (true, [_, _, 0, 0, octets @ ..]) => octets,
        (true, octets) => return (octets.len() >= 4).then_some(false),
    };
    let [high, low, control, ulp, ..] = octets else { return None };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let (control, ulp) = (ddp::Control(*control), rdmap::Control(*ulp));
    let known = ulp.opcode().is_some_and(|opcode| opcode.tagged() == control.tagged());
    let versions = control.version() == ddp::VERSION && ulp.version() == rdmap::VERSION;
    Some(known && versions && len >= control.header_len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_recognised_by_their_beginning() {
        assert!(begins_request(b"MPA ID Req Frame\x40\x01"));
        assert!(begins_request(b"MPA"));
        assert!(!begins_request(b"MPA ID Rep"));
        assert!(!begins_request(b"GET / HTTP/1.1\r\n"));
        // A Send: 18 octets of header and 4 of payload.
        let send = [0, 22, 0x41, 0x43, 0, 0];
        assert_eq!(begins_fpdu(&send, false), Some(true));
        assert_eq!(begins_fpdu(&send[..3], false), None);
        assert_eq!(begins_fpdu(&send, true), Some(false));
        assert_eq!(begins_fpdu(&[0, 0, 0, 0, 0, 22, 0x41, 0x43], true), Some(true));
        // Too short for a header; a tagged Send; versions 0; text.
        for wrong in [[0, 17, 0x41, 0x43], [0, 22, 0xC1, 0x43], [0, 22, 0x40, 0x03], *b"HTTP"] {
            assert_eq!(begins_fpdu(&wrong, false), Some(false), "{wrong:02x?}");
        }
    }
}
