//! The accepting side of a start-up as a state machine on its socket: request, the application's reply,
//! and refusals. A peer that is silent, slow or gone costs a table entry until the timer of its phase
//! expires.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use iwarp_proto::mpa::startup::{Request, Responder, StartupError, Step};
use kal_shim::reactor::Interest;
use kal_shim::sock;

use crate::handle::Handle;
use crate::node::Ends;
use crate::policy::{Policy, Rule};
use crate::ruled::Admission;
use crate::startup::tcp::send_rest;

/// Octets after a request that are kept until it is accepted; the rest stays in the kernel.
const MAX_BEHIND: usize = 4096;

/// An incoming connection.
pub(crate) struct Passive {
    pub(crate) listener: u64,
    pub(crate) policy: Policy,
    /// The rule that it meets.
    pub(crate) rule: Option<Arc<Rule>>,
    /// From the whole request until the application's reply, which passes it on.
    pub(crate) admission: Option<Admission>,
    /// The reactor knows the socket.
    pub(crate) watched: bool,
    pub(crate) socket: OwnedFd,
    pub(crate) ends: Ends,
    pub(crate) phase: Phase,
}

/// The phase of an incoming connection.
pub(crate) enum Phase {
    /// Not read yet: too many connections from its address ended for invalid STags.
    Delayed(Responder),
    /// Collecting the request.
    Request(Responder),
    /// The application has the request.
    Waiting { machine: Responder, asked: Box<Request>, request: Handle, behind: Vec<u8> },
    /// Sending a refusal, of which this many octets are sent.
    Refusing { reply: Vec<u8>, sent: usize },
    /// The refusal is sent: waiting for the peer to close, so that it is not lost in a reset.
    Lingering,
}

/// What to do next with an incoming connection.
pub(crate) enum Next {
    Wait(Interest),
    /// The request is complete; octets that came after it.
    Deliver(Box<Request>, Vec<u8>),
    /// Malformed, or against policy.
    Refuse(StartupError),
    /// The peer gave up, or has closed.
    Gone,
}

impl Passive {
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The request that the application has.
    pub(crate) fn request(&self) -> Option<Handle> {
        match &self.phase {
            Phase::Waiting { request, .. } => Some(*request),
            _ => None,
        }
    }

    /// Whether no application has it and no refusal is being sent.
    pub(crate) fn is_unheard(&self) -> bool {
        matches!(self.phase, Phase::Delayed(_) | Phase::Request(_))
    }

    /// Continues as far as the socket allows.
    pub(crate) fn advance(&mut self) -> Next {
        match &mut self.phase {
            Phase::Delayed(_) => Next::Wait(Interest::NONE),
            Phase::Request(machine) => collect(&self.socket, machine),
            Phase::Waiting { behind, .. } => keep_behind(&self.socket, behind),
            Phase::Refusing { reply, sent } => match send_rest(&self.socket, reply, sent) {
                Ok(false) => Next::Wait(Interest::WRITE),
                Ok(true) if sock::finish(&self.socket).is_ok() => {
                    self.phase = Phase::Lingering;
                    Next::Wait(Interest::READ)
                }
                _ => Next::Gone,
            },
            Phase::Lingering => discard(&self.socket),
        }
    }
}

fn collect(socket: &OwnedFd, machine: &mut Responder) -> Next {
    let mut octets = [0; 2048];
    loop {
        let count = match sock::recv(socket, &mut octets) {
            Ok(0) => return Next::Gone,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Next::Wait(Interest::READ);
            }
            Err(_) => return Next::Gone,
        };
        match machine.handle(&octets[..count]) {
            Ok(Step::NeedMore) => {}
            Ok(Step::Done { consumed, value }) => {
                return Next::Deliver(Box::new(value), octets[consumed..count].to_vec());
            }
            Err(error) => return Next::Refuse(error),
        }
    }
}

/// Octets after a request belong to full operation (CONN-34: accepted, though a peer should not send
/// them).
fn keep_behind(socket: &OwnedFd, behind: &mut Vec<u8>) -> Next {
    let mut octets = [0; MAX_BEHIND];
    while behind.len() < MAX_BEHIND {
        let room = MAX_BEHIND - behind.len();
        match sock::recv(socket, &mut octets[..room]) {
            Ok(0) => return Next::Gone,
            Ok(count) => behind.extend_from_slice(&octets[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Next::Wait(Interest::READ);
            }
            Err(_) => return Next::Gone,
        }
    }
    Next::Wait(Interest::NONE)
}

fn discard(socket: &OwnedFd) -> Next {
    let mut octets = [0; 2048];
    match sock::recv(socket, &mut octets) {
        Ok(count) if count > 0 => Next::Wait(Interest::READ),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Next::Wait(Interest::READ),
        _ => Next::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A socket may be reported readable and have nothing to read.
    #[test]
    fn a_lingering_socket_waits_for_its_peer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = listener.accept().unwrap().0;
        io::Write::write_all(&mut &peer, b"late").unwrap();
        own.peek(&mut [0]).unwrap();
        own.set_nonblocking(true).unwrap();
        let own = OwnedFd::from(own);
        // Once with octets, once with none.
        for _ in 0..2 {
            assert!(matches!(discard(&own), Next::Wait(_)));
        }
        drop(peer);
        warpline_patience::until("the peer's end", || matches!(discard(&own), Next::Gone));
    }
}
