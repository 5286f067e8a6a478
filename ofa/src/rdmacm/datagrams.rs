//! Identifiers for datagrams (`RDMA_PS_UDP`): the service behind a port is asked for a queue pair (InfiniBand's
//! SIDR). There is no connection, and so no end of one.
//!
//! The service accepts by replying with its queue pair, and gets no event; who asked gets the address of that queue
//! pair with the event, or learns that there is none.

use std::sync::{Arc, Weak};

use ibv_sys::{RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_UNREACHABLE};
use kal_os::lock;
use ual::gid;
use ual_cm::{ReplySink, ServiceReply};
use vp_api::{DatagramPath, UdAddress};

use super::connect::Wish;
use super::endpoint::Connects;
use super::event::{Conn, Event, Service};
use super::id::{Id, State};
use super::port;
use crate::adapter::Adapter;
use crate::errno::{EINVAL, Errno};

/// The key of queue pairs of rdma_cm (`RDMA_UDP_QKEY` of `rdma/rdma_cma.h`).
pub(super) const RDMA_UDP_QKEY: u32 = 0x0123_4567;

/// The question of an identifier, which has it.
struct Question {
    id: Weak<Id>,
    adapter: Arc<Adapter>,
}

impl Question {
    fn service(&self, address: UdAddress, path: DatagramPath) -> Result<Service, Errno> {
        let gids = self.adapter.device().gids()?;
        let ends = [path.local_gid, path.remote_gid].map(gid::address_of);
        let (index, remote_gid) = gids.path(ends[0], ends[1]).ok_or(EINVAL)?;
        let sgid_index = u8::try_from(index).map_err(|_| EINVAL)?;
        Ok(Service { address, path: DatagramPath { remote_gid, ..path }, sgid_index })
    }

    fn event(&self, reply: ServiceReply) -> Event {
        let failed = |errno| Event::failed(RDMA_CM_EVENT_UNREACHABLE, errno);
        match reply {
            ServiceReply::Resolved { address, path, private_data } => {
                match self.service(address, path) {
                    Ok(service) => {
                        let conn = Conn::of_service(private_data, service);
                        Event { conn, ..Event::plain(RDMA_CM_EVENT_ESTABLISHED) }
                    }
                    Err(Errno(errno)) => failed(errno),
                }
            }
            ServiceReply::Refused { private_data, .. } => {
                let conn = Conn { data: private_data, ..Conn::default() };
                Event { conn, ..failed(libc::ECONNREFUSED) }
            }
            _ => failed(libc::ETIMEDOUT),
        }
    }
}

impl ReplySink for Question {
    fn reply(self: Arc<Self>, reply: ServiceReply) {
        if let Some(id) = self.id.upgrade() {
            tracing::info!("{reply}");
            id.on_reply(self.event(reply));
        }
    }
}

impl Id {
    /// Asks the resolved service for a queue pair; an event reports the result.
    pub(super) fn ask(self: &Arc<Self>, wish: &Wish) -> Result<(), Errno> {
        let (question, peer) = {
            let mut inner = lock(&self.inner);
            inner.expect(State::RouteResolved)?;
            let adapter = inner.adapter.clone().ok_or(EINVAL)?;
            let peer = port::wire(inner.remote.ok_or(EINVAL)?);
            let question = Arc::new(Question { id: Arc::downgrade(self), adapter });
            inner.question = Some(question.clone());
            inner.state = State::Pending;
            (question, peer)
        };
        let sink: Arc<dyn ReplySink> = question.clone();
        let asked = question.adapter.cm().request_service(&sink, peer, &wish.data);
        asked.map_err(|error| {
            let mut inner = lock(&self.inner);
            (inner.state, inner.question) = (State::RouteResolved, None);
            error.into()
        })
    }

    /// Replies to the request with a queue pair.
    pub(super) fn answer(&self, connects: &Connects, wish: &Wish) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        inner.expect(State::Asked)?;
        let address = match connects {
            Connects::Qp(qp) => qp.datagrams().ok_or(EINVAL)?.address(),
            Connects::Number(qpn) => UdAddress { qpn: *qpn, qkey: RDMA_UDP_QKEY },
        };
        let asked = inner.asked.as_mut().ok_or(EINVAL)?;
        ual_cm::reply(asked.request().ok_or(EINVAL)?, Ok(address), &wish.data)?;
        asked.answered();
        inner.state = State::Connected;
        Ok(())
    }

    /// Whether it is for datagrams, and of a request that was replied to.
    pub(super) fn has_answered(&self) -> bool {
        self.is_datagrams() && lock(&self.inner).asked.is_some()
    }

    fn on_reply(self: &Arc<Self>, event: Event) {
        let mut inner = lock(&self.inner);
        if inner.state != State::Pending {
            return;
        }
        inner.question = None;
        inner.state = if event.status == 0 { State::Connected } else { State::Over };
        // Under the lock, so that no event is queued before it.
        self.queue_event(event);
    }
}
