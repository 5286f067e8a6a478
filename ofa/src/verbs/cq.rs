//! Completion queues: creating, resizing, arming and destroying them (ibv_create_cq(3),
//! ibv_req_notify_cq(3)). Polling is in `poll` and `cq_ex`.
//!
//! Owned by the application; queue pairs hold references. Any thread may poll and arm; destroying one
//! waits until its events are acknowledged.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ibv_sys::*;
use kal_os::lock;
use vp_api::{AsyncEvent, CqHandler, CqId, CqInit};

use crate::acks::Acks;
use crate::adapter::Adapter;
use crate::directory::Listener;
use crate::errno::{self, EINVAL, Errno};
use crate::events::Source;
use crate::object::{self, Handle};
use crate::verbs::channel::Channel;
use crate::verbs::context::{Context, context_of};
use crate::verbs::cq_ex::Walk;

/// A completion queue.
pub struct Cq {
    context: Arc<Context>,
    vp: Arc<dyn vp_api::Cq>,
    notifier: Option<Arc<ChannelNotifier>>,
    /// For asynchronous events.
    source: Source,
    /// For completion events, with a channel.
    completion_acks: Arc<Acks>,
    /// Empty polls since the last one that found a completion.
    pub(crate) misses: AtomicU32,
    /// A queue pair for datagrams receives into it.
    pub(crate) takes_datagrams: AtomicBool,
    /// The extended interface's position in a batch.
    pub(crate) walk: Walk,
}

impl Handle for ibv_cq {
    /// All of them have room for the extended interface.
    type Whole = ibv_cq_ex;
    type Private = Cq;
    const NAME: &'static str = "struct ibv_cq";
}

/// Adds to the channel when the queue's notification fires.
struct ChannelNotifier {
    channel: Arc<Channel>,
    acks: Arc<Acks>,
    /// Address of the handle; 0: there is none yet, or no longer.
    cq: Mutex<usize>,
    /// For completions that no provider made. It stays set when the provider's notification fires: that
    /// may be for an earlier request. So such completions may notify once too often, and never too seldom.
    armed: AtomicBool,
}

impl ChannelNotifier {
    fn notify(&self) {
        let cq = lock(&self.cq);
        if *cq != 0 {
            self.channel.push(*cq, &self.acks);
        }
    }
}

impl CqHandler for ChannelNotifier {
    fn on_completion(&self, _cq: CqId) {
        self.notify();
    }
}

impl Listener for Cq {
    fn on_event(&self, _number: u64, event: AsyncEvent) {
        if event == AsyncEvent::CqOverrun {
            self.source.raise(self.context.events(), IBV_EVENT_CQ_ERR);
        }
    }
}

impl Cq {
    /// The provider's completion queue.
    #[inline]
    pub fn vp(&self) -> &dyn vp_api::Cq {
        &*self.vp
    }

    /// Its adapter.
    #[inline]
    pub fn adapter(&self) -> Result<&Arc<Adapter>, Errno> {
        self.context.adapter()
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Adds completions that no provider made, and notifies.
    pub(crate) fn add(&self, completions: &[ibv_wc]) {
        self.walk.stage(completions);
        if let Some(notifier) = &self.notifier
            && notifier.armed.swap(false, Ordering::AcqRel)
        {
            notifier.notify();
        }
    }

    /// Removes completions of a queue pair that are kept here.
    pub(crate) fn remove(&self, qp_num: u32) {
        if self.walk.has_any() {
            self.walk.remove(qp_num);
        }
    }

    pub(crate) fn acks(&self) -> &Acks {
        self.source.acks()
    }

    pub(crate) fn completion_acks(&self) -> &Acks {
        &self.completion_acks
    }
}

/// Makes one.
pub(super) fn create(
    context: &Arc<Context>,
    depth: c_int,
    cq_context: *mut c_void,
    channel: (*mut ibv_comp_channel, Option<Arc<Channel>>),
    vector: c_int,
) -> Result<*mut ibv_cq, Errno> {
    let adapter = context.adapter()?;
    let depth = u32::try_from(depth).ok().filter(|depth| *depth > 0).ok_or(EINVAL)?;
    if vector != 0 || depth > adapter.attrs().max_cqe {
        return Err(EINVAL);
    }
    let completion_acks: Arc<Acks> = Arc::default();
    let notifier = channel.1.map(|channel| {
        let (acks, cq) = (completion_acks.clone(), Mutex::default());
        Arc::new(ChannelNotifier { channel, acks, cq, armed: AtomicBool::new(false) })
    });
    let handler = notifier.clone().map(|notifier| -> Arc<dyn CqHandler> { notifier });
    let vp = adapter.rnic().create_cq(&CqInit { depth, handler })?;
    let (id, given) = (vp.id(), vp.depth());
    let cq = Arc::new(Cq {
        context: context.clone(),
        vp,
        notifier,
        source: Source::default(),
        completion_acks,
        misses: AtomicU32::new(0),
        takes_datagrams: AtomicBool::new(false),
        walk: Walk::default(),
    });
    let listener: Weak<Cq> = Arc::downgrade(&cq);
    adapter.directory().add_cq(id, listener);
    let head = ibv_cq {
        context: context.handle(),
        channel: channel.0,
        cq_context,
        handle: id.0,
        cqe: given as c_int,
    };
    let pointer = object::new::<ibv_cq>(super::cq_ex::whole(head), cq.clone());
    cq.source.begin(pointer.expose_provenance());
    if let Some(notifier) = &cq.notifier {
        notifier.channel.use_it();
        // It notifies only once it is armed, which needs the handle.
        *lock(&notifier.cq) = pointer.expose_provenance();
    }
    Ok(pointer)
}

/// The channel of a handle, or none for NULL.
pub(super) unsafe fn channel_of(
    channel: *mut ibv_comp_channel,
) -> Result<(*mut ibv_comp_channel, Option<Arc<Channel>>), Errno> {
    if channel.is_null() {
        return Ok((null_mut(), None));
    }
    // SAFETY: the caller's channel.
    unsafe { object::with(channel) }.map(|private| (channel, Some(private.clone())))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: the caller's context.
    let context = unsafe { context_of(context) };
    errno::pointer(context.and_then(|context| {
        // SAFETY: the caller's channel.
        let channel = unsafe { channel_of(channel) }?;
        create(context, cqe, cq_context, channel, vector)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the caller's completion queue.
    let private = unsafe { object::with(cq) };
    errno::code(private.and_then(|private| {
        let max = private.adapter()?.attrs().max_cqe;
        let depth = u32::try_from(cqe).ok().filter(|depth| (1..=max).contains(depth));
        let given = private.vp().resize(depth.ok_or(EINVAL)?)?;
        // SAFETY: the caller's completion queue.
        unsafe { (*cq).cqe = given as c_int };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's completion queue.
    let private = unsafe { object::with(cq) };
    errno::code(private.and_then(|private| {
        let adapter = private.adapter()?;
        let id = private.vp().id();
        adapter.rnic().destroy_cq(id)?;
        adapter.directory().remove_cq(id);
        if let Some(notifier) = &private.notifier {
            *lock(&notifier.cq) = 0;
            notifier.channel.forget(cq.addr(), &private.completion_acks);
        }
        private.source.end(private.context.events());
        // SAFETY: the caller gives it up; nothing points to it any more.
        unsafe { object::destroy(cq) }.map(drop)
    }))
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's completion queue.
    let private = unsafe { object::with(cq) };
    errno::code(private.and_then(|private| {
        private.adapter()?;
        if let Some(notifier) = &private.notifier {
            notifier.armed.store(true, Ordering::Release);
        }
        Ok(private.vp().arm(solicited_only != 0)?)
    }))
}
