//! Connection requests on their way to the application: counted against their listener's backlog, and
//! rejected if they are dropped without a reply.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ual_cm::{ConnRequest, RequestId, ServiceRequest};
use vp_api::{PathTerms, ServiceRefusal};

use super::event::{self, Conn};
use super::port;
use crate::adapter::Adapter;
use crate::errno::{EINVAL, Errno};

/// A request, to be replied to once; dropping it rejects it.
pub(super) struct Asked {
    request: Option<RequestId>,
    /// It asks for a queue pair that takes datagrams.
    pub(super) is_datagrams: bool,
    pub(super) adapter: Arc<Adapter>,
    /// Parameters of the event.
    pub(super) conn: Conn,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Its place in the backlog, until the application fetched it.
    place: Option<Place>,
}

impl Asked {
    pub(super) fn new(request: &ConnRequest, adapter: Arc<Adapter>, place: Place) -> Self {
        Self {
            request: Some(request.request),
            is_datagrams: false,
            conn: Conn { terms: terms(&adapter, request.request), ..event::requested(request) },
            adapter,
            local: port::from_wire(request.ends.local.address),
            remote: port::from_wire(request.ends.remote.address),
            place: Some(place),
        }
    }

    pub(super) fn of_service(request: ServiceRequest, adapter: Arc<Adapter>, place: Place) -> Self {
        Self {
            request: Some(request.request),
            is_datagrams: true,
            adapter,
            conn: Conn { data: request.private_data, ..Conn::default() },
            local: port::from_wire(request.ends.local.address),
            remote: port::from_wire(request.ends.remote.address),
            place: Some(place),
        }
    }

    /// Rejects it. At worst the peer is gone.
    pub(super) fn reject(&mut self, data: &[u8]) -> Result<(), Errno> {
        let request = self.request.ok_or(EINVAL)?;
        match self.is_datagrams {
            true => ual_cm::reply(request, Err(ServiceRefusal::Rejected), data)?,
            false => ual_cm::reject(request, data)?,
        }
        self.request = None;
        Ok(())
    }

    /// The id to reply to it by; none once it was replied to.
    pub(super) fn request(&self) -> Option<RequestId> {
        self.request
    }

    /// It was replied to.
    pub(super) fn answered(&mut self) {
        self.request = None;
    }

    /// The application fetched its event: another may be queued in its place.
    pub(super) fn fetched(&mut self) {
        self.place = None;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // Refused if it was replied to.
        let _ = self.reject(&[]);
    }
}

/// What a request says of the peer's queue pair, where the provider shows it.
fn terms(adapter: &Adapter, request: RequestId) -> Option<PathTerms> {
    let native = ual_cm::native_request(request)?;
    adapter.rnic().cm_messages()?.offered(native)
}

/// The number of a listener's queued requests.
#[derive(Clone)]
pub(super) struct Backlog {
    queued: Arc<AtomicU32>,
    most: u32,
}

impl Backlog {
    pub(super) fn new(most: u32) -> Self {
        Self { queued: Arc::default(), most }
    }

    /// A place for one more, if there is one.
    pub(super) fn place(&self) -> Option<Place> {
        let place = Place(self.queued.clone());
        // If there is none, dropping `place` corrects the count.
        (place.0.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }
}

/// One of them.
pub(super) struct Place(Arc<AtomicU32>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_has_its_configured_length() {
        let backlog = Backlog::new(2);
        let places = [backlog.place(), backlog.place()];
        assert!(places.iter().all(Option::is_some));
        assert!(backlog.place().is_none());
        drop(places);
        assert!(backlog.place().is_some());
    }
}
