//! Listeners and their connection requests. Dropping a request that was neither accepted nor rejected rejects
//! it, so that its peer does not wait for the time-out.

use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ual::{
    AcceptParams, ConnRequest, Ends, Established, Event, Handoff, ListenInit, Policy, Serves,
    Stream,
};

use crate::context::context;
use crate::dispatcher::EvdBuilder;
use crate::ep::Ep;
use crate::error::{Refused, Result};
use crate::events::Events;
use crate::events::sealed::Kind;
use crate::ia::{Ia, addresses, copy};

/// Requests that may be queued; more are rejected.
const BACKLOG: u32 = 256;

/// Connection requests (CM request stream).
#[derive(Clone, Copy, Debug)]
pub enum Requests {}

impl Kind for Requests {
    type Item = Request;
    const STREAM: Stream = Stream::Request;
    fn pick(event: Event, _: &Arc<ual::Evd>) -> Option<Request> {
        match event {
            Event::Request(request) => Some(Request { request, answered: false }),
            _ => None,
        }
    }
}

/// For the requests of several listeners ([`crate::ListenBuilder::evd`]).
///
/// ```
/// # use std::time::Duration;
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// let calls = ia.request_evd(64)?;
/// let one = ia.listen_builder("127.0.0.1:0")?.evd(&calls).listen()?;
/// let two = ia.listen_builder("[::1]:0")?.evd(&calls).listen()?;
/// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
/// # let ep = pz.ep(&evd).build()?;
/// # ep.start_connect(itapi::ConnectParams::new(two.address()))?;
/// if let Some(request) = calls.wait(Duration::from_secs(20))? {
///     assert_eq!(request.details().port, two.address().port());
///     request.reject(b"")?;
/// }
/// # drop(one);
/// # Ok(())
/// # }
/// ```
pub type RequestEvd = Events<Requests>;

impl RequestEvd {
    /// A builder with thresholds and other settings; at least `depth` events fit.
    pub fn builder(ia: &Ia, depth: u32) -> EvdBuilder<'_, Self> {
        EvdBuilder::new(ia, depth)
    }
}

/// Listener (IT-API `it_listen_create`). Clones share it. Dropping the last one stops listening and rejects the
/// requests that are still queued, unless they go to a dispatcher of several listeners.
///
/// ```
/// # use std::time::Duration;
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// let listen = ia.listen("[::1]:0")?; // port 0: a free one
/// println!("listening at {}", listen.address());
/// while let Some(request) = listen.wait(Duration::from_millis(1))? {
///     request.reject(b"closed today")?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Listen(Arc<ListenInner>);

context!(Listen, listen => listen.0.listen.tag());

struct ListenInner {
    listen: Arc<ual::Listen>,
    evd: RequestEvd,
    /// The dispatcher is for this listener alone.
    alone: bool,
}

impl Drop for ListenInner {
    fn drop(&mut self) {
        // Refused only if it is closed already.
        let _ = self.listen.close();
        if self.alone {
            // Dropping a request rejects it.
            while let Ok(Some(_)) = self.evd.poll() {}
        }
    }
}

/// Makes a [`Listen`].
pub struct ListenBuilder<'a> {
    ia: &'a Ia,
    addresses: Vec<SocketAddr>,
    policy: Option<Policy>,
    backlog: u32,
    evd: Option<RequestEvd>,
    suppress_ird_ord: bool,
}

impl<'a> ListenBuilder<'a> {
    fn new(ia: &'a Ia, addresses: Vec<SocketAddr>) -> Self {
        let (policy, evd) = (None, None);
        Self { ia, addresses, policy, backlog: BACKLOG, evd, suppress_ird_ord: false }
    }

    /// Policy for its connections instead of the adapter's.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Requests that may be queued; more are rejected.
    pub fn backlog(mut self, requests: u32) -> Self {
        self.backlog = requests;
        self
    }

    /// Queues requests here, together with those of other listeners.
    pub fn evd(mut self, evd: &RequestEvd) -> Self {
        self.evd = Some(evd.clone());
        self
    }

    /// Leaves IRD and ORD out of the start-up: the applications agree on them by other means.
    pub fn suppress_ird_ord(mut self) -> Self {
        self.suppress_ird_ord = true;
        self
    }

    /// Listens.
    pub fn listen(self) -> Result<Listen> {
        let alone = self.evd.is_none();
        let evd = match self.evd {
            Some(shared) => shared,
            None => RequestEvd::builder(self.ia, self.backlog).build()?,
        };
        let init = ListenInit {
            addresses: self.addresses,
            evd: evd.ual().clone(),
            policy: self.policy,
            suppress_ird_ord: self.suppress_ird_ord,
            serves: Serves::Connections,
        };
        let listen = self.ia.ual().listen(init)?;
        Ok(Listen(Arc::new(ListenInner { listen, evd, alone })))
    }
}

impl Ia {
    /// Creates an event dispatcher for the requests of several listeners; requests that do not fit are
    /// rejected.
    pub fn request_evd(&self, depth: u32) -> Result<RequestEvd> {
        RequestEvd::builder(self, depth).build()
    }

    /// Listens at an address; port 0 takes a free one.
    pub fn listen(&self, address: impl ToSocketAddrs + Debug) -> Result<Listen> {
        self.listen_builder(address)?.listen()
    }

    /// A builder of a listener at an address.
    pub fn listen_builder(&self, address: impl ToSocketAddrs + Debug) -> Result<ListenBuilder<'_>> {
        Ok(ListenBuilder::new(self, addresses(address)?))
    }
}

impl Listen {
    /// The first address, with the port that was assigned.
    pub fn address(&self) -> SocketAddr {
        // A listener has at least one address.
        self.addresses()[0]
    }

    /// The address at which it listens, with the port that was assigned (`it_listen_query`).
    pub fn addresses(&self) -> &[SocketAddr] {
        self.0.listen.addresses()
    }

    /// The dispatcher of its requests.
    pub fn evd(&self) -> &RequestEvd {
        &self.0.evd
    }

    /// Waits for a request and returns the oldest; `None` after the time-out.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Request>> {
        self.0.evd.wait(timeout)
    }

    /// Waits for a request without a time-out and returns the oldest. Signal handlers do not end the wait.
    pub fn request(&self) -> Result<Request> {
        loop {
            if let Some(request) = self.wait(Duration::MAX)? {
                return Ok(request);
            }
        }
    }
}

/// A peer's request to connect.
///
/// ```
/// # use itapi::{Ep, Ia, Listen, Result};
/// fn serve(listen: &Listen, ep: &Ep) -> Result<()> {
///     let request = listen.request()?;
///     if request.private_data() == b"let me in" {
///         request.accept(ep, b"welcome")?;
///     } else {
///         request.reject(b"who are you?")?;
///     }
///     Ok(())
/// }
/// # fn main() -> Result<()> {
/// # let ia = Ia::open()?;
/// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
/// # let (ep, peer) = (pz.ep(&evd).build()?, pz.ep(&evd).build()?);
/// # let listen = ia.listen("127.0.0.1:0")?;
/// # std::thread::scope(|scope| {
/// #     let server = scope.spawn(|| serve(&listen, &peer));
/// #     assert_eq!(ep.connect(listen.address(), b"let me in")?.private_data, b"welcome");
/// #     server.join().expect("no panic")
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Request {
    request: Box<ConnRequest>,
    answered: bool,
}

impl Request {
    /// The peer's private data.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Both ends.
    pub fn ends(&self) -> &Ends {
        &self.request.ends
    }

    /// All that is known of the request.
    pub fn details(&self) -> &ConnRequest {
        &self.request
    }

    /// Accepts onto an endpoint and waits for the outcome; the policy bounds the wait.
    pub fn accept(self, ep: &Ep, private_data: &[u8]) -> Result<Established> {
        self.start_accept(ep, private_data)?;
        ep.wait_established()
    }

    /// Accepts (`it_ep_accept`); a connection event reports the outcome.
    ///
    /// # Errors
    /// Among others, the peer has left already: then no event follows, and the endpoint can be dropped or used again. A server
    /// that keeps endpoints until their events must not keep this one. A peer that leaves later is reported as
    /// [`ConnEvent::Failed`](crate::ConnEvent::Failed), and not as a disconnect, if it was never connected.
    pub fn start_accept(self, ep: &Ep, private_data: &[u8]) -> Result<()> {
        let private_data = copy(private_data)?;
        self.start_accept_with(ep, AcceptParams { private_data, ..Default::default() })
    }

    /// Accepts with `params`; a connection event reports the outcome.
    pub fn start_accept_with(mut self, ep: &Ep, params: AcceptParams) -> Result<()> {
        ep.ual().accept(self.request.request, params)?;
        self.answered = true;
        Ok(())
    }

    /// Rejects, with private data for the peer (`it_reject`).
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        self.answered = true;
        Ok(ual::cm::reject(self.request.request, private_data)?)
    }

    /// Gives it to the listener of another port, of this adapter or another of this process (`it_handoff`). If
    /// this fails, the error returns the request, which can still be accepted or rejected.
    pub fn handoff(mut self, to: Handoff) -> std::result::Result<(), Box<Refused<Self>>> {
        match ual::cm::handoff(self.request.request, to) {
            Ok(()) => {
                self.answered = true;
                Ok(())
            }
            Err(error) => Err(Refused::new(error.into(), self)),
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.answered {
            // A peer that gave up in the meantime needs no reply.
            let _ = ual::cm::reject(self.request.request, &[]);
        }
    }
}

impl Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.listen)
    }
}
