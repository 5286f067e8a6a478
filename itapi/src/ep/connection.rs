//! Connections of an endpoint: connecting, converting a socket, disconnecting. The access layer does the work,
//! mostly in the caller's thread, and reports by events.

use std::fmt::Debug;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use ual::{ConnEvent, ConnectParams, ConvertParams, Disconnect, Established, Event, Policy};
use vp_api::{PathSender, PeerPath};

use super::Ep;
use crate::dispatcher::next;
use crate::error::{Error, Refused, Result};
use crate::ia::{connect_params, copy};

impl Ep {
    /// Connects and waits for the outcome; the policy bounds the wait. Of several addresses it takes the first
    /// that responds.
    pub fn connect(
        &self,
        peer: impl ToSocketAddrs + Debug,
        private_data: &[u8],
    ) -> Result<Established> {
        let private_data = copy(private_data)?;
        self.connect_with(ConnectParams { private_data, ..connect_params(peer)? })
    }

    /// Connects with `params` and waits for the outcome.
    pub fn connect_with(&self, params: ConnectParams) -> Result<Established> {
        self.own_events()?;
        self.start_connect(params)?;
        self.wait_established()
    }

    /// Connects (`it_ep_connect`); a connection event reports the outcome.
    pub fn start_connect(&self, params: ConnectParams) -> Result<()> {
        *self.end() = None;
        Ok(self.0.ep.connect(params)?)
    }

    /// Connects with a policy of its own.
    pub fn connect_by_policy(
        &self,
        peer: SocketAddr,
        private_data: &[u8],
        policy: Policy,
    ) -> Result<Established> {
        let params = ConnectParams {
            private_data: copy(private_data)?,
            policy: Some(policy),
            ..ConnectParams::new(peer)
        };
        self.connect_with(params)
    }

    /// The number by which peers address it, for [`Ep::connect_by_path`].
    pub fn path_number(&self) -> Result<u32> {
        Ok(self.0.ep.path_number()?)
    }

    /// Connects it on a device of InfiniBand or RoCE without a connection manager: the applications have told each other
    /// their numbers, GIDs and first packet sequence numbers. What a peer sends before this is lost, and repeated. No
    /// event follows, and neither end learns that the other one is closed.
    pub fn connect_by_path(&self, peer: &PeerPath, sender: &PathSender) -> Result<()> {
        Ok(self.0.ep.connect_by_path(peer, sender)?)
    }

    /// Makes a connected TCP socket the endpoint's stream, after the applications at both ends agreed to
    /// (`it_socket_convert`), and waits for the outcome. A socket that cannot be converted is returned
    /// unchanged; one whose conversion failed is closed.
    ///
    /// ```
    /// # use std::net::{TcpListener, TcpStream};
    /// # use itapi::{ConvertParams, Ia, Role};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let ia = Ia::open()?;
    /// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
    /// # let (ep, peer) = (pz.ep(&evd).build()?, pz.ep(&evd).build()?);
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let socket = TcpStream::connect(listener.local_addr()?)?;
    /// # let (other, _) = listener.accept()?;
    /// // ... a dialogue over `socket` that ended with "upgrade" ...
    /// # std::thread::scope(|scope| {
    /// # scope.spawn(|| peer.convert(other, ConvertParams::new(Role::Responder)).unwrap());
    /// let established = ep.convert(socket, ConvertParams::new(Role::Initiator))?;
    /// # assert!(established.crc || established.local.is_ok());
    /// # Ok::<_, itapi::Error>(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn convert(
        &self,
        socket: TcpStream,
        params: ConvertParams,
    ) -> std::result::Result<Established, Box<Refused<Option<TcpStream>>>> {
        if let Err(error) = self.own_events() {
            return Err(Refused::new(error, Some(socket)));
        }
        if let Err(refused) = self.start_convert(socket, params) {
            return Err(Refused::new(refused.error, Some(refused.given)));
        }
        self.wait_established().map_err(|error| Refused::new(error, None))
    }

    /// Converts a socket; a connection event reports the outcome. A refused socket is returned unchanged.
    pub fn start_convert(
        &self,
        socket: TcpStream,
        params: ConvertParams,
    ) -> std::result::Result<(), Box<Refused<TcpStream>>> {
        *self.end() = None;
        self.0
            .ep
            .convert(OwnedFd::from(socket), params)
            .map_err(|refused| Refused::new(refused.error.into(), TcpStream::from(refused.socket)))
    }

    pub(crate) fn wait_established(&self) -> Result<Established> {
        loop {
            match self.event_of(None, |_| true) {
                Ok(Some(event)) => return established(event),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the connection in an orderly way and waits until it is over; the policy's close time-out bounds the
    /// wait. Data of completed work arrives. Outstanding work is flushed, and the peer sees a reset after the
    /// completed data; so wait for the completions of what must arrive.
    pub fn disconnect(&self) -> Result<()> {
        self.start_disconnect(Disconnect::Graceful)?;
        if self.0.events.is_some() {
            self.ended(self.close_timeout())?;
        }
        Ok(())
    }

    /// Ends the connection, or gives up making one (`it_ep_disconnect`); a connection event
    /// follows.
    pub fn start_disconnect(&self, how: Disconnect) -> Result<()> {
        Ok(self.0.ep.disconnect(how)?)
    }

    fn close_timeout(&self) -> Duration {
        // The event comes at this bound at the latest; a margin lets it arrive.
        self.0.ep.ia().policy().close_timeout + Duration::from_secs(1)
    }

    /// Waits for the connection's end and returns how it ended; `None`: not within the time-out. Later calls
    /// return the same.
    pub fn ended(&self, timeout: Duration) -> Result<Option<ConnEvent>> {
        if let Some(end) = self.known_end() {
            return Ok(Some(end));
        }
        self.event_of(Some(timeout), |event| !matches!(event, ConnEvent::Established(_)))
    }

    /// Makes an endpoint whose connection is over usable again (`it_ep_reset`).
    pub fn reset(&self) -> Result<()> {
        {
            // Requests posted from here on belong to the next connection.
            if self.state() == ual::EpState::Nonoperational {
                self.0.ep.settled()?;
            }
            let mut sends = self.0.flights.send();
            let failed = self.0.ep.reset()?;
            sends.ended(failed);
        }
        // Drops the events of the old connection.
        if let Some(events) = &self.0.events {
            while events.dequeue()?.is_some() {}
        }
        *self.end() = None;
        Ok(())
    }

    /// The next `wanted` event of its own queue; an end of the connection is kept.
    fn event_of(
        &self,
        timeout: Option<Duration>,
        wanted: impl Fn(&ConnEvent) -> bool,
    ) -> Result<Option<ConnEvent>> {
        let event = next(self.own_events()?, timeout, |event, _| match event {
            Event::Connection { event, .. } => Some(*event).filter(&wanted),
            _ => None,
        })?;
        Ok(event.inspect(|event| self.record_end(event)))
    }

    /// Keeps how the connection ended, for later calls.
    pub(crate) fn record_end(&self, event: &ConnEvent) {
        if !matches!(event, ConnEvent::Established(_)) {
            *self.end() = Some(event.clone());
        }
    }

    pub(crate) fn own_events(&self) -> Result<&Arc<ual::Evd>> {
        self.0.events.as_ref().ok_or_else(|| {
            Error::Argument("the endpoint's connection events go to a shared dispatcher".into())
        })
    }

    /// How the connection ended, if its event was taken.
    pub(crate) fn known_end(&self) -> Option<ConnEvent> {
        self.end().clone()
    }

    fn end(&self) -> MutexGuard<'_, Option<ConnEvent>> {
        self.0.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection that an event reports, or why there is none.
pub(crate) fn established(event: ConnEvent) -> Result<Established> {
    match event {
        ConnEvent::Established(established) => Ok(established),
        other => Err(Error::Connection(Box::new(other))),
    }
}
