//! Multicast groups of identifiers for datagrams (rdma_join_multicast(3), rdma_leave_multicast(3)).
//!
//! A group is joined at once, so its event follows the call. What is sent to the group arrives at the identifier's
//! queue pair, if it has one when it joins.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ibv_sys::{RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN};
use kal_os::lock;
use ual::gid;
use vp_api::{DatagramPath, MULTICAST_QPN, UdAddress};

use super::datagrams::RDMA_UDP_QKEY;
use super::event::{Conn, Event, Service};
use super::group::Group;
use super::id::{Id, Inner, State};
use crate::errno::{EINVAL, EOPNOTSUPP, Errno};
use crate::qp::Qp;

/// Hops of a datagram for a group, as in the kernel.
const HOPS: u8 = 64;

impl Id {
    /// Joins a group; an event reports the result. `qp`: attached to it, unless the identifier only sends there.
    /// `context` comes with the events.
    pub(super) fn join(
        self: &Arc<Self>,
        group: SocketAddr,
        qp: Option<&Arc<Qp>>,
        context: usize,
    ) -> Result<(), Errno> {
        let address = group.ip();
        let mut inner = lock(&self.inner);
        let service = inner.group_service(address)?;
        let conn = Conn { service: Some(service), context, ..Conn::default() };
        let (kind, status) = match qp.map_or(Ok(()), |qp| qp.join_group(address)) {
            Ok(()) => {
                inner.groups.push(Group::new(address, qp));
                (RDMA_CM_EVENT_MULTICAST_JOIN, 0)
            }
            Err(Errno(errno)) => (RDMA_CM_EVENT_MULTICAST_ERROR, -errno),
        };
        self.queue_event(Event { kind, status, conn });
        Ok(())
    }

    /// Leaves a group. Its event, if it was not fetched, is gone.
    pub(super) fn leave(self: &Arc<Self>, group: SocketAddr) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        let found = inner.groups.iter().position(|joined| joined.address() == group.ip());
        let joined = inner.groups.remove(found.ok_or(Errno(libc::EADDRNOTAVAIL))?);
        joined.leave();
        self.channel().0.remove_group(self, gid::gid(group.ip()));
        Ok(())
    }
}

/// Groups of an identifier.
const MAX_GROUPS: usize = 256;

impl Inner {
    /// Where datagrams for a group go, as the event of joining tells.
    fn group_service(&self, group: IpAddr) -> Result<Service, Errno> {
        if !matches!(self.state, State::Bound | State::AddressResolved)
            || !self.is_datagrams
            || !group.is_multicast()
        {
            return Err(EINVAL);
        }
        if self.groups.len() >= MAX_GROUPS {
            return Err(Errno(libc::ENOMEM));
        }
        let adapter = self.adapter.as_ref().ok_or(EINVAL)?;
        if adapter.rnic().datagrams().is_none_or(|service| service.attrs().max_groups == 0) {
            return Err(EOPNOTSUPP);
        }
        let local = self.local.ok_or(EINVAL)?.ip();
        if local.is_ipv4() != group.is_ipv4() {
            return Err(EINVAL);
        }
        let gids = adapter.device().gids()?;
        // Loopback, which may not be in the table, stands for the main address.
        let (index, _) = gids.path(local, group).ok_or(EINVAL)?;
        let path = DatagramPath {
            local_gid: *gids.table().get(index).ok_or(EINVAL)?,
            remote_gid: gid::gid(group),
            hop_limit: HOPS,
            ..DatagramPath::default()
        };
        let sgid_index = u8::try_from(index).map_err(|_| EINVAL)?;
        let address = UdAddress { qpn: MULTICAST_QPN, qkey: RDMA_UDP_QKEY };
        Ok(Service { address, path, sgid_index })
    }
}
