//! Service resolution: how a peer finds an endpoint for datagrams (SIDR). Dropping a request without a reply
//! rejects it, so that its peer does not wait for the time-out. The access layer owns open requests; any
//! thread.

use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ual::{
    Ends, EvdInit, Event, ListenInit, RequestId, Serves, ServiceReply, ServiceRequest, Stream,
    UdServiceInit,
};
use vp_api::{ServiceRefusal, UdAddress};

use crate::context::context;
use crate::dispatcher::next;
use crate::error::Result;
use crate::ia::{Ia, addresses, copy};

/// Requests that may be queued; more are refused.
const BACKLOG: u32 = 256;
/// Replies that are expected at once; a dispatcher of them holds as many as come.
const REPLIES: u32 = 4;

/// Listener for requests to resolve a service to an endpoint for datagrams (IT-API `it_listen_create`);
/// [`crate::Ia::listen_datagrams`] makes one. Clones share it. Dropping the last one stops listening.
///
/// ```
/// # use itapi::{Ia, ServiceRefusal, UdEp};
/// fn serve(ia: &Ia, ep: &UdEp) -> itapi::Result<()> {
///     let listen = ia.listen_datagrams("192.0.2.7:7174")?;
///     loop {
///         let request = listen.request()?;
///         if request.private_data() == b"weather" {
///             request.accept(ep.address(), b"every minute")?;
///         } else {
///             request.reject(ServiceRefusal::NotSupported, b"")?;
///         }
///     }
/// }
/// # let _ = serve;
/// # fn main() -> itapi::Result<()> {
/// # let ia = Ia::open()?;
/// match ia.listen_datagrams("127.0.0.1:0") {
///     Ok(listen) => println!("listening at {}", listen.address()),
///     Err(refused) => println!("{refused}"), // iWARP: there are no datagrams
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct UdListen(Arc<Listening>);

context!(UdListen, listen => listen.0.listen.tag());

struct Listening {
    listen: Arc<ual::Listen>,
    evd: Arc<ual::Evd>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Refused only if it is closed already.
        let _ = self.listen.close();
        // Dropping a request rejects it.
        while let Ok(Some(event)) = self.evd.dequeue() {
            drop(request(event));
        }
    }
}

fn request(event: Event) -> Option<UdRequest> {
    match event {
        Event::ServiceRequest(request) => Some(UdRequest { request, answered: false }),
        _ => None,
    }
}

impl Ia {
    /// Listens for requests to resolve a service; port 0 takes a free one.
    pub fn listen_datagrams(&self, address: impl ToSocketAddrs + Debug) -> Result<UdListen> {
        UdListen::new(self, addresses(address)?)
    }

    /// Describes a service that resolves to an endpoint for datagrams.
    pub fn ud_service(
        &self,
        peer: impl ToSocketAddrs + Debug,
        private_data: &[u8],
    ) -> Result<UdService> {
        // At least one.
        UdService::new(self, addresses(peer)?[0], private_data)
    }
}

impl UdListen {
    fn new(ia: &Ia, addresses: Vec<SocketAddr>) -> Result<Self> {
        let evd = ia.ual().create_evd(EvdInit::new(Stream::Request, BACKLOG))?;
        let init = ListenInit {
            addresses,
            evd: evd.clone(),
            policy: None,
            suppress_ird_ord: false,
            serves: Serves::Datagrams,
        };
        Ok(Self(Arc::new(Listening { listen: ia.ual().listen(init)?, evd })))
    }

    /// The first address, with the port that was assigned.
    pub fn address(&self) -> SocketAddr {
        // A listener has at least one address.
        self.0.listen.addresses()[0]
    }

    /// Waits for a request and returns the oldest; `None` after the time-out.
    pub fn wait(&self, timeout: Duration) -> Result<Option<UdRequest>> {
        next(&self.0.evd, Some(timeout), |event, _| request(event))
    }

    /// Waits for a request without a time-out and returns the oldest. Signal handlers do not end the wait.
    pub fn request(&self) -> Result<UdRequest> {
        loop {
            if let Some(request) = self.wait(Duration::MAX)? {
                return Ok(request);
            }
        }
    }
}

/// A peer's request for an endpoint for datagrams; see [`UdListen`].
#[derive(Debug)]
pub struct UdRequest {
    request: Box<ServiceRequest>,
    answered: bool,
}

impl UdRequest {
    /// The peer's private data.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Both ends.
    pub fn ends(&self) -> &Ends {
        &self.request.ends
    }

    /// All that is known of the request.
    pub fn details(&self) -> &ServiceRequest {
        &self.request
    }

    /// Replies with an endpoint, of this adapter or another one (`it_ud_service_reply`).
    pub fn accept(mut self, endpoint: UdAddress, private_data: &[u8]) -> Result<()> {
        self.reply(Ok(endpoint), private_data)
    }

    /// Refuses, with the reason and private data for the peer (`it_ud_service_reply`).
    pub fn reject(mut self, why: ServiceRefusal, private_data: &[u8]) -> Result<()> {
        self.reply(Err(why), private_data)
    }

    fn reply(
        &mut self,
        answer: std::result::Result<UdAddress, ServiceRefusal>,
        private_data: &[u8],
    ) -> Result<()> {
        ual::cm::reply(self.id(), answer, private_data)?;
        self.answered = true;
        Ok(())
    }

    fn id(&self) -> RequestId {
        self.request.request
    }
}

impl Drop for UdRequest {
    fn drop(&mut self) {
        if !self.answered {
            // A request that has timed out needs no reply.
            let _ = ual::cm::reply(self.id(), Err(ServiceRefusal::Rejected), &[]);
        }
    }
}

/// A service to ask for an endpoint (IT-API `it_ud_service_request_handle_create`); [`crate::Ia::ud_service`]
/// makes one. Clones share it. Dropping the last one gives open requests up.
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{Ia, ServiceReply};
/// # fn main() -> itapi::Result<()> {
/// # let ia = Ia::open()?;
/// let service = match ia.ud_service("127.0.0.1:7174", b"weather") {
///     Ok(service) => service,
///     Err(refused) => {
///         println!("{refused}"); // iWARP: there are no datagrams
///         return Ok(());
///     }
/// };
/// service.request()?;
/// match service.wait(Duration::from_secs(60))? {
///     Some(ServiceReply::Resolved { address, .. }) => println!("endpoint {}", address.qpn),
///     Some(refused) => println!("{refused}"),
///     None => println!("no answer yet"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct UdService(Arc<Asking>);

context!(UdService, service => service.0.service.tag());

struct Asking {
    service: Arc<ual::UdService>,
    evd: Arc<ual::Evd>,
}

impl UdService {
    fn new(ia: &Ia, peer: SocketAddr, private_data: &[u8]) -> Result<Self> {
        let evd = ia.ual().create_evd(EvdInit::new(Stream::Connection, REPLIES))?;
        let private_data = copy(private_data)?;
        let init = UdServiceInit { peer, evd: evd.clone(), private_data };
        let service = ia.ual().create_ud_service(init)?;
        Ok(Self(Arc::new(Asking { service, evd })))
    }

    /// The service's address (`it_ud_service_request_handle_query`).
    pub fn peer(&self) -> SocketAddr {
        self.0.service.init().peer
    }

    /// Sends the request (`it_ud_service_request`); one reply follows, which [`UdService::wait`] returns.
    pub fn request(&self) -> Result<()> {
        Ok(self.0.service.request()?)
    }

    /// Waits for a reply and returns the oldest; `None` after the time-out. If the service does not reply, the
    /// provider gives up after its own time-out and returns a reply that reports it.
    pub fn wait(&self, timeout: Duration) -> Result<Option<ServiceReply>> {
        next(&self.0.evd, Some(timeout), |event, _| match event {
            Event::ServiceReply { reply, .. } => Some(*reply),
            _ => None,
        })
    }
}

impl Debug for UdListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.listen)
    }
}

impl Debug for UdService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.service)
    }
}
