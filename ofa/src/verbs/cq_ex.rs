//! Extended completion queue (ibv_create_cq_ex(3)): completions are iterated, and their fields read by
//! functions.
//!
//! An iteration takes completions in batches; those that it leaves wait for the next iteration, or for
//! ibv_poll_cq. One thread iterates at a time; others wait for its end, as the interface specifies.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ibv_sys::*;
use kal_os::lock;
use rustix::time::{ClockId, clock_gettime};

use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::object;
use crate::tuning::ITERATION;
use crate::verbs::context::context_of;
use crate::verbs::cq::{Cq, channel_of, create};

/// The fields that are supported. A time stamp is of the moment at which the iteration comes to the completion.
const SERVED: u64 = IBV_WC_STANDARD_FLAGS | STAMPS;
const STAMPS: u64 =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// The state of an iteration.
#[derive(Default)]
pub(crate) struct Walk {
    walking: AtomicBool,
    /// Taken from the provider, and not returned yet.
    staged: Mutex<VecDeque<ibv_wc>>,
    count: AtomicUsize,
    /// Completions get time stamps.
    stamped: AtomicBool,
    /// The present completion.
    current: Current,
}

#[derive(Default)]
struct Current(UnsafeCell<Shown>);

/// A completion, and when it was seen.
#[derive(Clone, Copy, Default)]
struct Shown {
    wc: ibv_wc,
    /// By the device's clock.
    ticks: u64,
    wallclock_ns: u64,
}

impl Shown {
    fn stamped(wc: ibv_wc) -> Self {
        let wallclock = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            wc,
            ticks: ticks(),
            wallclock_ns: wallclock.map_or(0, |since| since.as_nanos() as u64),
        }
    }
}

/// Of the device's clock in kHz: it counts nanoseconds.
pub(super) const CLOCK_KHZ: u64 = 1_000_000;

/// The device's clock: the same for all processes, and never going back.
pub(super) fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

// SAFETY: only the thread that iterates accesses it.
unsafe impl Sync for Current {}

impl Walk {
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Takes completions that an iteration left, for a poll.
    #[cold]
    pub(super) fn take(&self, most: usize, put: &mut impl FnMut(ibv_wc)) -> usize {
        let mut staged = lock(&self.staged);
        let taken = staged.len().min(most);
        staged.drain(..taken).for_each(put);
        self.count.store(staged.len(), Ordering::Release);
        taken
    }

    fn next(&self) -> Option<ibv_wc> {
        let mut staged = lock(&self.staged);
        let found = staged.pop_front();
        self.count.store(staged.len(), Ordering::Release);
        found
    }

    /// Removes those of a queue pair.
    pub(super) fn remove(&self, qp_num: u32) {
        let mut staged = lock(&self.staged);
        staged.retain(|wc| wc.qp_num != qp_num);
        self.count.store(staged.len(), Ordering::Release);
    }

    pub(super) fn stage(&self, batch: &[ibv_wc]) {
        let mut staged = lock(&self.staged);
        staged.extend(batch);
        self.count.store(staged.len(), Ordering::Release);
    }

    fn begin(&self) {
        while self.walking.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn end(&self) {
        self.walking.store(false, Ordering::Release);
    }
}

/// The next completion: of those left, or of a new batch.
fn advance(cq: &Cq) -> Result<Option<ibv_wc>, Errno> {
    if let Some(wc) = cq.walk.next() {
        return Ok(Some(wc));
    }
    let mut batch = [ibv_wc::default(); ITERATION];
    let mut found = 0;
    let mut put = |wc| {
        batch[found] = wc;
        found += 1;
    };
    cq.poll(ITERATION, &mut put)?;
    match &batch[..found] {
        [] => Ok(None),
        [first, rest @ ..] => {
            if !rest.is_empty() {
                cq.walk.stage(rest);
            }
            Ok(Some(*first))
        }
    }
}

/// One step of an iteration; writes the fields that the application reads directly.
unsafe fn step(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller's completion queue.
    let Ok(private) = (unsafe { object::with(cq.cast::<ibv_cq>()) }) else { return libc::EINVAL };
    match advance(private) {
        Ok(Some(wc)) => {
            let stamped = private.walk.stamped.load(Ordering::Relaxed);
            let shown = if stamped { Shown::stamped(wc) } else { Shown { wc, ..Shown::default() } };
            // SAFETY: only this thread iterates.
            unsafe { private.walk.current.0.get().write(shown) };
            // SAFETY: the caller's structure.
            unsafe { (*cq).wr_id = wc.wr_id };
            // SAFETY: as above.
            unsafe { (*cq).status = wc.status };
            0
        }
        Ok(None) => libc::ENOENT,
        Err(error) => error.0,
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: NULL, or the caller's structure.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    // SAFETY: the caller's completion queue.
    let Ok(private) = (unsafe { object::with(cq.cast::<ibv_cq>()) }) else { return libc::EINVAL };
    private.walk.begin();
    // SAFETY: as above.
    let found = unsafe { step(cq) };
    if found != 0 {
        // No ibv_end_poll follows then.
        private.walk.end();
    }
    found
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller's completion queue.
    unsafe { step(cq) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller's completion queue.
    if let Ok(private) = unsafe { object::with(cq.cast::<ibv_cq>()) } {
        private.walk.end();
    }
}

/// The present completion.
unsafe fn current(cq: *mut ibv_cq_ex) -> Shown {
    // SAFETY: the caller's completion queue.
    match unsafe { object::with(cq.cast::<ibv_cq>()) } {
        // SAFETY: the caller iterates, and no other thread does.
        Ok(private) => unsafe { private.walk.current.0.get().read() },
        Err(_) => Shown::default(),
    }
}

macro_rules! readers {
    ($($name:ident: $ty:ty = $read:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ty {
            let read: fn(Shown) -> $ty = $read;
            // SAFETY: the caller's completion queue, which it walks through.
            read(unsafe { current(cq) })
        }
    )*};
}

readers! {
    read_opcode: c_uint = |shown| shown.wc.opcode;
    read_vendor_err: u32 = |shown| shown.wc.vendor_err;
    read_byte_len: u32 = |shown| shown.wc.byte_len;
    read_imm_data: u32 = |shown| shown.wc.imm_or_rkey;
    read_qp_num: u32 = |shown| shown.wc.qp_num;
    read_src_qp: u32 = |shown| shown.wc.src_qp;
    read_wc_flags: c_uint = |shown| shown.wc.wc_flags;
    read_slid: u32 = |shown| shown.wc.slid.into();
    read_sl: u8 = |shown| shown.wc.sl;
    read_dlid_path_bits: u8 = |shown| shown.wc.dlid_path_bits;
    read_completion_ts: u64 = |shown| shown.ticks;
    read_cvlan: u16 = |_| 0;
    read_flow_tag: u32 = |_| 0;
    read_completion_wallclock_ns: u64 = |shown| shown.wallclock_ns;
}

unsafe extern "C" fn read_tm_info(_cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: the caller's structure.
    unsafe { info.write(ibv_wc_tm_info { tag: 0, priv_: 0 }) }
}

/// A completion queue's structure, whole.
pub(super) fn whole(head: ibv_cq) -> ibv_cq_ex {
    let base = whole_cq {
        head,
        mutex: [0; 5],
        cond: [0; 6],
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    ibv_cq_ex {
        base,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_slid),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_dlid_path_bits),
        read_completion_ts: Some(read_completion_ts),
        read_cvlan: Some(read_cvlan),
        read_flow_tag: Some(read_flow_tag),
        read_tm_info: Some(read_tm_info),
        read_completion_wallclock_ns: Some(read_completion_wallclock_ns),
    }
}

pub(super) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller's context.
    let context = unsafe { context_of(context) };
    // SAFETY: the caller's structure.
    let attr = unsafe { attr.as_ref() }.ok_or(EINVAL);
    let made = context.and_then(|context| {
        let attr = attr?;
        let known = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        let has_flags = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
        if attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0
            || attr.wc_flags & !SERVED != 0
            || has_flags && attr.flags & !known != 0
        {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: the caller's channel.
        let channel = unsafe { channel_of(attr.channel) }?;
        let depth = c_int::try_from(attr.cqe).map_err(|_| EINVAL)?;
        let vector = c_int::try_from(attr.comp_vector).map_err(|_| EINVAL)?;
        let cq = create(context, depth, attr.cq_context, channel, vector)?;
        // SAFETY: made just now.
        let walk = &unsafe { object::with(cq) }?.walk;
        walk.stamped.store(attr.wc_flags & STAMPS != 0, Ordering::Relaxed);
        Ok(cq)
    });
    errno::pointer(made).cast()
}
