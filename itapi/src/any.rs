//! Aggregate event dispatcher that returns the events of all dispatchers that feed it. The access layer owns
//! the queues. Any number of threads may take events; each event goes to one of them.

use std::sync::Arc;

use ual::{ConnEvent, Event, Stream};
use vp_api::AsyncEvent;

use crate::completion::Completion;
use crate::dispatcher::{Aggregate, Dispatcher, EvdBuilder};
use crate::evd::Evd;
use crate::events::sealed::Kind;
use crate::events::{Events, ObjectEvent, Objects};
use crate::ia::Ia;
use crate::ids::{EpId, EvdId};
use crate::listen::{Request, Requests};

/// An event of any stream, see [`AnyEvd`].
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyEvent {
    /// A completion ([`Evd`]).
    Completion(Completion),
    /// A connection request ([`crate::RequestEvd`]).
    Request(Request),
    /// A connection event ([`crate::ConnEvd`]).
    Connection(EpId, ConnEvent),
    /// An asynchronous event of an endpoint, dispatcher or shared receive queue ([`crate::AsyncEvd`]).
    Object(ObjectEvent),
    /// An asynchronous event of the device, or of a port ([`crate::PortEvd`]).
    Port(Option<u32>, AsyncEvent),
    /// A number that the application posted ([`crate::SoftwareEvd`]).
    Software(u64),
}

/// Events of all streams (IT-API AEVD without `IT_EVD_DEQUEUE_NOTIFICATIONS`).
#[derive(Clone, Copy, Debug)]
pub enum Anything {}

impl Kind for Anything {
    type Item = (EvdId, AnyEvent);
    const STREAM: Stream = Stream::Aggregate;

    fn pick(event: Event, origin: &Arc<ual::Evd>) -> Option<Self::Item> {
        let id = EvdId::of(origin);
        let event = match event {
            Event::Completion(wc) => AnyEvent::Completion(Evd::complete_at(id, &wc)?),
            Event::Request(_) => AnyEvent::Request(Requests::pick(event, origin)?),
            Event::Connection { qp, event, .. } => AnyEvent::Connection(EpId(qp.0), *event),
            Event::Affiliated { .. } => AnyEvent::Object(Objects::pick(event, origin)?),
            Event::Unaffiliated { port, event } => AnyEvent::Port(port, event),
            Event::Software(number) => AnyEvent::Software(number),
            _ => return None,
        };
        Some((id, event))
    }
}

/// Aggregate dispatcher: returns the events of the dispatchers that feed it, each with the id of its
/// dispatcher. It takes from the dispatchers that would notify, one after the other.
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{AnyEvd, AnyEvent, SoftwareEvd};
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// let all = AnyEvd::builder(&ia).build()?;
/// let inbox = SoftwareEvd::builder(&ia, 16).aggregate(&all).build()?;
/// inbox.post(7)?;
/// match all.wait(Duration::from_secs(10))? {
///     Some((evd, AnyEvent::Software(7))) => assert_eq!(evd, inbox.id()),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
pub type AnyEvd = Events<Anything>;

impl AnyEvd {
    /// Chooses thresholds and the like.
    pub fn builder(ia: &Ia) -> EvdBuilder<'_, Self> {
        EvdBuilder::new(ia, 1).underlying()
    }
}

impl Aggregate for AnyEvd {}
impl crate::dispatcher::sealed::Aggregate for AnyEvd {
    fn dispatcher(&self) -> &Dispatcher {
        self
    }
}
