//! A queue pair in the rendezvous: finding the peer that its attributes name, and being found.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ibv_sys::*;
use kal_os::lock;
use vp_api::{Capabilities, QpChange};

use super::Qp;
use super::by_path::is_native;
use crate::adapter::Adapter;
use crate::advice::Advice;
use crate::caps;
use crate::errno::{EINVAL, Errno};
use crate::rendezvous::{Meeting, Name, Peer, PeerRequest, PeerTarget, Slot, to_itself};
use crate::wr_list::List;
use ual::gid;

/// The LID of the port (there is no subnet manager).
const LID: u16 = 0;

impl Qp {
    /// Begins the rendezvous with the peer that the attributes name.
    pub(super) fn begin_meeting(self: &Arc<Self>) -> Result<(), Errno> {
        let adapter = self.adapter()?;
        let meeting = Meeting::new(self, adapter, self.peer()?);
        let owner: Weak<Meeting> = Arc::downgrade(&meeting);
        self.attach(owner)?;
        lock(&self.meet).meeting = Some(meeting.clone());
        if meeting.is_with_itself() {
            let stream = to_itself::stream(meeting.reads(), meeting.takes_immediates())?;
            return Ok(self.vp.modify(QpChange::Rts(Box::new(stream)))?);
        }
        if meeting.connects() {
            return meeting.connect(adapter);
        }
        meeting.wait();
        self.accept_early(&meeting)
    }

    fn peer(&self) -> Result<Peer, Errno> {
        let gids = self.adapter()?.device().gids()?;
        let known = *lock(&self.attr);
        let path = known.ah_attr;
        let address = match path.is_global {
            // Without a GID, only this machine can be meant, by the LID of its port.
            0 if path.dlid == LID => gids.address(),
            0 => {
                Advice::NoGid.say();
                return Err(EINVAL);
            }
            _ => gid::address_of(path.grh.dgid.raw),
        };
        if known.dest_qp_num > 0x00ff_ffff || self.slot.is_none() {
            return Err(EINVAL);
        }
        let reads = |init: u8| if self.init.kind == IBV_QPT_UC { 0 } else { u16::from(init) };
        let all = caps::max_reads(self.adapter()?.attrs().max_ord) as u8;
        Ok(Peer {
            own: Name { address: gids.address(), number: self.number },
            own_gid: gids.table()[1],
            peer: Name { address, number: known.dest_qp_num },
            ird: reads(known.max_dest_rd_atomic),
            // Set with RTS; the peer's other limit applies.
            ord: reads(all),
            immediates: self.sends_immediates(),
        })
    }

    /// Whether it accepts Sends with Immediate, and sends them to a peer that does: true for InfiniBand, which
    /// defines them, and for the rendezvous, on devices that can. On iWARP the peer of a connection identifier
    /// may be of any implementation.
    pub(crate) fn sends_immediates(&self) -> bool {
        let can = |adapter: &Arc<Adapter>| {
            adapter.attrs().capabilities.contains(Capabilities::SEND_IMMEDIATE)
        };
        let native = |adapter: &Arc<Adapter>| self.slot.is_some() || is_native(adapter);
        self.adapter().is_ok_and(|adapter| native(adapter) && can(adapter))
    }

    /// Accepts a peer whose request came before.
    pub(crate) fn accept_early(&self, meeting: &Arc<Meeting>) -> Result<(), Errno> {
        let early = lock(&self.meet).early.take(meeting.peer());
        match early {
            // Otherwise it has given up, and will connect again.
            Some(peer) => meeting.accept(self.adapter()?, peer),
            None => Ok(()),
        }
    }

    /// The peer of this life is gone; the application learns of it when it sends something.
    pub(crate) fn peer_left(&self, life: u64) {
        // Refused if the provider is in that state already.
        let fail = |_: &mut List| drop(self.vp.modify(QpChange::Error));
        self.during(|now| now == life, fail);
    }

    /// How long a request is retried, by the attributes: 4.096 us times two to the power of the time-out,
    /// for each retry (InfiniBand Architecture Specification 1.4, section 9.7.6.1.3); 0 means without end.
    pub(crate) fn retry_time(&self) -> Duration {
        let known = *lock(&self.attr);
        match known.timeout & 31 {
            0 => Duration::MAX,
            timeout => Duration::from_nanos(4096 << timeout) * (u32::from(known.retry_cnt) + 1),
        }
    }

    /// Ends the rendezvous, if there is one: peers that come from now on are of the next life.
    pub(super) fn end_meeting(&self) {
        let meeting = lock(&self.meet).meeting.take();
        if let Some(meeting) = meeting {
            if let Ok(adapter) = self.adapter() {
                meeting.end(adapter);
            }
            *lock(&self.owner) = None;
        }
    }
}

impl PeerTarget for Qp {
    fn on_peer(&self, peer: PeerRequest) -> bool {
        let meeting = {
            let mut meet = lock(&self.meet);
            match &meet.meeting {
                Some(meeting) => meeting.clone(),
                None => return meet.early.add(peer),
            }
        };
        let Ok(adapter) = self.adapter() else { return false };
        let expected = !meeting.connects() && meeting.peer() == peer.from;
        expected && meeting.accept(adapter, peer).is_ok()
    }
}

pub(super) fn place(adapter: &Adapter) -> Result<Slot, Errno> {
    adapter.points().place(adapter.cm(), adapter.device().gids()?.address())
}
