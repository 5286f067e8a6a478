//! Imported completion queues, shared receive queues and queue pairs: the data path. A post or a poll is one call
//! through a function pointer, with conversion on the stack.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use super::super::types::{Plain, Sized32};
use super::super::work::{self, Extra};
use super::super::{codes, types as c};
use super::super::{qp, ud};
use super::calls::{defect, quick};
use super::rnic::Handle;
use super::{table_of, verb};
use crate::{
    Cq, CqId, DatagramSource, PostFailure, Qp, QpChange, QpId, QpInfo, RecvWr, SendWr, Srq, SrqId,
    SrqInfo, VpResult, VpStatus, WorkCompletion,
};

/// Requests and completions that are converted at a time, on the stack.
const BATCH: usize = 8;

/// A list element followed by extra octets, as in lists of a later minor version. All lists are made of these, so
/// that a provider that steps by its own `sizeof` fails at once.
#[derive(Clone, Copy)]
#[repr(C)]
struct Roomy<T> {
    known: T,
    later: u64,
}

// SAFETY: numbers after a plain value.
unsafe impl<T: Plain> Plain for Roomy<T> {}

impl<T: Plain> Roomy<T> {
    const SIZE: u32 = size_of::<Self>() as u32;
}

macro_rules! imported {
    ($name:ident $ops:ident $take:ident $made:ident $handle:ident $object:ident $id:ident
        $table:literal: $($entry:ident)+) => {
        struct $name {
            id: $id,
            handle: *mut c_void,
            ops: c::$ops,
            // Dropped after the handle is released.
            _rnic: Arc<Handle>,
        }

        // SAFETY: the header lets every function be called from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as for `Send`.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                if let Some(release) = self.ops.release {
                    // SAFETY: the last use of the handle, before the RNIC is closed.
                    unsafe { release(self.handle) };
                }
            }
        }

        /// Checks the object that the provider returned.
        pub(super) fn $take(made: &c::$made, rnic: &Arc<Handle>) -> VpResult<Arc<dyn $object>> {
            let ops = table_of!(made, $handle, $table: release $($entry)+)?;
            let (id, handle) = ($id(made.id), made.$handle);
            Ok(Arc::new($name { id, handle, ops, _rnic: rnic.clone() }))
        }
    };
}

pub(super) use imported;

imported! { ImportedCq CqOps take CqMade cq Cq CqId "ri_cq_ops": depth poll arm wait interrupt }
imported! { ImportedSrq SrqOps take_srq SrqMade srq Srq SrqId "ri_srq_ops": post_recv }
imported! { ImportedQp QpOps take_qp QpMade qp Qp QpId "ri_qp_ops": post_send modify query }

impl ImportedCq {
    #[inline]
    fn completion(&self, from: &c::Wc) -> Result<WorkCompletion, VpStatus> {
        let wc = work::completion_from(from)?;
        if wc.octets > self._rnic.max_octets { Err(VpStatus::LongWc(wc.octets)) } else { Ok(wc) }
    }

    fn poll_one(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        let (mut wc, mut n, max) = (c::Wc::zeroed(), 0, out.len().min(1) as u32);
        let (first, count) = (&raw mut wc, &raw mut n);
        quick!(self.ops.poll, self.handle, first, c::Wc::SIZE, max, count)?;
        match out {
            [to] if n == 1 => *to = self.completion(&wc)?,
            _ if n == 0 => {}
            _ => return Err(VpStatus::Defect),
        }
        Ok(n as usize)
    }

    fn poll_some(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        let mut wcs: [Roomy<c::Wc>; BATCH] = work::blanks();
        let (mut n, max) = (0, out.len().min(BATCH) as u32);
        let (first, count) = (wcs.as_mut_ptr().cast(), &raw mut n);
        quick!(self.ops.poll, self.handle, first, Roomy::<c::Wc>::SIZE, max, count)?;
        let got = wcs.get(..n as usize).filter(|_| n <= max).ok_or(VpStatus::Defect)?;
        for (to, from) in out.iter_mut().zip(got) {
            *to = self.completion(&from.known)?;
        }
        Ok(n as usize)
    }
}

impl ImportedCq {
    fn poll_some_from(
        &self,
        out: &mut [WorkCompletion],
        from: &mut [Option<DatagramSource>],
    ) -> Result<usize, VpStatus> {
        let (mut wcs, mut sources): ([Roomy<c::Wc>; BATCH], [Roomy<c::UdSource>; BATCH]) =
            (work::blanks(), work::blanks());
        let (mut n, max) = (0, out.len().min(BATCH) as u32);
        let (first, origins) = (wcs.as_mut_ptr().cast(), sources.as_mut_ptr().cast());
        let (wc_size, size) = (Roomy::<c::Wc>::SIZE, Roomy::<c::UdSource>::SIZE);
        let count = &raw mut n;
        quick!(self.ops.poll_from, self.handle, first, wc_size, origins, size, max, count)?;
        let got = wcs.get(..n as usize).filter(|_| n <= max).ok_or(VpStatus::Defect)?;
        for ((out, from), (wc, source)) in out.iter_mut().zip(from).zip(got.iter().zip(&sources)) {
            *out = self.completion(&wc.known)?;
            *from = ud::source_from(&source.known);
        }
        Ok(n as usize)
    }
}

impl Cq for ImportedCq {
    fn id(&self) -> CqId {
        self.id
    }

    fn depth(&self) -> u32 {
        // SAFETY: the handle is alive.
        self.ops.depth.map_or(0, |depth| unsafe { depth(self.handle) })
    }

    fn queued(&self) -> usize {
        // SAFETY: the handle is alive.
        self.ops.queued.map_or(0, |queued| unsafe { queued(self.handle) } as usize)
    }

    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        if out.len() <= 1 {
            return self.poll_one(out);
        }
        let mut done = 0;
        for some in out.chunks_mut(BATCH) {
            match self.poll_some(some) {
                Ok(n) => {
                    done += n;
                    if n < some.len() {
                        break;
                    }
                }
                // The next poll returns the error again, with no completions before it.
                Err(_) if done > 0 => break,
                Err(status) => return Err(status),
            }
        }
        Ok(done)
    }

    fn poll_from(
        &self,
        out: &mut [WorkCompletion],
        from: &mut [Option<DatagramSource>],
    ) -> Result<usize, VpStatus> {
        let most = out.len().min(from.len());
        if self.ops.poll_from.is_none() {
            from.fill(None);
            return self.poll(&mut out[..most]);
        }
        let mut done = 0;
        for (some, from) in out[..most].chunks_mut(BATCH).zip(from.chunks_mut(BATCH)) {
            match self.poll_some_from(some, from) {
                Ok(n) => {
                    done += n;
                    if n < some.len() {
                        break;
                    }
                }
                // The next poll returns the error again, with no completions before it.
                Err(_) if done > 0 => break,
                Err(status) => return Err(status),
            }
        }
        Ok(done)
    }

    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus> {
        quick!(self.ops.arm, self.handle, solicited_only.into())
    }

    fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        let (mut ready, timeout) = (0, timeout.map_or(u64::MAX, qp::ns));
        quick!(self.ops.wait, self.handle, qp::ns(spin), timeout, &raw mut ready)?;
        Ok(ready != 0)
    }

    fn interrupt(&self) {
        if let Some(interrupt) = self.ops.interrupt {
            // SAFETY: the handle is alive.
            unsafe { interrupt(self.handle) };
        }
    }

    fn resize(&self, depth: u32) -> VpResult<u32> {
        let mut actual = 0;
        verb!(self.ops.resize, "resize", self.handle, depth, &raw mut actual)?;
        Ok(actual)
    }
}

/// Posts a list in batches; `post` returns how many of the batch were taken, and whether all.
pub(super) fn in_batches<T>(
    list: &[T],
    size: usize,
    mut post: impl FnMut(&[T], &mut u32) -> Result<(), VpStatus>,
) -> Result<(), PostFailure> {
    let mut done = 0;
    for some in list.chunks(size) {
        let mut posted = 0;
        let result = post(some, &mut posted);
        let posted = posted as usize;
        done += posted.min(some.len());
        // All were taken, or fewer with an error; never more than were passed.
        let counts = if result.is_ok() { posted == some.len() } else { posted <= some.len() };
        let result = if counts { result } else { Err(VpStatus::Defect) };
        result.map_err(|status| PostFailure { posted: done, status })?;
    }
    Ok(())
}

type PostRecv = unsafe extern "C" fn(*mut c_void, *const c::RecvWr, u32, *mut u32) -> u32;

pub(super) fn post_receives(
    entry: Option<PostRecv>,
    handle: *mut c_void,
    wrs: &[RecvWr<'_>],
) -> Result<(), PostFailure> {
    in_batches(wrs, BATCH, |some, posted| {
        if let [wr] = some {
            let lent = work::recv_to(wr);
            return quick!(entry, handle, &raw const lent, 1, &raw mut *posted);
        }
        let mut lent: [Roomy<c::RecvWr>; BATCH] = work::blanks();
        for (to, wr) in lent.iter_mut().zip(some) {
            to.known = c::RecvWr { size: Roomy::<c::RecvWr>::SIZE, ..work::recv_to(wr) };
        }
        quick!(entry, handle, lent.as_ptr().cast(), some.len() as u32, &raw mut *posted)
    })
}

impl Srq for ImportedSrq {
    fn id(&self) -> SrqId {
        self.id
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        post_receives(self.ops.post_recv, self.handle, wrs)
    }

    fn modify(&self, depth: Option<u32>, limit: Option<u32>) -> VpResult<SrqInfo> {
        let bit = |value: Option<u32>, bit| if value.is_some() { bit } else { 0 };
        let which = bit(depth, codes::flag::SRQ_DEPTH) | bit(limit, codes::flag::SRQ_LIMIT);
        let (depth, limit) = (depth.unwrap_or(0), limit.unwrap_or(0));
        let mut info = c::SrqInfo::blank();
        let out = &raw mut info;
        verb!(self.ops.modify, "modify of an SRQ", self.handle, which, depth, limit, out)?;
        Ok(qp::srq_info_from(&info))
    }

    fn query(&self) -> VpResult<SrqInfo> {
        let mut info = c::SrqInfo::blank();
        verb!(self.ops.query, "query of an SRQ", self.handle, &raw mut info)?;
        Ok(qp::srq_info_from(&info))
    }
}

impl Qp for ImportedQp {
    fn id(&self) -> QpId {
        self.id
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        // Operations that need more octets than a request has are rare, and posted one by one.
        let plain = wrs.len() > 1 && !wrs.iter().any(|wr| Extra::has(&wr.op));
        in_batches(wrs, if plain { BATCH } else { 1 }, |some, posted| {
            if let [wr] = some {
                let extra = Extra::of(&wr.op);
                if !self._rnic.based && extra.as_ref().is_some_and(Extra::is_based) {
                    return Err(VpStatus::Unsupported);
                }
                let beside = extra.as_ref().map_or(std::ptr::null(), Extra::pointer);
                let lent = work::send_to(wr, beside);
                let one = &raw const lent;
                return quick!(self.ops.post_send, self.handle, one, 1, &raw mut *posted);
            }
            let mut lent: [Roomy<c::SendWr>; BATCH] = work::blanks();
            for (to, wr) in lent.iter_mut().zip(some) {
                let wr = work::send_to(wr, std::ptr::null());
                to.known = c::SendWr { size: Roomy::<c::SendWr>::SIZE, ..wr };
            }
            let (first, count) = (lent.as_ptr().cast(), some.len() as u32);
            quick!(self.ops.post_send, self.handle, first, count, &raw mut *posted)
        })
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        post_receives(self.ops.post_recv, self.handle, wrs)
    }

    fn modify(&self, change: QpChange) -> VpResult<()> {
        qp::lend_change(change, |lent| {
            verb!(self.ops.modify, "modify of a QP", self.handle, &raw const *lent)
        })
    }

    fn query(&self) -> VpResult<QpInfo> {
        let mut info = c::QpInfo::blank();
        verb!(self.ops.query, "query of a QP", self.handle, &raw mut info)?;
        qp::info_from(&info).ok_or_else(|| defect("ri_qp_info.state is none of the five"))
    }
}
