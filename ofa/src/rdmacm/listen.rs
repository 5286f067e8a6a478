//! Listening (rdma_listen(3)): requests are queued on the listener's channel, up to its backlog.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};

use kal_os::lock;
use ual_cm::{ConnRequest, ListenerId, RequestSink, ServiceRequest};

use super::channel::ChannelEvent;
use super::id::{Id, Inner, State};
use super::request::{Asked, Backlog};
use crate::adapter::Adapter;
use crate::errno::{EINVAL, Errno};

/// As in the kernel's rdma_ucm: also for a backlog of 0 or less.
const MAX_BACKLOG: u32 = 1024;

/// A listener of an identifier.
pub(super) struct Listener {
    adapter: Arc<Adapter>,
    id: ListenerId,
    /// The manager has a weak reference.
    _sink: Arc<dyn RequestSink>,
}

impl Listener {
    /// Its address is free when this returns.
    pub(super) fn close(&self) {
        self.adapter.cm().unlisten(self.id);
    }
}

/// Receives its requests.
struct Sink {
    id: Weak<Id>,
    adapter: Arc<Adapter>,
    backlog: Backlog,
}

impl RequestSink for Sink {
    fn request(self: Arc<Self>, request: ConnRequest) -> bool {
        let (Some(id), Some(place)) = (self.id.upgrade(), self.backlog.place()) else {
            return false;
        };
        let asked = Box::new(Asked::new(&request, self.adapter.clone(), place));
        // Otherwise it is rejected when it is dropped.
        id.put(ChannelEvent::Request(asked));
        true
    }

    fn service_request(self: Arc<Self>, request: ServiceRequest) -> bool {
        let (Some(id), Some(place)) = (self.id.upgrade(), self.backlog.place()) else {
            return false;
        };
        let asked = Box::new(Asked::of_service(request, self.adapter.clone(), place));
        // Otherwise it is rejected when it is dropped.
        id.put(ChannelEvent::Request(asked));
        true
    }
}

impl Id {
    /// Listens at the bound address; at any port if there is none.
    pub(super) fn listen(self: &Arc<Self>, backlog: i32) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        if inner.state == State::Idle {
            inner.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
            inner.state = State::Bound;
        }
        inner.expect(State::Bound)?;
        let listener = self.open(&mut inner, backlog)?;
        inner.listener = Some(listener);
        inner.state = State::Listening;
        Ok(())
    }

    fn open(self: &Arc<Self>, inner: &mut Inner, backlog: i32) -> Result<Listener, Errno> {
        let bound = inner.bound.take().ok_or(Errno(libc::EADDRINUSE))?;
        let adapter = match (&inner.adapter, inner.local) {
            (Some(adapter), _) => adapter.clone(),
            (None, Some(local)) => Adapter::for_address(local.ip(), inner.is_datagrams)?,
            (None, None) => return Err(EINVAL),
        };
        let cm = adapter.cm();
        let listening = cm.listen(bound)?;
        let most = u32::try_from(backlog).ok().filter(|most| *most > 0).unwrap_or(MAX_BACKLOG);
        let backlog = Backlog::new(most.min(MAX_BACKLOG));
        let sink = Sink { id: Arc::downgrade(self), adapter: adapter.clone(), backlog };
        let (id, sink): (_, Arc<dyn RequestSink>) = (listening.id(), Arc::new(sink));
        cm.serve(listening, &sink, inner.options.policies(cm.policies()), false);
        Ok(Listener { adapter, id, _sink: sink })
    }
}
