//! Exported function tables of completion queues and queue pairs: the data path.

use std::array::from_fn;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::super::types::{Plain, Sized32};
use super::super::{codes, qp, types as c, ud, work};
use super::{object, take_back, verbs};
use crate::{
    Cq, Data, PostFailure, Qp, RecvWr, SendFlags, SendOp, SendWr, Srq, VpResult, VpStatus,
    WorkCompletion,
};

/// Requests and completions that are converted at a time, on the stack.
const BATCH: usize = 8;

const CQ: c::CqOps = c::CqOps {
    size: c::CqOps::SIZE,
    reserved: 0,
    release: Some(release_cq),
    depth: Some(depth),
    poll: Some(poll),
    arm: Some(arm),
    wait: Some(wait),
    interrupt: Some(interrupt),
    resize: Some(resize),
    queued: Some(queued),
    poll_from: Some(poll_from),
};

const QP: c::QpOps = c::QpOps {
    size: c::QpOps::SIZE,
    reserved: 0,
    release: Some(release_qp),
    post_send: Some(post_send),
    post_recv: Some(post_recv),
    modify: Some(modify),
    query: Some(query),
};

pub(super) fn hand_out(cq: Arc<dyn Cq>) -> c::CqMade {
    c::CqMade { id: cq.id().0, cq: super::hand_out(cq), ops: &CQ, ..c::CqMade::blank() }
}

pub(super) fn hand_out_qp(qp: Arc<dyn Qp>) -> c::QpMade {
    c::QpMade { id: qp.id().0, qp: super::hand_out(qp), ops: &QP, ..c::QpMade::blank() }
}

unsafe extern "C" fn release_cq(cq: *mut c_void) {
    // SAFETY: the host's last use of the handle.
    unsafe { take_back::<dyn Cq>(cq) };
}

unsafe extern "C" fn release_qp(qp: *mut c_void) {
    // SAFETY: the host's last use of the handle.
    unsafe { take_back::<dyn Qp>(qp) };
}

/// A call that reports a refusal as a status without text.
pub(super) fn short(verb: impl FnOnce() -> Result<(), VpStatus>) -> u32 {
    match catch_unwind(AssertUnwindSafe(verb)).unwrap_or(Err(VpStatus::Defect)) {
        Ok(()) => codes::OK,
        Err(status) => codes::status_code(status),
    }
}

unsafe extern "C" fn depth(cq: *mut c_void) -> u32 {
    // SAFETY: the host has not released the handle.
    let cq = unsafe { object::<dyn Cq>(cq) };
    catch_unwind(AssertUnwindSafe(|| cq.depth())).unwrap_or(0)
}

unsafe extern "C" fn queued(cq: *mut c_void) -> u64 {
    // SAFETY: the host has not released the handle.
    let cq = unsafe { object::<dyn Cq>(cq) };
    catch_unwind(AssertUnwindSafe(|| cq.queued() as u64)).unwrap_or(0)
}

unsafe extern "C" fn poll(
    cq: *mut c_void,
    wcs: *mut c::Wc,
    wc_size: u32,
    max: u32,
    count: *mut u32,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let cq = unsafe { object::<dyn Cq>(cq) };
    let place = Place { first: wcs, stride: wc_size };
    let mut done = 0;
    let code = short(|| {
        if max == 1 {
            // SAFETY: the host has room for one completion.
            return unsafe { poll_some::<1>(cq, &place, 1, &mut done) };
        }
        while done < max {
            let (want, before) = ((max - done).min(BATCH as u32), done);
            // SAFETY: the host has room for `max` completions.
            let polled = unsafe { poll_some::<BATCH>(cq, &place, want, &mut done) };
            if polled.is_err() && before > 0 {
                return Ok(());
            }
            polled?;
            if done - before < want {
                break;
            }
        }
        Ok(())
    });
    // SAFETY: the place for the count is as the header demands.
    unsafe { count.write(done) };
    code
}

unsafe extern "C" fn poll_from(
    cq: *mut c_void,
    wcs: *mut c::Wc,
    wc_size: u32,
    sources: *mut c::UdSource,
    source_size: u32,
    max: u32,
    count: *mut u32,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let cq = unsafe { object::<dyn Cq>(cq) };
    let (place, origins) =
        (Place { first: wcs, stride: wc_size }, Place { first: sources, stride: source_size });
    let mut done = 0;
    let code = short(|| {
        while done < max {
            let (mut some, mut from) = ([WorkCompletion::BLANK; BATCH], [None; BATCH]);
            let want = (max - done).min(BATCH as u32) as usize;
            let polled = match cq.poll_from(&mut some[..want], &mut from[..want]) {
                Err(_) if done > 0 => break,
                polled => polled?,
            };
            for (wc, from) in some.iter().zip(&from).take(polled) {
                // SAFETY: the host has room for `max` completions.
                unsafe { put(&place, done, &work::completion_to(wc)) };
                // SAFETY: and for as many sources.
                unsafe { put(&origins, done, &ud::source_to(from.as_ref())) };
                done += 1;
            }
            if polled < want {
                break;
            }
        }
        Ok(())
    });
    // SAFETY: the place for the count is as the header demands.
    unsafe { count.write(done) };
    code
}

/// An array that the host provides.
struct Place<T> {
    first: *mut T,
    stride: u32,
}

/// # Safety
///
/// The place has room for `want` completions from `done` on.
unsafe fn poll_some<const N: usize>(
    cq: &dyn Cq,
    place: &Place<c::Wc>,
    want: u32,
    done: &mut u32,
) -> Result<(), VpStatus> {
    let mut some = [WorkCompletion::BLANK; N];
    let n = cq.poll(&mut some[..want as usize])?;
    for wc in &some[..n] {
        let value = work::completion_to(wc);
        // SAFETY: the caller's promise.
        unsafe { put(place, *done, &value) };
        *done += 1;
    }
    Ok(())
}

/// # Safety
///
/// The place has room for element `at`.
unsafe fn put<T: Sized32>(place: &Place<T>, at: u32, value: &T) {
    // SAFETY: the caller's promise: inside of the host's array.
    let to = unsafe { place.first.byte_add(place.stride as usize * at as usize) };
    if place.stride >= T::SIZE {
        // SAFETY: the host's elements are at least as large as ours.
        return unsafe { to.write(*value) };
    }
    let len = place.stride as usize;
    // SAFETY: the host's element has this many octets; ours has at least as many.
    unsafe { std::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), to.cast(), len) };
}

unsafe extern "C" fn arm(cq: *mut c_void, solicited_only: u32) -> u32 {
    // SAFETY: the host has not released the handle.
    let cq = unsafe { object::<dyn Cq>(cq) };
    short(|| cq.arm(solicited_only != 0))
}

unsafe extern "C" fn wait(cq: *mut c_void, spin: u64, timeout: u64, ready: *mut u32) -> u32 {
    // SAFETY: the host has not released the handle.
    let cq = unsafe { object::<dyn Cq>(cq) };
    let timeout = (timeout != u64::MAX).then(|| Duration::from_nanos(timeout));
    short(|| {
        let there = cq.wait(Duration::from_nanos(spin), timeout)?;
        // SAFETY: the place for the result is as the header demands.
        unsafe { ready.write(there.into()) };
        Ok(())
    })
}

unsafe extern "C" fn interrupt(cq: *mut c_void) {
    // SAFETY: the host has not released the handle.
    let cq = unsafe { object::<dyn Cq>(cq) };
    _ = catch_unwind(AssertUnwindSafe(|| cq.interrupt()));
}

verbs! {
    resize(cq: dyn Cq, depth: u32 => *mut u32) { cq.resize(depth) }
    query(qp: dyn Qp => *mut c::QpInfo) { qp.query().map(|info| qp::info_to(&info)) }
}

unsafe extern "C" fn modify(
    handle: *mut c_void,
    change: *const c::QpChange,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let qp = unsafe { object::<dyn Qp>(handle) };
    let verb = || -> VpResult<()> {
        // SAFETY: null, or a change as the header demands.
        unsafe { super::check("change", change) }?;
        // SAFETY: the same; its socket is ours now.
        let change = unsafe { qp::change_from(change) }?;
        qp.modify(change)
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { super::report(error, verb) }
}

/// A list as the host posts it.
pub(super) struct List<T> {
    first: *const T,
    stride: u32,
    count: u32,
}

impl<T: Sized32> List<T> {
    /// # Safety
    ///
    /// `count` requests from `first` on, each of the size in the first one.
    pub(super) unsafe fn new(first: *const T, count: u32) -> Self {
        // SAFETY: the caller's promise; every request begins with its size.
        let stride = if count == 0 { 0 } else { unsafe { first.cast::<u32>().read() } };
        Self { first, stride, count }
    }

    pub(super) fn get(&self, at: u32) -> Option<T> {
        if at >= self.count {
            return None;
        }
        // SAFETY: `new`'s promise; `at` is inside.
        Some(unsafe { work::element(self.first, self.stride, at) })
    }
}

/// Posts a list in batches. `post` posts the requests from its argument on and returns how many of the batch were
/// accepted.
pub(super) fn in_batches(
    count: u32,
    posted: &mut u32,
    mut post: impl FnMut(u32) -> Result<usize, PostFailure>,
) -> Result<(), VpStatus> {
    while *posted < count {
        match post(*posted) {
            Ok(n) => *posted += n as u32,
            Err(failure) => {
                *posted += failure.posted as u32;
                return Err(failure.status);
            }
        }
    }
    Ok(())
}

const EMPTY: SendWr<'static> = SendWr {
    wr_id: 0,
    op: SendOp::Send { solicited: false, invalidate: None },
    data: Data::Sgl(&[]),
    flags: SendFlags::empty(),
};

/// Posts up to `N` requests of the list.
fn send_some<const N: usize>(
    qp: &dyn Qp,
    list: &List<c::SendWr>,
    from: u32,
) -> Result<usize, PostFailure> {
    let n = (list.count - from).min(N as u32) as usize;
    let mut wrs: [SendWr<'_>; N] = [const { EMPTY }; N];
    let mut good = 0;
    while good < n {
        let Some(wr) = list.get(from + good as u32) else { break };
        // SAFETY: a request as the header demands, until the host's call returns.
        let Some(wr) = (unsafe { work::send_from(&wr) }) else { break };
        wrs[good] = wr;
        good += 1;
    }
    qp.post_send(&wrs[..good])?;
    if good < n {
        return Err(PostFailure { posted: good, status: VpStatus::InvalidWr });
    }
    Ok(n)
}

unsafe extern "C" fn post_send(
    qp: *mut c_void,
    wrs: *const c::SendWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let qp = unsafe { object::<dyn Qp>(qp) };
    // SAFETY: a list as the header demands.
    let list = unsafe { List::new(wrs, count) };
    let mut done = 0;
    let code = short(|| match count {
        1 => in_batches(1, &mut done, |from| send_some::<1>(qp, &list, from)),
        _ => in_batches(count, &mut done, |from| send_some::<BATCH>(qp, &list, from)),
    });
    // SAFETY: the place for the count is as the header demands.
    unsafe { posted.write(done) };
    code
}

/// Posts up to `N` receives of the list.
fn recv_some<const N: usize>(
    post: &dyn Fn(&[RecvWr<'_>]) -> Result<(), PostFailure>,
    list: &List<c::RecvWr>,
    from: u32,
) -> Result<usize, PostFailure> {
    let n = (list.count - from).min(N as u32) as usize;
    let wrs: [RecvWr<'_>; N] = from_fn(|i| {
        let wr = list.get(from + i as u32).unwrap_or_else(c::RecvWr::zeroed);
        // SAFETY: requests as the header demands, until the host's call returns.
        unsafe { work::recv_from(&wr) }
    });
    post(&wrs[..n])?;
    Ok(n)
}

/// # Safety
///
/// A list, and a place for the count, as the header demands.
pub(super) unsafe fn post_receives(
    post: &dyn Fn(&[RecvWr<'_>]) -> Result<(), PostFailure>,
    wrs: *const c::RecvWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let list = unsafe { List::new(wrs, count) };
    let mut done = 0;
    let code = short(|| match count {
        1 => in_batches(1, &mut done, |from| recv_some::<1>(post, &list, from)),
        _ => in_batches(count, &mut done, |from| recv_some::<BATCH>(post, &list, from)),
    });
    // SAFETY: the caller's promise.
    unsafe { posted.write(done) };
    code
}

unsafe extern "C" fn post_recv(
    qp: *mut c_void,
    wrs: *const c::RecvWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let qp = unsafe { object::<dyn Qp>(qp) };
    // SAFETY: list and place are as the header demands.
    unsafe { post_receives(&|list| qp.post_recv(list), wrs, count, posted) }
}

pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut c_void,
    wrs: *const c::RecvWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let srq = unsafe { object::<dyn Srq>(srq) };
    // SAFETY: list and place are as the header demands.
    unsafe { post_receives(&|list| srq.post_recv(list), wrs, count, posted) }
}
