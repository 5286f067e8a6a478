//! Shared receive queues over libibverbs.
//!
//! Owner: the device's table; queue pairs and the consumer have references. Any thread posts.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use vp_api::room::Slots;
use vp_api::{
    PdId, PostFailure, RecvWr, Srq, SrqId, SrqInfo, SrqInit, VpError, VpResult, VpStatus,
};

use crate::device::Context;
use crate::mr::Domain;
use crate::mw::Memory;
use crate::object_table::{InUse, destroyed, lock};
use crate::owned::{Owned, done, refused};
use crate::ring::{Untaken, Waiting};
use crate::wire::{Batch, Link, SGES, sink};
use ibv_sys::*;

/// Marks the number of a receive that was posted to a shared receive queue.
pub(crate) const SHARED: u64 = 1 << 62;

/// A shared receive queue.
pub(crate) struct VerbsSrq {
    id: SrqId,
    pd: PdId,
    max_sge: u32,
    /// The armed limit; 0 after it fired.
    limit: AtomicU32,
    state: Mutex<State>,
    memory: Arc<Memory>,
    context: Arc<Context>,
}

struct State {
    raw: Option<Owned<ibv_srq>>,
    /// A hold on the domain, as long as `raw` exists.
    hold: Option<InUse>,
    /// Receives at the device.
    slots: Slots<u64>,
    /// Receives that the device has completed.
    waiting: Waiting,
    depth: usize,
}

impl State {
    /// Slots that are occupied.
    fn occupied(&self) -> usize {
        self.slots.used() + self.waiting.slots()
    }
}

impl VerbsSrq {
    pub(crate) fn create(
        context: &Arc<Context>,
        memory: &Arc<Memory>,
        pd: Domain,
        id: u32,
        init: &SrqInit,
    ) -> VpResult<Arc<Self>> {
        let ibv = &context.api.ibv;
        let mut attr = ibv_srq_init_attr {
            srq_context: std::ptr::without_provenance_mut(id as usize),
            attr: ibv_srq_attr { max_wr: init.depth, max_sge: init.max_sge, srq_limit: 0 },
        };
        // SAFETY: the domain is alive; the attributes may be written.
        let raw = unsafe { (ibv.ibv_create_srq)(pd.raw, &mut attr) };
        // SAFETY: just created; destroyed by its counterpart.
        let raw = unsafe { Owned::new(raw, ibv.ibv_destroy_srq, context) };
        let raw = raw.map_err(refused("create the shared receive queue"))?;
        let depth = init.depth.max(attr.attr.max_wr) as usize;
        let srq = Arc::new(Self {
            id: SrqId(id),
            pd: pd.id,
            max_sge: init.max_sge.max(attr.attr.max_sge).min(SGES as u32),
            limit: AtomicU32::new(0),
            state: Mutex::new(State {
                raw: Some(raw),
                hold: Some(pd.hold),
                slots: Slots::new("receives of the shared receive queue", depth)?,
                waiting: Waiting::default(),
                depth,
            }),
            memory: memory.clone(),
            context: context.clone(),
        });
        if init.limit != 0 {
            srq.modify(None, Some(init.limit))?;
        }
        Ok(srq)
    }

    pub(crate) fn with_raw<T>(&self, f: impl FnOnce(*mut ibv_srq) -> T) -> VpResult<T> {
        let state = lock(&self.state);
        let raw = state.raw.as_ref().ok_or_else(|| destroyed("shared receive queue"))?;
        Ok(f(raw.as_ptr()))
    }

    pub(crate) fn destroy(&self) -> VpResult<()> {
        let mut state = lock(&self.state);
        if let Some(raw) = state.raw.take()
            && let Err((raw, error)) = raw.destroy()
        {
            state.raw = Some(raw);
            return Err(refused("destroy the shared receive queue")(error));
        }
        state.hold = None;
        Ok(())
    }

    /// The receive with this number ended: returns the consumer's id and the slot.
    pub(crate) fn end(&self, number: u32) -> Option<(u64, Untaken)> {
        let mut state = lock(&self.state);
        let wr_id = state.slots.take(number)?;
        Some((wr_id, state.waiting.add(1)))
    }

    /// The limit event fired. It fires once.
    pub(crate) fn limit_reached(&self) {
        self.limit.store(0, Ordering::Release);
    }

    /// Posts one receive at a time: doorbells of receives are cheap.
    fn post_one(&self, state: &mut State, wr: &RecvWr<'_>) -> Result<(), VpStatus> {
        let raw = state.raw.as_ref().ok_or(VpStatus::InvalidHandle)?.as_ptr();
        if wr.sgl.len() > self.max_sge as usize {
            return Err(VpStatus::InvalidSgl);
        }
        if state.occupied() >= state.depth {
            return Err(VpStatus::TooManyWrs);
        }
        let post = self.context.ops().post_srq_recv.ok_or(VpStatus::Unsupported)?;
        state.slots.make_room(1)?;
        let slot = state.slots.add(wr.wr_id);
        let mut batch = Batch::new();
        let out = ibv_recv_wr {
            wr_id: SHARED | u64::from(self.id.0 & SERIAL) << 32 | u64::from(slot),
            ..ibv_recv_wr::BLANK
        };
        batch.add(out, sink(&self.memory, wr.sgl, self.context.iwarp));
        // SAFETY: the queue is alive under the lock, and the chain during the call.
        let posted = batch.submit(|wrs, bad| unsafe { post(raw, wrs, bad) });
        posted.map_err(|(_, status)| {
            state.slots.take(slot);
            status
        })
    }

    fn change(&self, raw: *mut ibv_srq, mut attr: ibv_srq_attr, mask: i32) -> io::Result<()> {
        // SAFETY: the caller has the queue under its lock.
        done(unsafe { (self.context.api.ibv.ibv_modify_srq)(raw, &mut attr, mask) })
    }
}

/// The bits of an id that the device passes through.
pub(crate) const SERIAL: u32 = (1 << 29) - 1;

impl Srq for VerbsSrq {
    fn id(&self) -> SrqId {
        self.id
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let mut state = lock(&self.state);
        for (posted, wr) in wrs.iter().enumerate() {
            self.post_one(&mut state, wr).map_err(|status| PostFailure { posted, status })?;
        }
        Ok(())
    }

    fn modify(&self, depth: Option<u32>, limit: Option<u32>) -> VpResult<SrqInfo> {
        let mut state = lock(&self.state);
        let raw = state.raw.as_ref().ok_or_else(|| destroyed("shared receive queue"))?.as_ptr();
        if let Some(depth) = depth {
            if (depth as usize) < state.occupied() {
                let detail = format!(
                    "{} receives are posted or their completions not polled, more than the new depth \
                     of {depth}",
                    state.occupied()
                );
                return Err(VpError::new(VpStatus::CannotChange, detail));
            }
            let attr = ibv_srq_attr { max_wr: depth, ..ibv_srq_attr::default() };
            self.change(raw, attr, IBV_SRQ_MAX_WR)
                .map_err(refused("resize the shared receive queue"))?;
            state.depth = depth as usize;
        }
        if let Some(limit) = limit {
            let attr = ibv_srq_attr { srq_limit: limit, ..ibv_srq_attr::default() };
            self.change(raw, attr, IBV_SRQ_LIMIT)
                .map_err(refused("arm the limit of the shared receive queue"))?;
            self.limit.store(limit, Ordering::Release);
        }
        drop(state);
        self.query()
    }

    fn query(&self) -> VpResult<SrqInfo> {
        let state = lock(&self.state);
        if state.raw.is_none() {
            return Err(destroyed("shared receive queue"));
        }
        Ok(SrqInfo {
            pd: self.pd,
            depth: state.depth as u32,
            max_sge: self.max_sge,
            limit: self.limit.load(Ordering::Acquire),
            posted: state.slots.used() as u32,
        })
    }
}
