//! The blocking interface. No state beyond the channel end's: any number of threads may use one channel,
//! and each message goes to one of them.

use std::fmt::Debug;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use itapi::{ConnectParams, Ends, Ia, Request, connect_params};

use crate::away;
use crate::core::{ChannelEnd, completions};
use crate::door::Door;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::message::{Draft, Message, Outgoing};
use crate::options::Options;
use crate::resume::{Resumption, Role, Way, Wish};
use crate::sessions;
use crate::state::State;
use crate::wire::{Greeting, Offer, Purpose, Unfit};

/// How long [`Channel::close`] waits for the peer if [`Options`] set no bound.
pub(crate) const CLOSING: Duration = Duration::from_secs(60);

/// A connection that carries messages: each arrives whole, once, in order.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use warpline_channel::{Channel, Listener};
///
/// # let ia = itapi::Ia::open()?;
/// let listener = Listener::bind(&ia, "127.0.0.1:0")?;
/// let address = listener.address();
/// let server = std::thread::spawn(move || {
///     let channel = listener.accept()?;
///     while let Some(message) = channel.recv()? {
///         channel.send(&message)?; // an echo
///     }
///     channel.close() // the client is done, and so are we
/// });
/// let channel = Channel::connect(&ia, address)?;
/// channel.send(b"hello")?;
/// assert_eq!(channel.recv()?.as_deref(), Some(&b"hello"[..]));
/// channel.send(vec![7; 1 << 20])?; // large: the server reads it from where it is
/// assert_eq!(channel.recv()?.map(|message| message.len()), Some(1 << 20));
/// channel.close()?;
/// server.join().expect("no panic")?;
/// # Ok(())
/// # }
/// ```
///
/// Dropped, it ends the connection: without an error at the peer if the peer had finished and all of its
/// messages were taken, else with one.
pub struct Channel {
    pub(crate) core: Arc<ChannelEnd>,
    pub(crate) patience: Option<Duration>,
}

impl Channel {
    /// Connects to a [`Listener`](crate::Listener) or [`Server`](crate::Server).
    pub fn connect(ia: &Ia, peer: impl ToSocketAddrs + Debug) -> Result<Self> {
        Self::connect_with(ia, peer, Options::default())
    }

    /// Connects with the given limits.
    pub fn connect_with(
        ia: &Ia,
        peer: impl ToSocketAddrs + Debug,
        options: Options,
    ) -> Result<Self> {
        Self::connect_any([(ia.clone(), peer)], options)
    }

    /// Connects by the first way that leads to the peer: a device and an address each, the preferred ones first. With
    /// [`Options::resume`], the session goes on by any of them when its connection is lost. Errors: [`Error::NoWay`] if there are
    /// several ways, or none, and none leads there; an address that cannot be resolved, of whichever way.
    pub fn connect_any<A: ToSocketAddrs + Debug>(
        ways: impl IntoIterator<Item = (Ia, A)>,
        options: Options,
    ) -> Result<Self> {
        let ways = ways_of(ways)?;
        options.greeting()?;
        let mut causes = Vec::new();
        for way in 0..ways.len() {
            let begun = Self::begin(&ways, way, options);
            match begun.and_then(|channel| channel.established().map(|()| channel)) {
                Ok(channel) => return Ok(channel),
                Err(error) => causes.push(error),
            }
        }
        Err(no_way(causes))
    }

    /// Waits for the connection; the policy bounds it.
    pub(crate) fn established(&self) -> Result<()> {
        loop {
            let seen = self.core.hub.round();
            if up(&self.core.state())?.is_some() {
                return Ok(());
            }
            self.core.hub.follow(seen, None)?;
        }
    }

    /// Begins to connect by one of the ways.
    pub(crate) fn begin(ways: &Arc<[Way]>, way: usize, options: Options) -> Result<Self> {
        let ours = options.greeting()?;
        let (ia, peer) = (&ways[way].ia()?, &ways[way].peer);
        let hub = Hub::new(ia, false, completions(&options)?)?;
        let core = ChannelEnd::new(&hub, ia, ours, None, options.resume.is_some())?;
        let mut private_data = ours.to_octets().to_vec();
        if let Some(lasting) = options.resume {
            let (ways, returns) = (ways.clone(), options.returns);
            core.state().wish = Some(Wish { ways, way, lasting, returns });
            let lasting = options.lasting();
            let offer = Offer { lasting, ..Offer::only(Purpose::New) };
            private_data = offer.to_octets(ours).to_vec();
        }
        let ep = core.state().link.ep.clone();
        ep.start_connect(ConnectParams { private_data, ..peer.clone() })?;
        Ok(Self { core, patience: options.patience })
    }

    /// Begins to accept; a caller that is not a channel of this version is rejected, with an error. `door`: is kept open as
    /// long as the session can be resumed.
    pub(crate) fn admit(
        hub: &Arc<Hub>,
        request: Request,
        options: Options,
        door: Option<&Arc<Door>>,
    ) -> Result<Arc<ChannelEnd>> {
        let ours = options.greeting()?;
        let peer = match Greeting::from_octets(request.private_data()) {
            Ok(peer) => peer,
            Err(unfit) => {
                // The reject has our version; ignored: the caller may be gone.
                let _ = request.reject(&ours.to_octets());
                return Err(Error::Greeting(unfit));
            }
        };
        let Some(request) = sessions::route(request, &hub.ia, ours) else {
            // Another process of this address had the session.
            return Err(Error::Greeting(Unfit::Stranger));
        };
        let core = ChannelEnd::new(hub, &hub.ia, ours, Some(peer), options.resume.is_some())?;
        let mut reply = ours.to_octets().to_vec();
        if let (Some(lasting), Some(asked)) =
            (options.resume, Offer::from_octets(request.private_data()))
        {
            let role = Role::Accepts(door.cloned());
            reply = core.agree(role, lasting, &asked)?.to_octets(ours).to_vec();
        }
        let ep = core.state().link.ep.clone();
        request.start_accept(&ep, &reply)?;
        Ok(core)
    }

    /// Sends a message, waiting while the peer has not taken enough of the earlier ones. When this returns
    /// the message is posted; only [`Channel::close`] confirms that it has arrived. After an error, still
    /// receive: what has arrived, perhaps the peer's reason, is returned before the error is.
    pub fn send<'a>(&self, message: impl Into<Outgoing<'a>>) -> Result<()> {
        self.deliver(message.into())
    }

    /// [`Channel::send`], after the conversion of the message.
    fn deliver(&self, mut message: Outgoing<'_>) -> Result<()> {
        message.check(&self.core)?;
        self.wait(self.patience, |state| {
            let sent = self.core.offer(state, &mut message)?;
            Ok(sent.then_some(()))
        })
    }

    /// Sends a message if the peer takes it now. Errors: [`Error::Full`] if not.
    pub fn try_send(&self, message: &[u8]) -> Result<()> {
        self.core.hub.take_all();
        let mut message = message.into();
        let sent = self.core.offer(&mut self.core.state(), &mut message)?;
        if sent { Ok(()) } else { Err(Error::Full) }
    }

    /// Returns memory for a message of at most `len` octets, which is then sent without a copy; waits
    /// while all of it is in use.
    pub fn draft(&self, len: usize) -> Result<Draft> {
        self.wait(self.patience, |state| self.core.draft(state, len))
    }

    /// The next message, waiting for one; `None`: the peer has [finished](Channel::finish), and every
    /// message was taken. Until the message is dropped the peer may send one message less.
    pub fn recv(&self) -> Result<Option<Message>> {
        self.wait(self.patience, |state| self.core.take(state))
    }

    /// As [`Channel::recv`], with a time-out. Errors: [`Error::Timeout`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        self.wait(Some(timeout), |state| self.core.take(state))
    }

    /// Sends the end: no message of this end follows; those of the peer can still be received.
    pub fn finish(&self) -> Result<()> {
        self.wait(self.patience, |state| Ok(self.core.finish(state)?.then_some(())))
    }

    /// Finishes and waits until the peer has taken every message and finished, too. Messages that
    /// arrive meanwhile are discarded: call [`Channel::recv`] until `None` before, if they matter. Errors: the
    /// connection ended before, or the peer did not finish in time.
    pub fn close(self) -> Result<()> {
        self.finish()?;
        let patience = self.patience.unwrap_or(CLOSING);
        let until = Instant::now().checked_add(patience);
        loop {
            let seen = self.core.hub.round();
            // Not under the lock: a message takes it when it is dropped.
            while let Some(message) = self.unwanted()? {
                drop(message);
            }
            if ChannelEnd::is_settled(&self.core.state()) {
                break;
            }
            in_time(until, patience)?;
            self.core.hub.advance(seen, until)?;
        }
        away::wait_until_done(&self.core);
        Ok(())
    }

    /// Both ends of the connection.
    pub fn ends(&self) -> Option<Ends> {
        self.core.ends()
    }

    /// How the session has gone so far, if both ends agreed that it can be resumed.
    pub fn resumption(&self) -> Option<Resumption> {
        self.core.resumption()
    }

    /// Octets of the longest message that the peer accepts.
    pub fn longest(&self) -> u64 {
        self.core.state().session.as_ref().map_or(0, |session| session.longest())
    }

    /// Calls `step` after each round until it returns a value, and returns that.
    #[inline]
    pub(crate) fn wait<T>(
        &self,
        patience: Option<Duration>,
        mut step: impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Result<T> {
        let seen = self.core.hub.round();
        // The lock is held only for the step.
        let done = step(&mut self.core.state())?;
        match done {
            Some(done) => Ok(done),
            None => self.wait_since(seen, patience, step),
        }
    }

    /// [`Channel::wait`] after a `step` that began in round `seen` and returned none.
    #[cold]
    fn wait_since<T>(
        &self,
        mut seen: u64,
        patience: Option<Duration>,
        mut step: impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Result<T> {
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        loop {
            in_time(until, patience.unwrap_or_default())?;
            self.core.hub.advance(seen, until)?;
            seen = self.core.hub.round();
            if let Some(done) = step(&mut self.core.state())? {
                return Ok(done);
            }
        }
    }

    fn unwanted(&self) -> Result<Option<Message>> {
        self.core.unwanted(&mut self.core.state())
    }
}

/// The ways of a session.
pub(crate) fn ways_of<A: ToSocketAddrs + Debug>(
    ways: impl IntoIterator<Item = (Ia, A)>,
) -> Result<Arc<[Way]>> {
    let way = |(ia, peer)| Ok(Way::new(ia, connect_params(peer)?));
    ways.into_iter().map(way).collect()
}

/// The error of those of all ways.
pub(crate) fn no_way(mut causes: Vec<Error>) -> Error {
    match (causes.len(), causes.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            causes.extend(last);
            Error::NoWay(causes)
        }
    }
}

fn in_time(until: Option<Instant>, patience: Duration) -> Result<()> {
    match until {
        Some(until) if Instant::now() >= until => Err(Error::Timeout(patience)),
        _ => Ok(()),
    }
}

/// The result of the attempt to connect.
pub(crate) fn up(state: &State) -> Result<Option<()>> {
    match &state.over {
        Some(over) => Err(over.not_connected()),
        None => Ok((state.up && state.session.is_some()).then_some(())),
    }
}

impl Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel({:?})", self.core)
    }
}
