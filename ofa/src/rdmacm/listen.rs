//! Listening (rdma_listen(3)): requests are queued on the listener's channel, up to its backlog.
//!
//! A listener for connections that is bound to no device (`id->verbs` is NULL) serves further ones than the first: peers
//! choose one. Not those of iWARP, whose port is one of TCP, on which the program may listen itself, as UCX does. The first
//! device's errors are the call's; what another one refuses is logged, and peers do not reach the program by it.
//! Requests to one that is bound to a device come by this device only, as in the kernel: libfabric takes others for an
//! error.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};

use kal_os::lock;
use ual_cm::{ConnRequest, ListenerId, Listening, RequestSink, ServiceRequest, Sharing};
use vp_api::Transport;

use super::channel::ChannelEvent;
use super::id::{Id, Inner, State};
use super::option::Options;
use super::port;
use super::request::{Asked, Backlog};
use crate::adapter::Adapter;
use crate::device::{self, Device};
use crate::errno::{EINVAL, Errno};

/// As in the kernel's rdma_ucm: also for a backlog of 0 or less.
const MAX_BACKLOG: u32 = 1024;

/// A listener of an identifier: one of each device.
pub(super) struct Listener(Vec<Ear>);

/// A listener of a device.
struct Ear {
    adapter: Arc<Adapter>,
    id: ListenerId,
    /// The manager has a weak reference.
    _sink: Arc<dyn RequestSink>,
}

impl Listener {
    /// Its address is free when this returns.
    pub(super) fn close(&self) {
        self.0.iter().for_each(|ear| ear.adapter.cm().unlisten(ear.id));
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
    /// Listens at the bound address; at any port if there is none. `alone`: by the first device only.
    pub(super) fn listen(self: &Arc<Self>, backlog: i32, alone: bool) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        if inner.state == State::Idle {
            inner.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
            inner.state = State::Bound;
        }
        inner.expect(State::Bound)?;
        let listener = self.open(&mut inner, backlog, alone)?;
        inner.listener = Some(listener);
        inner.state = State::Listening;
        Ok(())
    }

    fn open(
        self: &Arc<Self>,
        inner: &mut Inner,
        backlog: i32,
        alone: bool,
    ) -> Result<Listener, Errno> {
        let bound = inner.bound.take().ok_or(Errno(libc::EADDRINUSE))?;
        let adapter = match (&inner.adapter, inner.local) {
            (Some(adapter), _) => adapter.clone(),
            (None, Some(local)) => Adapter::for_address(local.ip(), inner.is_datagrams)?,
            (None, None) => return Err(EINVAL),
        };
        let most = u32::try_from(backlog).ok().filter(|most| *most > 0).unwrap_or(MAX_BACKLOG);
        let backlog = Backlog::new(most.min(MAX_BACKLOG));
        let listening = adapter.cm().listen(bound)?;
        let mut all = vec![self.serve(&inner.options, &adapter, listening, &backlog)];
        let is_bound = inner.adapter.is_some() || inner.is_datagrams || alone;
        if let Some(local) = inner.local.filter(|_| !is_bound) {
            let own = adapter.device().index();
            let further = |it: &&Device| it.index() != own && it.transport() != Transport::Iwarp;
            for device in device::all()?.iter().filter(further) {
                match aside(device, local, inner.options.sharing) {
                    Ok((other, listening)) => {
                        all.push(self.serve(&inner.options, &other, listening, &backlog));
                    }
                    Err(why) => {
                        tracing::info!("{} does not listen on {local}: {why}", device.name());
                    }
                }
            }
        }
        Ok(Listener(all))
    }

    fn serve(
        self: &Arc<Self>,
        options: &Options,
        adapter: &Arc<Adapter>,
        listening: Listening,
        backlog: &Backlog,
    ) -> Ear {
        let (cm, adapter, backlog) = (adapter.cm(), adapter.clone(), backlog.clone());
        let sink = Sink { id: Arc::downgrade(self), adapter: adapter.clone(), backlog };
        let (id, sink): (_, Arc<dyn RequestSink>) = (listening.id(), Arc::new(sink));
        cm.serve(listening, &sink, options.policies(cm.policies()), false);
        Ear { adapter: adapter.clone(), id, _sink: sink }
    }
}

/// Listens at the same address by another device.
fn aside(
    device: &'static Device,
    local: SocketAddr,
    sharing: Sharing,
) -> Result<(Arc<Adapter>, Listening), String> {
    let adapter = device.open().map_err(|Errno(errno)| format!("error {errno}"))?;
    let cm = adapter.cm();
    let bound = cm.bind_shared(port::wire(local), sharing);
    let listening = bound.and_then(|bound| cm.listen(bound.aside()));
    listening.map(|listening| (adapter.clone(), listening)).map_err(|why| why.to_string())
}
