//! Shared receive queues (ibv_create_srq(3)).

use std::ffi::c_int;
use std::sync::{Arc, Weak};

use ibv_sys::*;
use vp_api::{AsyncEvent, SrqInit};

use crate::acks::Acks;
use crate::adapter::Adapter;
use crate::directory::Listener;
use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::events::Source;
use crate::object::{self, Handle};
use crate::verbs::context::Context;
use crate::verbs::pd::Pd;

/// A shared receive queue.
pub struct Srq {
    pd: Arc<Pd>,
    vp: Arc<dyn vp_api::Srq>,
    source: Source,
}

impl Handle for ibv_srq {
    type Whole = whole_srq;
    type Private = Srq;
    const NAME: &'static str = "struct ibv_srq";
}

impl Srq {
    /// The provider's shared receive queue.
    #[inline]
    pub fn vp(&self) -> &dyn vp_api::Srq {
        &*self.vp
    }

    /// Its adapter.
    #[inline]
    pub(super) fn adapter(&self) -> Result<&Arc<Adapter>, Errno> {
        self.pd.adapter()
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.pd.context
    }

    pub(crate) fn acks(&self) -> &Acks {
        self.source.acks()
    }
}

impl Listener for Srq {
    fn on_event(&self, _number: u64, event: AsyncEvent) {
        if event == AsyncEvent::SrqLimit {
            self.source.raise(self.context().events(), IBV_EVENT_SRQ_LIMIT_REACHED);
        }
    }
}

fn create(
    pd: (*mut ibv_pd, &Arc<Pd>),
    srq_context: *mut std::ffi::c_void,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq, Errno> {
    let adapter = pd.1.adapter()?;
    let attrs = adapter.attrs();
    if !(1..=attrs.max_wr_per_srq).contains(&attr.max_wr) || attr.max_sge > attrs.max_sge_recv {
        return Err(EINVAL);
    }
    // The limit is armed by ibv_modify_srq only.
    let init = SrqInit { pd: pd.1.id, depth: attr.max_wr, max_sge: attr.max_sge.max(1), limit: 0 };
    let vp = adapter.rnic().create_srq(&init)?;
    let id = vp.id();
    pd.1.enter();
    (attr.max_wr, attr.max_sge) = (init.depth, init.max_sge);
    let srq = Arc::new(Srq { pd: pd.1.clone(), vp, source: Source::default() });
    let listener: Weak<Srq> = Arc::downgrade(&srq);
    adapter.directory().add_srq(id, listener);
    let context = srq.context().handle();
    let head = ibv_srq { context, srq_context, pd: pd.0, handle: id.0 };
    let whole = whole_srq { head, mutex: [0; 5], cond: [0; 6], events_completed: 0 };
    let pointer = object::new::<ibv_srq>(whole, srq.clone());
    srq.source.begin(pointer.expose_provenance());
    Ok(pointer)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the caller's protection domain.
    let private = unsafe { object::with(pd) };
    // SAFETY: the caller's structure.
    let attr = unsafe { attr.as_mut() }.ok_or(EINVAL);
    errno::pointer(private.and_then(|private| {
        let attr = attr?;
        create((pd, private), attr.srq_context, &mut attr.attr)
    }))
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller's structure.
    let attr = unsafe { attr.as_mut() }.ok_or(EINVAL);
    errno::pointer(attr.and_then(|attr| {
        let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        let typed = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0;
        if attr.comp_mask & !known != 0 || typed && attr.srq_type != IBV_SRQT_BASIC {
            return Err(EOPNOTSUPP);
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            return Err(EINVAL);
        }
        // SAFETY: the caller's protection domain.
        let private = unsafe { object::with(attr.pd) }?;
        if private.context.handle() != context {
            return Err(EINVAL);
        }
        create((attr.pd, private), attr.srq_context, &mut attr.attr)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's queue.
    let private = unsafe { object::with(srq) };
    // SAFETY: the caller's structure.
    let attr = unsafe { attr.as_ref() }.ok_or(EINVAL);
    errno::code(private.and_then(|private| {
        let (attr, has) = (attr?, |flag| mask & flag != 0);
        let max = private.pd.adapter()?.attrs().max_wr_per_srq;
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 || has(IBV_SRQ_MAX_WR) && attr.max_wr > max
        {
            return Err(EINVAL);
        }
        let depth = has(IBV_SRQ_MAX_WR).then_some(attr.max_wr);
        let limit = has(IBV_SRQ_LIMIT).then_some(attr.srq_limit);
        Ok(private.vp().modify(depth, limit).map(drop)?)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_query_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
) -> c_int {
    // SAFETY: the caller's queue.
    let private = unsafe { object::with(srq) };
    errno::code(private.and_then(|private| {
        private.pd.adapter()?;
        let now = private.vp().query()?;
        let known = ibv_srq_attr { max_wr: now.depth, max_sge: now.max_sge, srq_limit: now.limit };
        // SAFETY: the caller's structure.
        unsafe { attr.write(known) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the caller's queue.
    let private = unsafe { object::with(srq) };
    errno::code(private.and_then(|private| {
        let adapter = private.pd.adapter()?;
        let id = private.vp().id();
        adapter.rnic().destroy_srq(id)?;
        adapter.directory().remove_srq(id);
        private.pd.remove_user();
        private.source.end(private.context().events());
        // SAFETY: the caller gives it up, and nothing uses it.
        unsafe { object::destroy(srq) }.map(drop)
    }))
}
