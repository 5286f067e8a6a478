//! Tables of the objects of an open device, by id, and the delivery of the device's events to them.
//!
//! Owner: the open device; shared with the event thread and the datagram code. Any thread.

use std::sync::{Arc, Mutex, Weak};

use vp_api::{
    AsyncEvent, CqId, EventSource, PdId, QpId, Services, SrqId, VpError, VpResult, VpStatus,
};

use crate::cm::Cm;
use crate::cq::VerbsCq;
use crate::device::Context;
use crate::events::{Channel, EventSink};
use crate::map::About;
use crate::mr::Domain;
use crate::object_table::{ObjectTable, lock};
use crate::owned::Owned;
use crate::ports;
use crate::qp::VerbsQp;
use crate::srq::VerbsSrq;
use crate::thread::DeviceEvents;
use crate::ud::VerbsUdQp;
use ibv_sys::ibv_pd;

/// The objects of an open device.
pub(crate) struct DeviceObjects {
    pub(crate) sink: Arc<EventSink>,
    pub(crate) cqs: ObjectTable<VerbsCq>,
    pub(crate) srqs: ObjectTable<VerbsSrq>,
    pub(crate) qps: Arc<ObjectTable<VerbsQp>>,
    pub(crate) uds: ObjectTable<VerbsUdQp>,
    pub(crate) pds: ObjectTable<Pd>,
    pub(crate) cm: Weak<Cm>,
    pub(crate) channel: Channel,
    pub(crate) context: Arc<Context>,
    pub(crate) services: Arc<dyn Services>,
}

type Pd = Mutex<Option<Owned<ibv_pd>>>;

impl DeviceEvents for DeviceObjects {
    fn on_completion(&self, cq: u32) {
        if let Ok(cq) = self.cqs.get(cq) {
            cq.on_event();
        }
    }

    fn on_async(&self, about: About, id: u64, event: AsyncEvent) {
        let (id, life) = (id as u32, (id >> 32) as u32);
        match about {
            About::Qp => self.on_qp(id, life, event),
            About::Cq => {
                if let Ok(cq) = self.cqs.get(id) {
                    cq.overran();
                }
                self.sink.emit(EventSource::Cq(CqId(id)), event);
            }
            About::Srq => {
                if let Ok(srq) = self.srqs.get(id) {
                    srq.limit_reached();
                }
                self.sink.emit(EventSource::Srq(SrqId(id)), event);
            }
            About::Port => {
                let index = ports::index(&self.context, id);
                self.sink.emit(EventSource::Port(index), event);
            }
            About::Device => self.lost(),
        }
    }
}

impl DeviceObjects {
    pub(crate) fn domain(&self, pd: PdId) -> VpResult<Domain> {
        let no_pd = |error: VpError| VpError { status: VpStatus::InvalidPd, ..error };
        let (entry, hold) = self.pds.hold(pd.0).map_err(no_pd)?;
        let raw = lock(&entry).as_ref().map_or(std::ptr::null_mut(), Owned::as_ptr);
        Ok(Domain { id: pd, raw, hold })
    }

    /// An id that no queue pair of either kind has.
    pub(crate) fn queue_pair_id(&self) -> u32 {
        loop {
            let id = self.qps.reserve();
            if self.uds.get(id).is_err() {
                return id;
            }
        }
    }

    /// Handles an event of a queue pair in its given life.
    fn on_qp(&self, id: u32, life: u32, event: AsyncEvent) {
        if let Ok(qp) = self.qps.get(id) {
            if event != AsyncEvent::Established {
                qp.broke(life, Some(event));
            } else if qp.life() == life {
                if let Some(cm) = self.cm.upgrade() {
                    cm.on_comm_est(QpId(id));
                }
                self.sink.emit(EventSource::Qp(QpId(id)), event);
            }
        } else if let Ok(qp) = self.uds.get(id)
            && qp.broke(life)
        {
            self.sink.emit(EventSource::Qp(QpId(id)), event);
        }
    }
}
