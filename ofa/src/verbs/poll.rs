//! Polling (ibv_poll_cq(3)): the data path. Completions are converted on the stack; nothing is
//! allocated, and no lock is taken except the queue's. The cause of an error is looked up when needed.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use ibv_sys::*;
use vp_api::{WcOpcode, WcStatus, WorkCompletion};

use crate::adapter::Adapter;
use crate::errno::Errno;
use crate::object;
use crate::tuning::{POLL_BATCH, POLLS_PER_YIELD};
use crate::verbs::cq::Cq;
use crate::verbs::datagrams::with_source;
use crate::wc;

pub(super) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, out: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's completion queue.
    let Ok(cq) = (unsafe { object::with(cq) }) else { return -1 };
    let (mut at, end) = (0, most.max(0) as usize);
    let mut put = |wc| {
        // SAFETY: the caller has room for `most`, and no more are put.
        unsafe { out.wrapping_add(at).write(wc) };
        at += 1;
    };
    match cq.poll(end, &mut put) {
        Ok(found) => found as c_int,
        Err(_) => -1,
    }
}

impl Cq {
    /// Takes at most this many completions.
    #[inline]
    pub(super) fn poll(&self, most: usize, put: &mut impl FnMut(ibv_wc)) -> Result<usize, Errno> {
        match self.poll_once(most, put)? {
            0 if self.missed() => self.poll_again(most, put),
            0 => Ok(0),
            found => {
                if self.misses.load(Ordering::Relaxed) != 0 {
                    self.misses.store(0, Ordering::Relaxed);
                }
                Ok(found)
            }
        }
    }

    /// Other threads ran meanwhile: a program that finds nothing may look for an event next, and takes a
    /// disconnection for the end of all completions.
    #[cold]
    fn poll_again(&self, most: usize, put: &mut impl FnMut(ibv_wc)) -> Result<usize, Errno> {
        std::thread::yield_now();
        self.poll_once(most, put)
    }

    #[inline]
    fn poll_once(&self, most: usize, put: &mut impl FnMut(ibv_wc)) -> Result<usize, Errno> {
        let adapter = self.adapter()?;
        let staged = if self.walk.has_any() { self.walk.take(most, put) } else { 0 };
        let wanted = most - staged;
        Ok(staged
            + match wanted {
                0 => 0,
                _ if self.takes_datagrams.load(Ordering::Relaxed) => {
                    self.poll_datagrams(adapter, wanted, put)?
                }
                1 => self.poll_by::<1>(adapter, wanted, put)?,
                _ => self.poll_by::<POLL_BATCH>(adapter, wanted, put)?,
            })
    }

    #[inline]
    fn poll_by<const N: usize>(
        &self,
        adapter: &Adapter,
        most: usize,
        put: &mut impl FnMut(ibv_wc),
    ) -> Result<usize, Errno> {
        let mut batch = [WorkCompletion::BLANK; N];
        let mut found = 0;
        while found < most {
            let room = &mut batch[..N.min(most - found)];
            let wanted = room.len();
            let got = match self.vp().poll(room) {
                Ok(got) => got,
                // First return the completions that were found.
                Err(_) if found > 0 => break,
                Err(status) => return Err(status.into()),
            };
            for completion in &batch[..got] {
                found += usize::from(convert(adapter, completion, put));
            }
            if got < wanted {
                break;
            }
        }
        Ok(found)
    }

    /// As `poll_by`, with the sources of datagrams; at most one batch.
    #[inline(never)]
    fn poll_datagrams(
        &self,
        adapter: &Adapter,
        most: usize,
        put: &mut impl FnMut(ibv_wc),
    ) -> Result<usize, Errno> {
        let mut batch = [WorkCompletion::BLANK; POLL_BATCH];
        let mut from = [None; POLL_BATCH];
        let wanted = most.min(POLL_BATCH);
        let got = self.vp().poll_from(&mut batch[..wanted], &mut from[..wanted])?;
        let mut found = 0;
        for (completion, source) in batch[..got].iter().zip(&from) {
            let mut put = |wc| put(source.as_ref().map_or(wc, |source| with_source(wc, source)));
            found += usize::from(convert(adapter, completion, &mut put));
        }
        Ok(found)
    }

    /// A poll found nothing; true if it is time to yield the processor.
    #[inline]
    fn missed(&self) -> bool {
        let misses = self.misses.load(Ordering::Relaxed) + 1;
        let yields = misses >= POLLS_PER_YIELD;
        self.misses.store(if yields { 0 } else { misses }, Ordering::Relaxed);
        yields
    }
}

/// Puts a completion as programs read it; false: it is returned later. It is written to its place and not returned, which
/// would copy it.
#[inline(always)]
fn convert(adapter: &Adapter, completion: &WorkCompletion, put: &mut impl FnMut(ibv_wc)) -> bool {
    let number = adapter.numbers().get(completion.qp);
    if completion.status == WcStatus::Success && completion.opcode != WcOpcode::Atomic {
        put(wc::of(completion, number));
    } else if let Some(wc) = looked_up(adapter, completion, number) {
        put(wc);
    } else {
        return false;
    }
    true
}

/// A completion that needs more than the provider's fields; `None`: it is returned later.
#[cold]
fn looked_up(adapter: &Adapter, completion: &WorkCompletion, number: u32) -> Option<ibv_wc> {
    let out = wc::of(completion, number);
    match completion.status {
        WcStatus::Success => Some(which_atomic(adapter, completion, out)),
        _ => failed(adapter, completion, out),
    }
}

fn which_atomic(adapter: &Adapter, completion: &WorkCompletion, out: ibv_wc) -> ibv_wc {
    let qp = adapter.directory().queue_pair(completion.qp);
    ibv_wc { opcode: qp.map_or(out.opcode, |qp| qp.next_atomic()), ..out }
}

#[cold]
fn failed(adapter: &Adapter, completion: &WorkCompletion, out: ibv_wc) -> Option<ibv_wc> {
    let (status, vendor_err) = (wc::status(completion), completion.status as u32);
    let plain = ibv_wc { status, vendor_err, ..out };
    let qp = match completion.status {
        WcStatus::Flushed | WcStatus::RemoteTermination | WcStatus::LocalCatastrophic => {
            adapter.directory().queue_pair(completion.qp)
        }
        _ => None,
    };
    qp.map_or(Some(plain), |qp| qp.explain(completion, plain))
}
