//! Many clients in one thread: one dispatcher, one call that returns the next event.
//!
//! Owner: the server has the clients, until they are gone; [`Peer`]s that the application keeps name them.
//! Any number of threads may wait for the next event; each event goes to one of them. No client can delay
//! another: nothing here waits for one, and each has its own credits. When one dies it is an event.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use itapi::{Ends, EpId, Ia, Listen, Request};

use crate::channel::Channel;
use crate::core::{ChannelEnd, completions};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::message::{Draft, Message, Outgoing};
use crate::options::Options;
use crate::resume::Resumption;
use crate::sessions;

/// An event of a [`Server`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client has connected.
    Connected(Peer),
    /// A client's next message.
    Message(Peer, Message),
    /// A client has finished, or has ended with an error that gives the cause. It is freed with the last [`Peer`].
    Gone(Peer, Result<()>),
}

/// Serves any number of clients.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use warpline_channel::{Channel, Event, Server};
///
/// # let ia = itapi::Ia::open()?;
/// let server = Server::bind(&ia, "127.0.0.1:0")?;
/// let address = server.address();
/// let client = std::thread::spawn(move || {
///     let channel = Channel::connect(&ia, address)?;
///     channel.send(b"hello")?;
///     assert_eq!(channel.recv()?.as_deref(), Some(&b"HELLO"[..]));
///     channel.close()
/// });
/// loop {
///     match server.next()? {
///         Event::Message(peer, message) => peer.send(message.to_ascii_uppercase())?,
///         Event::Gone(_, how) => break how?,
///         _ => {}
///     }
/// }
/// client.join().expect("no panic")?;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    hub: Arc<Hub>,
    listen: Listen,
    clients: Arc<Clients>,
}

/// Connected clients, and those that connect.
#[derive(Default)]
struct Clients {
    present: Mutex<BTreeMap<EpId, Arc<ChannelEnd>>>,
    /// Clients whose sessions can be resumed, and that are gone: until they have everything.
    leaving: Mutex<Vec<Arc<ChannelEnd>>>,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<EpId, Arc<ChannelEnd>>> {
        // Nothing panics while it is held.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Vec<Arc<ChannelEnd>>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends those that the application has dropped, and forgets those that have everything.
    fn sweep(&self) {
        let done: Vec<_> = self.leaving().extract_if(.., |core| core.has_left()).collect();
        // Not under the lock: it waits for none, but takes others.
        drop(done);
    }
}

/// One client of a [`Server`]. Clones name the same; the last one that is dropped after
/// [`Event::Gone`] ends the connection.
#[derive(Clone, Debug)]
pub struct Peer(Arc<ChannelEnd>);

impl Drop for Peer {
    fn drop(&mut self) {
        // The list has it, too.
        self.0.dropped(2);
    }
}

impl Server {
    /// Clients beyond these are rejected, unless [`Server::bind_with`] sets another number.
    pub const CLIENTS: usize = 1024;

    /// Listens at an address; port 0: any free port.
    pub fn bind(ia: &Ia, address: impl ToSocketAddrs + Debug) -> Result<Self> {
        Self::bind_with(ia, address, Options::default(), Self::CLIENTS)
    }

    /// Listens for at most this many clients, each with the given limits.
    pub fn bind_with(
        ia: &Ia,
        address: impl ToSocketAddrs + Debug,
        options: Options,
        most: usize,
    ) -> Result<Self> {
        options.greeting()?;
        let clients = u32::try_from(most).unwrap_or(u32::MAX);
        let hub = Hub::new(ia, true, completions(&options)?.saturating_mul(clients))?;
        let (listen, clients) = (ia.listen(address)?, Arc::default());
        let server = Self { hub, listen, clients };
        let (hub, clients) = (Arc::downgrade(&server.hub), Arc::downgrade(&server.clients));
        server.listen.evd().on_event(move |requests| {
            while let Ok(Some(request)) = requests.poll() {
                let (Some(hub), Some(clients)) = (hub.upgrade(), clients.upgrade()) else { return };
                // A client that is not admitted was rejected.
                let _ = admit(&hub, &clients, request, options, most);
            }
        })?;
        Ok(server)
    }

    /// The address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.listen.address()
    }

    /// Waits for the next event.
    pub fn next(&self) -> Result<Event> {
        loop {
            if let Some(event) = self.next_timeout(Duration::from_secs(3600))? {
                return Ok(event);
            }
        }
    }

    /// Waits for the next event; `None`: there was none within that time.
    pub fn next_timeout(&self, timeout: Duration) -> Result<Option<Event>> {
        let mut until = None;
        loop {
            let seen = self.hub.round();
            while let Some(core) = self.hub.next_listed() {
                if let Some(event) = self.event(core) {
                    return Ok(Some(event));
                }
            }
            self.clients.sweep();
            let until = *until.get_or_insert_with(|| Instant::now().checked_add(timeout));
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
            self.hub.advance(seen, until)?;
        }
    }

    /// The oldest event of a client.
    fn event(&self, core: Arc<ChannelEnd>) -> Option<Event> {
        let mut state = core.state();
        state.listed = false;
        // What a client sent may come before the event that it is connected.
        let connected = state.up || state.has_message() || state.is_at_end();
        if connected && !state.reported {
            state.reported = true;
            self.hub.list(&core, &mut state);
            drop(state);
            return Some(Event::Connected(Peer(core)));
        }
        let taken = core.take(&mut state);
        let (reported, more) = (state.reported, matches!(taken, Ok(Some(Some(_)))));
        if more {
            self.hub.list(&core, &mut state);
        }
        if matches!(taken, Err(_) | Ok(Some(None))) {
            // One that ended before it was reported is not reported as connected later.
            state.reported = true;
        }
        drop(state);
        match taken {
            Ok(Some(Some(message))) => Some(Event::Message(Peer(core), message)),
            Ok(Some(None)) => self.gone(core, reported, Ok(())),
            Err(error) => self.gone(core, reported, Err(error)),
            Ok(None) => None,
        }
    }

    /// Reports once the end of a client that was reported before.
    fn gone(&self, core: Arc<ChannelEnd>, reported: bool, how: Result<()>) -> Option<Event> {
        let known = self.clients.lock().remove(&core.id());
        if known.is_some() && how.is_ok() && core.resumption().is_some() {
            core.begin_to_leave();
            self.clients.leaving().push(core.clone());
        }
        (known.is_some() && reported).then(|| Event::Gone(Peer(core), how))
    }
}

fn admit(
    hub: &Arc<Hub>,
    clients: &Clients,
    request: Request,
    options: Options,
    most: usize,
) -> Result<()> {
    let Some(request) = sessions::route(request, &hub.ia, options.greeting()?) else {
        return Ok(());
    };
    clients.sweep();
    if clients.lock().len() + clients.leaving().len() >= most {
        return Ok(request.reject(b"")?);
    }
    let core = Channel::admit(hub, request, options, None)?;
    clients.lock().insert(core.id(), core);
    Ok(())
}

impl Peer {
    /// Sends a message if the client accepts it now. Errors: [`Error::Full`], the message is dropped; the
    /// client has not received enough of the earlier ones.
    pub fn send<'a>(&self, message: impl Into<Outgoing<'a>>) -> Result<()> {
        let mut message = message.into();
        message.check(&self.0)?;
        let sent = self.0.offer(&mut self.0.state(), &mut message)?;
        if sent { Ok(()) } else { Err(Error::Full) }
    }

    /// Returns memory for a message of at most `len` octets, which is then sent without a copy. Errors:
    /// [`Error::Full`], all of it is in use.
    pub fn draft(&self, len: usize) -> Result<Draft> {
        let draft = self.0.draft(&mut self.0.state(), len)?;
        draft.ok_or(Error::Full)
    }

    /// Announces that no message follows.
    pub fn finish(&self) -> Result<()> {
        let sent = self.0.finish(&mut self.0.state())?;
        if sent { Ok(()) } else { Err(Error::Full) }
    }

    /// Its id, unique as long as it exists.
    pub fn id(&self) -> EpId {
        self.0.id()
    }

    /// How the session has gone so far, if both ends agreed that it can be resumed.
    pub fn resumption(&self) -> Option<Resumption> {
        self.0.resumption()
    }

    /// Both ends of the connection.
    pub fn ends(&self) -> Option<Ends> {
        self.0.ends()
    }
}

impl Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.address())
    }
}
