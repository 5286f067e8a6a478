//! Calls on an endpoint: connect, convert, accept, disconnect, reset. They run in the caller's thread;
//! what then depends on a peer continues in the connection table.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use vp_api::{QpChange, QpInfo, QpState, Role};

use crate::connection::{ConnState, Connectee, end_stream, id_of};
use crate::error::{Error, Result};
use crate::listener::Bound;
use crate::mailbox::Command;
use crate::manager::Cm;
use crate::requests;
use crate::startup::active::Plan;
use crate::startup::socket::{Conversion, ConvertError, ConvertParams};
use crate::startup::tcp::{self, Started, check_connect, policy_for};
use crate::tuning::{END_CHECK, RESET_MARGIN};
use crate::types::{AcceptParams, ConnectParams, Disconnect, RequestId};

impl Cm {
    /// Connects; a [`crate::ConnEvent`] reports the result. An error leaves the endpoint unconnected:
    /// [`Error::AddressInUse`] for a local port that is taken, [`Error::Os`] if this process lacks the
    /// right or the descriptors.
    pub fn connect(&self, party: &Arc<dyn Connectee>, params: ConnectParams) -> Result<()> {
        self.start_connecting(party, params, None)
    }

    /// Connects from an address that was bound before and that is released if this fails; the local
    /// address and port in `params` are ignored.
    /// [`Error::InvalidArgument`]: it is of another family, or several addresses are bound. Providers
    /// with a connection manager of their own choose the address and the port themselves.
    pub fn connect_from(
        &self,
        party: &Arc<dyn Connectee>,
        mut bound: Bound,
        mut params: ConnectParams,
    ) -> Result<()> {
        if self.native().is_some() {
            params.local_port = 0;
            return self.start_connecting(party, params, None);
        }
        let (Some(socket), true) = (bound.sockets.pop(), bound.sockets.is_empty()) else {
            return Err(Error::InvalidArgument(format!(
                "to connect from, one address must be bound; there are {:?}",
                bound.addresses
            )));
        };
        params.local = Some(socket.address.ip());
        params.local_port = socket.address.port();
        self.start_connecting(party, params, Some(socket.socket))
    }

    fn start_connecting(
        &self,
        party: &Arc<dyn Connectee>,
        params: ConnectParams,
        bound: Option<OwnedFd>,
    ) -> Result<()> {
        let (policy, rule) = policy_for(self.policies(), self.rules(), &params);
        check_connect(&params, self.private_data(&policy))?;
        let native = self.native().is_some();
        let admission = self.rules().admit(rule.as_deref(), native).map_err(Error::Denied)?;
        let connection = party.connection();
        connection.begin(ConnState::ActivePending, "connect")?;
        connection.link().admission = admission;
        let started = match (self.native(), bound) {
            (None, None) => tcp::start(&params, &policy),
            (None, Some(socket)) => tcp::start_bound(socket, &params, &policy),
            // Its connection manager makes its own sockets.
            (Some(_), _) if params.local_port == 0 => Ok(Started::Native),
            (Some(_), _) => Err(Error::unsupported("connect from a given port")),
        };
        match started {
            Ok(started) => {
                let plan = Box::new(Plan::new(params, policy, rule));
                let party = Arc::downgrade(party);
                self.execute(Command::Connect { party, plan, started });
                Ok(())
            }
            Err(error) => {
                connection.link().admission = None;
                connection.set_state(ConnState::Unconnected);
                Err(error)
            }
        }
    }

    /// Makes a connected TCP socket the endpoint's stream, after the applications at both its ends
    /// agreed to (IT-API `it_socket_convert`); a [`crate::ConnEvent`] reports the result.
    ///
    /// The initiator is connecting until the peer's reply has arrived, bounded by the policy's
    /// `connect_timeout`; without start-up it is connected at once. The responder waits
    /// ([`ConnState::PassiveWait`]) for the request, which it accepts by itself with the endpoint's IRD
    /// and ORD, bounded by `request_timeout`; without start-up for the first FPDU, bounded by
    /// `answer_timeout`, since the peer's application sends it. A disconnect ends the wait.
    ///
    /// [`Error::Socket`]: this socket cannot become a stream. With any error the socket is returned
    /// unchanged. A success consumes it, even if no connection is established later. No second
    /// descriptor of it may stay open: the peer would not see the connection's end.
    pub fn convert(
        &self,
        party: &Arc<dyn Connectee>,
        socket: OwnedFd,
        params: ConvertParams,
    ) -> std::result::Result<(), ConvertError> {
        let pending = match params.role {
            Role::Initiator => ConnState::ActivePending,
            Role::Responder => ConnState::PassiveWait,
        };
        if self.native().is_some() {
            return Err(ConvertError { error: Error::unsupported("convert a socket"), socket });
        }
        let mut conversion = Conversion::check(self.policies(), self.rules(), socket, params)?;
        match party.connection().begin(pending, "convert a socket") {
            Ok(()) => {
                party.connection().link().admission = conversion.admission.take();
                // The socket is ours from now on. If there is no memory to record it, a forked child
                // keeps it.
                let _ = kal_shim::fork::take(&conversion.socket);
                let (party, conversion) = (Arc::downgrade(party), Box::new(conversion));
                self.mailbox.send(Command::Convert { party, conversion });
                Ok(())
            }
            Err(error) => Err(conversion.refuse(error)),
        }
    }

    /// Accepts a connection request; a [`crate::ConnEvent`] reports the result.
    pub fn accept(
        &self,
        party: &Arc<dyn Connectee>,
        request: RequestId,
        params: AcceptParams,
    ) -> Result<()> {
        party.connection().begin(ConnState::PassivePending, "accept")?;
        let len = params.private_data.len();
        match requests::claim_to_accept(request, len, &self.mailbox) {
            Ok(claimed) => {
                let (token, party) = (claimed.token, Arc::downgrade(party));
                self.execute(Command::Accept { token, party, params });
                Ok(())
            }
            Err(error) => {
                party.connection().set_state(ConnState::Unconnected);
                Err(error)
            }
        }
    }

    /// Ends the connection, or the attempt to make one. [`crate::ConnEvent::Disconnected`], or for an
    /// attempt [`crate::ConnEvent::Failed`], follows within the policy's close time-out. Outstanding
    /// work completes as flushed. What has completed arrives at the peer, unless the end is
    /// [`Disconnect::Abrupt`].
    pub fn disconnect(&self, party: &Arc<dyn Connectee>, how: Disconnect) -> Result<()> {
        let connection = party.connection();
        let (state, stream) = connection.present();
        match state {
            ConnState::Unconnected => Err(connection.invalid_state("disconnect", "connected")),
            ConnState::ActivePending | ConnState::PassivePending | ConnState::PassiveWait => {
                self.cancel(&**party, stream);
                Ok(())
            }
            ConnState::Connected => {
                let native = self.native().map(|native| &**native);
                if let Some(stream) = end_stream(&**party, native, how)? {
                    self.disconnecting(party, stream, how);
                }
                Ok(())
            }
            // The connection is over, or another thread ended it first: the event reports it.
            ConnState::Nonoperational => Ok(()),
        }
    }

    /// Cancels a pending connect or accept.
    pub(crate) fn cancel(&self, party: &dyn Connectee, stream: u64) {
        self.mailbox.send(Command::Cancel { qp: id_of(party), stream });
    }

    /// The endpoint has begun to disconnect.
    pub(crate) fn disconnecting(&self, party: &Arc<dyn Connectee>, stream: u64, how: Disconnect) {
        self.execute(Command::Disconnecting { party: Arc::downgrade(party), stream, how });
    }

    /// Nonoperational to Unconnected, once everything posted is flushed (IT-API `it_ep_reset`). Returns
    /// how many requests of the send queue failed: the last ones that were posted.
    ///
    /// Refused before the connection's last event. If a Terminate cannot be sent because the peer does
    /// not read, this waits for that, bounded by the policy's `close_timeout`.
    pub fn reset(&self, party: &dyn Connectee) -> Result<u32> {
        let connection = party.connection();
        let (state, stream) = connection.present();
        if state != ConnState::Nonoperational {
            return Err(connection.invalid_state("reset", "nonoperational"));
        }
        let early =
            |needed| Error::InvalidState { state: "still disconnecting", attempt: "reset", needed };
        if connection.link().live {
            // Otherwise its last event would be lost.
            return Err(early("disconnected (wait for the event)"));
        }
        let verb = Error::verb("reset the queue pair");
        let before = self.settled(party)?;
        match before.state {
            QpState::Idle => {}
            QpState::Error => party.qp().modify(QpChange::Idle).map_err(&verb)?,
            _ => {
                return Err(early(
                    "disconnected (its last messages are still being sent; try again)",
                ));
            }
        }
        // Queried twice: the first query may miss what was flushed meanwhile.
        let after = party.qp().query().map_err(verb)?;
        connection.restart(stream, self.new_stream())?;
        Ok(after.sends_lost.max(before.sends_lost))
    }

    /// The queue pair once it has ended by itself, as it does within its bound. [`Cm::reset`] waits the
    /// same way but also keeps posts away, which is not needed during this wait.
    /// RDMAC 6.2.3 [VERBS-10]
    pub fn settled(&self, party: &dyn Connectee) -> Result<QpInfo> {
        let bound = party.connection().link().close_timeout.saturating_add(RESET_MARGIN);
        let begin = Instant::now();
        loop {
            let info = party.qp().query().map_err(Error::verb("query the queue pair"))?;
            let settled = matches!(info.state, QpState::Idle | QpState::Error);
            if settled || begin.elapsed() >= bound {
                return Ok(info);
            }
            std::thread::sleep(END_CHECK);
        }
    }
}
