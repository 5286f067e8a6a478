//! Event dispatchers for everything but completions. The access layer owns the queues. Any number of threads
//! may take events; each goes to one of them.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ual::{BrokenCause, ConnEvent, ConnectionEnd, Ends, Event, Stream};
use vp_api::AsyncEvent;

use crate::dispatcher::{Aggregate, Dispatcher, EvdBuilder, Make, next};
use crate::error::Result;
use crate::ia::Ia;
use crate::ids::{EpId, EvdId, SrqId};

/// Connection events that are expected at once; a dispatcher of them holds as many as come.
const CONNECTION_DEPTH: u32 = 64;

pub(crate) mod sealed {
    use std::sync::Arc;

    /// A stream of events, and what its dispatcher returns.
    pub trait Kind: 'static {
        type Item;
        const STREAM: ual::Stream;
        /// `origin`: the dispatcher that the event came to.
        fn pick(event: ual::Event, origin: &Arc<ual::Evd>) -> Option<Self::Item>;
    }
}
use sealed::Kind;

/// Object of an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum AsyncSource {
    /// An endpoint.
    Ep(EpId),
    /// A dispatcher, which had no room and lost events.
    Evd(EvdId),
    /// A shared receive queue.
    Srq(SrqId),
}

/// An asynchronous event of an object. Its text names the peer and the cause, as that of a connection event
/// does.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObjectEvent {
    /// The object.
    pub source: AsyncSource,
    /// What happened.
    pub event: AsyncEvent,
    /// Both ends of an endpoint's connection, if it had one and is open.
    pub ends: Option<Box<Ends>>,
}

impl fmt::Display for ObjectEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, event, ends } = self;
        match source {
            AsyncSource::Ep(id) => write!(f, "endpoint {}", id.0)?,
            AsyncSource::Evd(id) => write!(f, "event dispatcher {}", id.0)?,
            AsyncSource::Srq(id) => write!(f, "shared receive queue {}", id.0)?,
        }
        match (ends, BrokenCause::of(*event)) {
            (Some(ends), Some(cause)) => {
                write!(f, ": {}", ConnectionEnd::Broken { ends: Ends::clone(ends), cause })
            }
            (Some(ends), None) => write!(f, ", connected {ends}: {event}"),
            (None, _) => write!(f, ": {event}"),
        }
    }
}

impl AsyncSource {
    /// `None`: a dispatcher that is gone.
    fn of(source: ual::AsyncSource, ia: &ual::Ia) -> Option<Self> {
        Some(match source {
            ual::AsyncSource::Ep(qp) => Self::Ep(EpId(qp.0)),
            ual::AsyncSource::Evd(cq) => Self::Evd(EvdId::of(&*ia.evd(cq)?)),
            ual::AsyncSource::Queue(tag) => Self::Evd(EvdId(tag)),
            ual::AsyncSource::Srq(srq) => Self::Srq(SrqId(srq.0)),
        })
    }
}

/// Declares the kinds.
macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $kind:ident $stream:ident -> $item:ty { ($pattern:pat, $ia:pat) => $value:expr }
    )+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $kind {}

        impl Kind for $kind {
            type Item = $item;
            const STREAM: Stream = Stream::$stream;
            fn pick(event: Event, origin: &Arc<ual::Evd>) -> Option<$item> {
                match (event, &**origin.ia()) {
                    ($pattern, $ia) => $value,
                    _ => None,
                }
            }
        }
    )+};
}

kinds! {
    /// Connection events (CM message stream).
    Connections Connection -> (EpId, ConnEvent) {
        (Event::Connection { qp, event, .. }, _) => Some((EpId(qp.0), *event))
    }
    /// Asynchronous events of endpoints, dispatchers and shared receive queues (affiliated stream).
    Objects Affiliated -> ObjectEvent {
        (Event::Affiliated { source, event }, ia) => {
            let ends = match source {
                ual::AsyncSource::Ep(qp) => ia.ep(qp).and_then(|ep| ep.ends()).map(Box::new),
                _ => None,
            };
            AsyncSource::of(source, ia).map(|source| ObjectEvent { source, event, ends })
        }
    }
    /// Asynchronous events of the device and its ports (unaffiliated stream), with the port if one is
    /// concerned.
    Ports Unaffiliated -> (Option<u32>, AsyncEvent) {
        (Event::Unaffiliated { port, event }, _) => Some((port, event))
    }
    /// Numbers that the application posts itself (software stream).
    Software Software -> u64 {
        (Event::Software(number), _) => Some(number)
    }
    /// Which dispatcher has events (AEVD notification stream).
    Notifications Aggregate -> EvdId {
        (Event::Notification { evd }, _) => Some(EvdId::of(&evd))
    }
}

/// Event dispatcher for one kind of events; see [`ConnEvd`], [`crate::RequestEvd`], [`AsyncEvd`], [`PortEvd`],
/// [`SoftwareEvd`] and [`Aevd`]. Clones share it. The calls that all dispatchers have are in [`Dispatcher`].
pub struct Events<K> {
    evd: Dispatcher,
    kind: PhantomData<fn() -> K>,
}

/// For the connection events of many endpoints ([`crate::EpBuilder::conn_evd`]).
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{ConnEvent, ConnectParams, Ia};
/// # fn main() -> itapi::Result<()> {
/// # let ia = Ia::open()?;
/// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
/// # let (listen, server) = (ia.listen("127.0.0.1:0")?, pz.ep(&evd).build()?);
/// let events = ia.conn_evd()?;
/// let ep = pz.ep(&evd).conn_evd(&events).build()?;
/// ep.start_connect(ConnectParams::new(listen.address()))?;
/// # listen.request()?.accept(&server, b"")?;
/// match events.wait(Duration::from_secs(10))? {
///     Some((id, ConnEvent::Established(_))) => assert_eq!(id, ep.id()),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
pub type ConnEvd = Events<Connections>;

/// For asynchronous events of endpoints, dispatchers and shared receive queues; at most one per
/// adapter.
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{AsyncEvent, AsyncSource, Ia};
/// # fn main() -> itapi::Result<()> {
/// # let ia = Ia::open()?;
/// # let srq = ia.pz()?.srq(16, 1)?;
/// let events = ia.async_evd(16)?;
/// while let Some(event) = events.wait(Duration::ZERO)? {
///     if (event.source, event.event) == (AsyncSource::Srq(srq.id()), AsyncEvent::SrqLimit) {
///         println!("post more receives");
///     } else {
///         eprintln!("{event}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub type AsyncEvd = Events<Objects>;

/// For asynchronous events of the device and its ports, which go online and offline; at most one
/// per adapter.
///
/// ```
/// # use itapi::{AsyncEvent, Ia};
/// # fn main() -> itapi::Result<()> {
/// # let ia = Ia::open()?;
/// let events = ia.port_evd(16)?;
/// while let Some((port, event)) = events.poll()? {
///     if let (Some(port), AsyncEvent::PortState { online }) = (port, event) {
///         println!("{} is online: {online}", ia.ports()?[port as usize].interface);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub type PortEvd = Events<Ports>;

/// For numbers that the application posts itself, to wake a thread that waits.
///
/// ```
/// # use std::time::Duration;
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// let inbox = ia.software_evd(16)?;
/// inbox.post(7)?;
/// assert_eq!(inbox.wait(Duration::ZERO)?, Some(7));
/// assert_eq!(inbox.poll()?, None);
/// # Ok(())
/// # }
/// ```
pub type SoftwareEvd = Events<Software>;

/// Aggregate dispatcher: says which of the dispatchers that feed it has events. It names a dispatcher as long
/// as that one would notify; take its events until there is none. [`crate::AnyEvd`] returns the events
/// themselves.
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{Aevd, SoftwareEvd};
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// let all = Aevd::builder(&ia).build()?;
/// let urgent = SoftwareEvd::builder(&ia, 16).aggregate(&all).build()?;
/// let other = SoftwareEvd::builder(&ia, 16).aggregate(&all).build()?;
/// # other.set_threshold(2)?;
/// urgent.post(1)?;
/// assert_eq!(all.wait(Duration::from_secs(10))?, Some(urgent.id()));
/// assert_eq!(urgent.poll()?, Some(1));
/// # Ok(())
/// # }
/// ```
pub type Aevd = Events<Notifications>;

impl Aggregate for Aevd {}
impl crate::dispatcher::sealed::Aggregate for Aevd {
    fn dispatcher(&self) -> &Dispatcher {
        self
    }
}

impl<K: Kind> Make for Events<K> {
    const STREAM: Stream = K::STREAM;
    fn make(evd: Arc<ual::Evd>) -> Self {
        Self { evd: Dispatcher::new(evd), kind: PhantomData }
    }
}

impl Ia {
    /// Creates an event dispatcher for the connection events of many endpoints; none is ever lost.
    pub fn conn_evd(&self) -> Result<ConnEvd> {
        ConnEvd::builder(self, CONNECTION_DEPTH).build()
    }

    /// Creates the event dispatcher for asynchronous events of endpoints and queues; at most one.
    pub fn async_evd(&self, depth: u32) -> Result<AsyncEvd> {
        AsyncEvd::builder(self, depth).build()
    }

    /// Creates the event dispatcher for asynchronous events of the device and its ports; at most
    /// one.
    pub fn port_evd(&self, depth: u32) -> Result<PortEvd> {
        PortEvd::builder(self, depth).build()
    }

    /// Creates an event dispatcher for events that the application posts itself.
    pub fn software_evd(&self, depth: u32) -> Result<SoftwareEvd> {
        SoftwareEvd::builder(self, depth).build()
    }
}

impl<K: Kind> Events<K> {
    /// The oldest event, if there is one (`it_evd_dequeue`).
    pub fn poll(&self) -> Result<Option<K::Item>> {
        while let Some((event, origin)) = self.ual().dequeue_from()? {
            if let Some(event) = K::pick(event, origin.as_ref().unwrap_or(self.ual())) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Waits until the dispatcher notifies and returns the oldest event (`it_evd_wait`); `None` after the
    /// time-out. Signal handlers do not end the wait; [`Dispatcher::interrupt`](crate::Dispatcher::interrupt) does.
    /// Errors: [`ual::Error::Interrupted`], [`ual::Error::Aborted`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<K::Item>> {
        next(self.ual(), Some(timeout), K::pick)
    }

    /// Calls a function on a thread of the adapter whenever the dispatcher notifies (`it_evd_callback_attach`).
    /// The function takes the events itself, and must not wait. It gets the dispatcher as argument, so that it
    /// need not keep it. Errors: [`ual::Error::CallbackExists`].
    pub fn on_event(&self, callback: impl Fn(&Self) + Send + Sync + 'static) -> Result<()> {
        let callback = move |evd: &Arc<ual::Evd>| callback(&Self::make(evd.clone()));
        Ok(self.ual().attach_callback(Box::new(callback))?)
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Evd> {
        self.evd.ual()
    }
}

/// Builders of the kinds whose depth the application chooses.
macro_rules! builders {
    ($($kind:ident)+) => {$(
        impl Events<$kind> {
            /// Chooses thresholds and the like; at least `depth` events fit.
            pub fn builder(ia: &Ia, depth: u32) -> EvdBuilder<'_, Self> {
                EvdBuilder::new(ia, depth)
            }
        }
    )+};
}
builders!(Connections Objects Ports Software);

impl Events<Notifications> {
    /// Chooses thresholds and the like.
    pub fn builder(ia: &Ia) -> EvdBuilder<'_, Self> {
        EvdBuilder::new(ia, 1)
    }
}

impl Events<Software> {
    /// Adds an event (`it_evd_post_se`). Errors: [`ual::Error::QueueFull`].
    pub fn post(&self, number: u64) -> Result<()> {
        Ok(self.ual().post_software(number)?)
    }
}

impl<K> Deref for Events<K> {
    type Target = Dispatcher;
    fn deref(&self) -> &Dispatcher {
        &self.evd
    }
}

impl<K> Clone for Events<K> {
    fn clone(&self) -> Self {
        Self { evd: self.evd.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Events<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.evd.fmt(f)
    }
}
