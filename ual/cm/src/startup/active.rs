//! The connecting side of a start-up as a state machine on its socket: TCP, request, reply, and retries
//! with fewer features for peers that support less. A silent peer costs a table entry until the timer of
//! its phase expires.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use iwarp_proto::mpa::startup::{Answer, Initiator, Negotiated, StartupError, Step};
use kal_shim::clock::after;
use kal_shim::reactor::Interest;
use kal_shim::same_host::NotLocal;
use kal_shim::sock;

use crate::connection::Connectee;
use crate::local::Seeking;
use crate::node::{Ends, Node};
use crate::policy::{Markers, Policies, Policy, Rule};
use crate::ruled::{AdapterRules, Denied};
use crate::startup::config::{Attempt, initiator_config};
use crate::startup::tcp::{local_of, options, policy_for, send_rest, tcp_reason};
use crate::types::{ConnectParams, FailReason};

/// A connection attempt.
pub(crate) struct Active {
    pub(crate) party: Weak<dyn Connectee>,
    pub(crate) plan: Plan,
    /// It is a converted socket: no second one can be made for a retry.
    pub(crate) converted: bool,
    /// The reactor knows the socket.
    pub(crate) watched: bool,
    pub(crate) socket: OwnedFd,
    pub(crate) ends: Ends,
    pub(crate) phase: Phase,
    /// The peer may come for a local stream, from before the request until its reply.
    pub(crate) seeking: Result<Seeking, NotLocal>,
}

/// The phase of an attempt.
pub(crate) enum Phase {
    /// TCP.
    Connecting,
    /// The connection was refused; the socket waits for its next try.
    Refused,
    /// Sends the last streaming message and the request, of which this many octets are sent; then waits
    /// for the reply.
    Asking { machine: Initiator, preface: Vec<u8>, sent: usize },
}

/// What to do next with an attempt.
pub(crate) enum Next {
    /// Wait for the socket.
    Wait(Interest),
    /// Connected: start the MPA exchange.
    Ask,
    /// Accepted.
    Adopt(Box<(Negotiated, Vec<u8>, Vec<u8>)>),
    /// The attempt is over, and may be retried.
    Over(Over),
}

/// How an attempt ended.
pub(crate) enum Over {
    Failed(FailReason),
    Startup(StartupError),
    Rejected { private_data: Vec<u8>, peer_ird_ord: Option<(u16, u16)>, revision: u8 },
}

impl Active {
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// When the present phase times out.
    pub(crate) fn deadline(&self) -> Instant {
        self.plan.deadline.unwrap_or_else(|| after(self.plan.policy.connect_timeout))
    }

    /// Builds the request; the local address is final from now on.
    pub(crate) fn build_request(
        &mut self,
        party: &dyn Connectee,
        preface: Vec<u8>,
    ) -> Result<(), StartupError> {
        if let Ok(address) = sock::local_addr(&self.socket) {
            self.ends.local = Node::local(address);
            party.connection().link().ends = Some(self.ends.clone());
        }
        let Plan { params, policy, attempt, .. } = &self.plan;
        let config = initiator_config(policy, *attempt, party.connection().ird_ord());
        let machine = Initiator::new(config, &params.private_data)?;
        self.phase = Phase::Asking { machine, preface, sent: 0 };
        Ok(())
    }

    /// Continues as far as the socket allows.
    pub(crate) fn advance(&mut self) -> Next {
        match &mut self.phase {
            Phase::Connecting => match sock::connected(&self.socket) {
                Ok(()) if sock::peer_addr(&self.socket).is_ok() => Next::Ask,
                Ok(()) => Next::Wait(Interest::WRITE),
                Err(error) => {
                    Next::Over(Over::Failed(tcp_reason(&error, &self.plan.params.remote)))
                }
            },
            // The socket is not watched: the timer continues it.
            Phase::Refused => Next::Wait(Interest::NONE),
            Phase::Asking { machine, preface, sent } => {
                let asked = *sent == preface.len() + machine.request().len();
                match send_request(&self.socket, preface, machine.request(), sent) {
                    Ok(true) if asked => receive(&self.socket, machine),
                    // The request was sent just now: its reply cannot have arrived yet.
                    Ok(true) => Next::Wait(Interest::READ),
                    Ok(false) => Next::Wait(Interest::WRITE),
                    Err(_) => Next::Over(Over::Startup(machine.handle_eof())),
                }
            }
        }
    }

    /// The attempt to try next, if this error suggests that the peer accepts fewer features. Every step
    /// removes one, so there are at most three.
    pub(crate) fn step_back(&self, over: &Over) -> Option<Attempt> {
        let Plan { policy, attempt: now, .. } = &self.plan;
        if !policy.fall_back || self.converted {
            return None;
        }
        let no_data = |data: &[u8]| data.is_empty();
        match over {
            // RFC 6581 10 [CONN-18]: a responder of RFC 5044 alone closes on the enhanced form, or
            // replies in its own.
            Over::Startup(
                StartupError::Eof { have: 0 }
                | StartupError::Revision { .. }
                | StartupError::FormMismatch,
            ) if now.enhanced => Some(Attempt { enhanced: false, ..*now }),
            Over::Rejected { private_data, revision, .. }
                if now.enhanced && *revision < policy.revision && no_data(private_data) =>
            {
                Some(Attempt { enhanced: false, ..*now })
            }
            // [IOP-06]: a responder that does not implement peer-to-peer mode, or forgets it.
            // An initiator that does not ask for it gets no such error.
            Over::Startup(StartupError::NoCommonRtr) => {
                Some(Attempt { peer_to_peer: false, ..*now })
            }
            // [IOP-01]: the kernel's siw rejects markers.
            Over::Rejected { private_data, .. }
                if now.markers && policy.markers == Markers::Prefer && no_data(private_data) =>
            {
                Some(Attempt { markers: false, ..*now })
            }
            _ => None,
        }
    }
}

/// Sends the rest of the request; true when all of it is sent. One segment, with nothing after it
/// (CONN-34), and nothing of the streaming dialogue before it.
fn send_request(
    socket: impl AsFd,
    preface: &[u8],
    request: &[u8],
    sent: &mut usize,
) -> io::Result<bool> {
    if *sent < preface.len() && !send_rest(&socket, preface, sent)? {
        return Ok(false);
    }
    let mut of_request = *sent - preface.len();
    let done = send_rest(&socket, request, &mut of_request);
    *sent = preface.len() + of_request;
    done
}

fn receive(socket: impl AsFd, machine: &mut Initiator) -> Next {
    let mut octets = [0; 2048];
    loop {
        let count = match sock::recv(&socket, &mut octets) {
            Ok(0) => return Next::Over(Over::Startup(machine.handle_eof())),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Next::Wait(Interest::READ);
            }
            Err(_) => return Next::Over(Over::Startup(machine.handle_eof())),
        };
        match machine.handle(&octets[..count]) {
            Ok(Step::NeedMore) => {}
            Ok(Step::Done { consumed, value: Answer::Accepted { negotiated, private_data } }) => {
                let behind = octets[consumed..count].to_vec();
                return Next::Adopt(Box::new((negotiated, private_data, behind)));
            }
            Ok(Step::Done {
                value: Answer::Rejected { private_data, peer_ird_ord, revision },
                ..
            }) => return Next::Over(Over::Rejected { private_data, peer_ird_ord, revision }),
            Err(error) => return Next::Over(Over::Startup(error)),
        }
    }
}

/// Sends the Terminate that RFC 6581 requires for some errors (CONN-24, CONN-29, CONN-32).
pub(crate) fn send_terminate(machine: &Initiator, error: StartupError, socket: impl AsFd) {
    if let Some(terminate) = machine.terminate_for(error, crc32c::crc32c_append) {
        // The connection is over either way.
        let _ = sock::send(&socket, &terminate);
    }
}

/// What stays the same over all attempts to make one connection, and what changes.
pub(crate) struct Plan {
    pub(crate) params: ConnectParams,
    pub(crate) policy: Policy,
    /// The deadline of all attempts together, if the application set one.
    pub(crate) deadline: Option<Instant>,
    pub(crate) attempt: Attempt,
    /// Until when a refused connection is tried again.
    pub(crate) refused_until: Option<Instant>,
    /// The rule that the connection to this address meets.
    pub(crate) rule: Option<Arc<Rule>>,
    /// It refuses this address.
    pub(crate) denied: Option<Denied>,
}

impl Plan {
    pub(crate) fn new(params: ConnectParams, policy: Policy, rule: Option<Arc<Rule>>) -> Self {
        let (attempt, deadline) = (Attempt::new(&policy), params.timeout.map(after));
        let refused_until = (!policy.refused_for.is_zero()).then(|| after(policy.refused_for));
        Self { params, policy, deadline, attempt, refused_until, rule, denied: None }
    }

    /// Whether to try the address again, though there is no listener now.
    pub(crate) fn tries_again(&self, reason: &FailReason) -> bool {
        let now = Instant::now();
        let before = |end: Option<Instant>, without| end.map_or(without, |end| now < end);
        *reason == FailReason::Refused
            && before(self.refused_until, false)
            && before(self.deadline, true)
    }

    /// Moves on to the peer's next address, if that may help after this failure.
    pub(crate) fn use_next_address(
        &mut self,
        policies: &Policies,
        rules: &AdapterRules,
        party: &dyn Connectee,
        reason: &FailReason,
    ) -> bool {
        let unreached = matches!(
            reason,
            FailReason::Refused | FailReason::Unreachable(_) | FailReason::ConnectTimeout(_)
        );
        let late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        if !unreached || late || self.params.alternatives.is_empty() {
            return false;
        }
        tracing::info!(
            "{} cannot be reached ({reason}); trying the next address",
            self.params.remote
        );
        self.params.remote = self.params.alternatives.remove(0);
        let (policy, rule) = policy_for(policies, rules, &self.params);
        self.policy = policy;
        // The same rule bounds both: it is met once.
        if rule != self.rule {
            let mut link = party.connection().link();
            link.admission = None;
            match rules.admit(rule.as_deref(), false) {
                Ok(admission) => link.admission = admission,
                Err(denied) => self.denied = Some(denied),
            }
        }
        self.rule = rule;
        self.attempt = Attempt::new(&self.policy);
        true
    }

    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        if let Some(denied) = &self.denied {
            return Err(io::Error::other(denied.clone()));
        }
        sock::connect(self.params.remote, local_of(&self.params), &options(&self.policy))
    }
}
