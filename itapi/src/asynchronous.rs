//! Feature `tokio`: dispatchers as streams, connecting and accepting as futures.
//!
//! A stream watches the dispatcher's descriptor and takes events when it is polled; the provider's own thread
//! makes progress meanwhile. All of it runs in tasks of a tokio runtime.
//!
//! Cancellation. A stream, and the future of [`Arrivals::next`], hold no event: an event that they have not
//! returned is still in the dispatcher. A dropped future of [`Ep::connect_async`], [`Ep::convert_async`] or
//! [`Request::accept_async`] gives up the attempt, and resets a connection that was established in the same
//! moment: the peer gets an event, and [`Ep::ended_async`] returns one here. [`Ep::reset`] then makes the
//! endpoint usable again.

use std::future::poll_fn;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use ual::{AcceptParams, ConnEvent, ConnectParams, ConvertParams, Disconnect, Established};

use crate::completion::Completion;
use crate::dispatcher::Make;
use crate::ep::{Ep, established};
use crate::error::{Error, Refused, Result};
use crate::evd::Evd;
use crate::events::{ConnEvd, Events, sealed::Kind};
use crate::listen::{Listen, Request};
use crate::tuning::EVENT_BUDGET;

mod sealed {
    use std::os::fd::BorrowedFd;

    /// Where a stream takes its events from.
    pub trait Source: Unpin {
        type Item;
        fn take(&self) -> crate::Result<Option<Self::Item>>;
        fn descriptor(&self) -> crate::Result<BorrowedFd<'_>>;
    }
}
use sealed::Source;

impl Source for Evd {
    type Item = Completion;
    fn take(&self) -> Result<Option<Completion>> {
        self.poll()
    }
    fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.fd()
    }
}

impl<K: Kind> Source for Events<K> {
    type Item = K::Item;
    fn take(&self) -> Result<Option<K::Item>> {
        self.poll()
    }
    fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.fd()
    }
}

/// The events of a dispatcher as a [`Stream`], which never ends. Made by [`Evd::stream`] and
/// [`Events::stream`]; several streams of one dispatcher share its events.
///
/// ```
/// # use itapi::{Completion, Evd, Ia, Result};
/// # fn main() -> Result<()> {
/// # let ia = Ia::open()?;
/// async fn sum_of_octets(evd: &Evd, messages: usize) -> Result<u64> {
///     let (mut completions, mut sum) = (evd.stream()?, 0);
///     for _ in 0..messages {
///         sum += u64::from(completions.next().await?.octets);
///     }
///     Ok(sum)
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
/// # assert_eq!(runtime.block_on(sum_of_octets(&ia.evd(16)?, 0))?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Arrivals<S> {
    source: S,
    /// A descriptor of its own, so that several may watch one dispatcher.
    fd: AsyncFd<OwnedFd>,
    /// Events returned since other tasks last ran.
    returned: u8,
}

impl<S: Source> Arrivals<S> {
    fn new(source: S) -> Result<Self> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::Argument(
                "a stream of events works only inside a tokio runtime".into(),
            ));
        }
        let fd = source.descriptor()?.try_clone_to_owned().map_err(watch)?;
        // Its replacement is `unsafe`, for types that may close their descriptor; this one owns it.
        #[allow(deprecated)]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE).map_err(watch)?;
        Ok(Self { source, fd, returned: 0 })
    }

    /// The next event. Dropping the future loses none.
    pub async fn next(&mut self) -> Result<S::Item> {
        poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<S::Item>> {
        if self.returned >= EVENT_BUDGET {
            self.returned = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if let Some(event) = self.source.take().transpose() {
                self.returned += 1;
                return Poll::Ready(event);
            }
            self.returned = 0;
            // The descriptor becomes readable after the queue was found empty, or not at all: an
            // old readiness is cleared, and the queue looked at once more.
            let mut readiness = ready!(self.fd.poll_read_ready(context)).map_err(watch)?;
            readiness.clear_ready();
        }
    }
}

fn watch(source: std::io::Error) -> Error {
    Error::Watch(source)
}

impl<S: Source> Stream for Arrivals<S> {
    type Item = Result<S::Item>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_event(context).map(Some)
    }
}

impl Evd {
    /// Its completions as a stream. With a threshold, the stream wakes when the dispatcher notifies. Errors:
    /// called outside a tokio runtime.
    ///
    /// # Panics
    ///
    /// In a runtime without IO (`enable_io`).
    pub fn stream(&self) -> Result<Arrivals<Self>> {
        Arrivals::new(self.clone())
    }
}

impl<K: Kind> Events<K> {
    /// Its events as a stream. Errors and panics as [`Evd::stream`].
    pub fn stream(&self) -> Result<Arrivals<Self>> {
        Arrivals::new(self.clone())
    }
}

impl Listen {
    /// Waits for a request and returns the oldest. Dropping the future loses none.
    pub async fn request_async(&self) -> Result<Request> {
        self.evd().stream()?.next().await
    }
}

impl Request {
    /// Accepts onto an endpoint; the future is done when the endpoint is connected or the attempt has failed.
    /// Dropping the future rejects the request if it was never polled, and otherwise ends the connection.
    pub async fn accept_async(self, ep: &Ep, params: AcceptParams) -> Result<Established> {
        let mut events = ep.arrivals()?;
        self.start_accept_with(ep, params)?;
        ep.outcome(&mut events).await
    }
}

impl Ep {
    /// Connects; the future is done when the endpoint is connected or the attempt has failed. Dropping the
    /// future gives up.
    ///
    /// ```
    /// # use itapi::{AcceptParams, ConnectParams, Ep, Ia, Listen, Result};
    /// # async fn both(listen: Listen, server: Ep, client: Ep) -> Result<()> {
    /// let (address, ep) = (listen.address(), server.clone());
    /// let accepted = tokio::spawn(async move {
    ///     let request = listen.request_async().await?;
    ///     request.accept_async(&ep, AcceptParams::default()).await
    /// });
    /// let connected = client.connect_async(ConnectParams::new(address)).await?;
    /// # let accepted = accepted.await.expect("no panic")?;
    /// # assert_eq!(connected.ord, accepted.ird);
    /// # Ok(())
    /// # }
    /// # fn main() -> Result<()> {
    /// # let ia = Ia::open()?;
    /// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
    /// # let (one, two) = (pz.ep(&evd).build()?, pz.ep(&evd).build()?);
    /// # let listen = ia.listen("127.0.0.1:0")?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    /// # runtime.block_on(both(listen, one, two))
    /// # }
    /// ```
    pub async fn connect_async(&self, params: ConnectParams) -> Result<Established> {
        let mut events = self.arrivals()?;
        self.start_connect(params)?;
        self.outcome(&mut events).await
    }

    /// Converts a socket, see [`Ep::convert`]. Dropping the future gives up and closes the socket.
    pub async fn convert_async(
        &self,
        socket: TcpStream,
        params: ConvertParams,
    ) -> std::result::Result<Established, Box<Refused<Option<TcpStream>>>> {
        let mut events = match self.arrivals() {
            Ok(events) => events,
            Err(error) => return Err(Refused::new(error, Some(socket))),
        };
        if let Err(refused) = self.start_convert(socket, params) {
            return Err(Refused::new(refused.error, Some(refused.given)));
        }
        self.outcome(&mut events).await.map_err(|error| Refused::new(error, None))
    }

    /// Waits for the connection's end and returns how it ended. Later calls return the same. Dropping the
    /// future changes nothing.
    pub async fn ended_async(&self) -> Result<ConnEvent> {
        if let Some(end) = self.known_end() {
            return Ok(end);
        }
        let mut events = self.arrivals()?;
        loop {
            let (_, event) = events.next().await?;
            self.record_end(&event);
            if !matches!(event, ConnEvent::Established(_)) {
                return Ok(event);
            }
        }
    }

    /// Ends the connection in an orderly way and waits until it is over; the policy's close time-out bounds the
    /// wait. The connection also ends if the future is dropped.
    pub async fn disconnect_async(&self) -> Result<()> {
        self.start_disconnect(Disconnect::Graceful)?;
        self.ended_async().await?;
        Ok(())
    }

    /// Its own connection events.
    fn arrivals(&self) -> Result<Arrivals<ConnEvd>> {
        Arrivals::new(ConnEvd::make(self.own_events()?.clone()))
    }

    /// Waits for the outcome of an attempt. Dropping the future gives the attempt up.
    async fn outcome(&self, events: &mut Arrivals<ConnEvd>) -> Result<Established> {
        let mut attempt = Attempt { ep: self, over: false };
        let (_, event) = events.next().await?;
        attempt.over = true;
        self.record_end(&event);
        established(event)
    }
}

/// An attempt to get a connection.
struct Attempt<'a> {
    ep: &'a Ep,
    over: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.over {
            // It may have ended by itself in this moment.
            let _ = self.ep.start_disconnect(Disconnect::Abrupt);
        }
    }
}
