//! Taking events from a dispatcher: polling, waiting, callbacks; and posting software events.
//!
//! A dequeue allocates nothing for completions and takes no lock that endpoints share: the handle
//! is looked up without one, the provider's queue is polled directly, and the posted request is
//! found under its own endpoint's lock. Any thread; each event goes to one caller.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ual::vp_api::WorkCompletion;
use ual::{Error, Evd, Event, Stream};

use super::boundary;
use super::evd::EvdObject;
use super::event::write::{Abi, Standard, Zurich};
use super::event::{Fields, datagram_of, fields_of};
use super::failure::{Failure, Outcome};
use super::object;
use super::ptr::{Out, OutList};
use super::resolve::resolve;
use super::status::{self, Status};
use super::types::*;

/// Takes the next event; false: there is none.
pub(crate) fn next<A: Abi>(evd: &EvdObject, out: &Out<A::Event>) -> Outcome<bool> {
    let refused = Failure::by(status::IT_ERR_INVALID_EVD_STATE);
    if evd.inner.stream() == Stream::Completion {
        let mut one = [WorkCompletion::BLANK];
        while evd.inner.poll(&mut one).map_err(&refused)? == 1 {
            if let Some(dto) = resolve(&one[0]) {
                A::write(out, evd.handle, &Fields::Dto(dto));
                return Ok(true);
            }
            // None: the endpoint is gone, and the completion with it.
            if let Some(datagram) = datagram_of(&one[0]) {
                A::write(out, evd.handle, &datagram);
                return Ok(true);
            }
        }
        return Ok(false);
    }
    while let Some(event) = evd.inner.dequeue_from().map_err(&refused)? {
        if give::<A>(evd, event, out) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes an event, with the dispatcher that first got it; false: its object was just freed by another
/// thread.
fn give<A: Abi>(
    evd: &EvdObject,
    (event, origin): (Event, Option<Arc<Evd>>),
    out: &Out<A::Event>,
) -> bool {
    let Some(fields) = fields_of(event, evd.inner.ia()) else { return false };
    A::write(out, origin.map_or(evd.handle, |origin| origin.tag().get()), &fields);
    true
}

/// # Safety
/// `event` obeys the contract of a C caller.
unsafe fn dequeue<A: Abi>(evd_handle: it_evd_handle_t, event: *mut A::Event) -> Status {
    boundary::call(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(event, "event") }?;
        // The most frequent result has no text, so that polling allocates nothing.
        if next::<A>(&evd, &out)? { Ok(()) } else { Err(Failure::EMPTY) }
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_evd_dequeue(
    evd_handle: it_evd_handle_t,
    event: *mut std_abi::it_event_t,
) -> Status {
    // SAFETY: same pointer, same contract.
    unsafe { dequeue::<Standard>(evd_handle, event) }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_evd_dequeue_zrl(
    evd_handle: it_evd_handle_t,
    event: *mut zrl::it_event_t,
) -> Status {
    // SAFETY: same pointer, same contract.
    unsafe { dequeue::<Zurich>(evd_handle, event) }
}

/// # Safety
/// `events` and `dequed_count` obey the contract of a C caller.
unsafe fn dequeue_n<A: Abi>(
    evd_handle: it_evd_handle_t,
    deque_count: c_int,
    events: *mut A::Event,
    dequed_count: *mut c_int,
) -> Status {
    boundary::call(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        let wanted = usize::try_from(deque_count).map_err(|_| {
            let text = format!("{deque_count} events cannot be dequeued");
            Failure::new(status::IT_ERR_INVALID_LENGTH, text)
        })?;
        // SAFETY: contract of a C caller.
        let count = unsafe { Out::new(dequed_count, "dequed_count") }?;
        // SAFETY: contract of a C caller for `deque_count` events.
        let room = unsafe { OutList::new(events, wanted, "events") }?;
        let mut taken = 0;
        let ended = loop {
            let Some(out) = room.at(taken) else { break Ok(()) };
            match next::<A>(&evd, &out) {
                Ok(true) => taken += 1,
                Ok(false) => break Ok(()),
                // Events that were taken must reach the caller.
                Err(_) if taken > 0 => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        count.write(taken as c_int);
        ended
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_evd_dequeue_n(
    evd_handle: it_evd_handle_t,
    deque_count: c_int,
    events: *mut std_abi::it_event_t,
    dequed_count: *mut c_int,
) -> Status {
    // SAFETY: same pointers, same contract.
    unsafe { dequeue_n::<Standard>(evd_handle, deque_count, events, dequed_count) }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_evd_dequeue_n_zrl(
    evd_handle: it_evd_handle_t,
    deque_count: c_int,
    events: *mut zrl::it_event_t,
    dequed_count: *mut c_int,
) -> Status {
    // SAFETY: same pointers, same contract.
    unsafe { dequeue_n::<Zurich>(evd_handle, deque_count, events, dequed_count) }
}

/// A thread inside a wait.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for an event; `timeout`: `None` waits without end. Returns how many are left.
pub(crate) fn wait_for<A: Abi>(
    evd: &EvdObject,
    timeout: Option<Duration>,
    out: &Out<A::Event>,
) -> Outcome<usize> {
    let _waiting = Waiting::new(&evd.waiters);
    let pick = |event, origin| give::<A>(evd, (event, origin), out).then_some(());
    let waited = evd.inner.wait_for(timeout, pick);
    waited.map_err(|error| not_waited(error, evd.inner.queued()))?;
    Ok(evd.inner.queued())
}

/// The failure of a wait that left `queued` events.
#[cold]
fn not_waited(error: Error, queued: usize) -> Failure {
    let silent = matches!(error, Error::Timeout(_)) && queued > 0;
    let mut failure = Failure::of(error, status::IT_ERR_INVALID_EVD_STATE);
    if silent {
        let are = if queued == 1 { "event is" } else { "events are" };
        failure.text.to_mut().push_str(&format!(
            " that ends a wait; {queued} {are} queued: it_evd_dequeue() takes them, and a request posted \
             with IT_COMPLETION_FLAG | IT_NOTIFY_FLAG ends a wait (with a sevd_threshold, so many of them)"
        ));
    }
    failure
}

/// # Safety
/// `event` and `nmore` obey the contract of a C caller.
unsafe fn wait<A: Abi>(
    evd_handle: it_evd_handle_t,
    timeout: u64,
    event: *mut A::Event,
    nmore: *mut usize,
) -> Status {
    boundary::call(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(event, "event") }?;
        // SAFETY: contract of a C caller.
        let nmore = unsafe { Out::optional(nmore) };
        if evd.inner.info().callback {
            let text = "the event dispatcher has a callback, which takes its events";
            return Err(Failure::new(status::IT_ERR_CALLBACK_EXISTS, text));
        }
        let timeout = (timeout != IT_TIMEOUT_INFINITE).then(|| Duration::from_micros(timeout));
        let left = wait_for::<A>(&evd, timeout, &out)?;
        nmore.inspect(|nmore| nmore.write(left));
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_evd_wait(
    evd_handle: it_evd_handle_t,
    timeout: u64,
    event: *mut std_abi::it_event_t,
    nmore: *mut usize,
) -> Status {
    // SAFETY: same pointers, same contract.
    unsafe { wait::<Standard>(evd_handle, timeout, event, nmore) }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_evd_wait_zrl(
    evd_handle: it_evd_handle_t,
    timeout: u64,
    event: *mut zrl::it_event_t,
    nmore: *mut usize,
) -> Status {
    // SAFETY: same pointers, same contract.
    unsafe { wait::<Zurich>(evd_handle, timeout, event, nmore) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_evd_post_se(
    evd_handle: it_evd_handle_t,
    event: *const c_void,
) -> Status {
    boundary::call(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        let posted = evd.inner.post_software(event.addr() as u64);
        posted.map_err(Failure::by(status::IT_ERR_INVALID_SOFT_EVD))
    })
}

/// A function of C with its argument.
struct Callback {
    function: unsafe extern "C" fn(evd: it_evd_handle_t, arg: *mut c_void),
    arg: *mut c_void,
    handle: u64,
}

// SAFETY: the header says that the function is called from a thread of the library; the caller that
// attaches it promises that it and its argument may be used there.
unsafe impl Send for Callback {}
// SAFETY: it is never changed; for its use see above.
unsafe impl Sync for Callback {}

impl Callback {
    fn run(&self) {
        // SAFETY: it is attached until `it_evd_callback_detach` returned; until then the caller keeps
        // function and argument usable from any thread.
        unsafe { (self.function)(object::handle(self.handle), self.arg) }
    }
}

/// # Safety
/// `callback` is NULL, or may be called with `arg` from any thread until it is detached.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_evd_callback_attach(
    evd_handle: it_evd_handle_t,
    callback: it_evd_callback_rtn_t,
    arg: *mut c_void,
) -> Status {
    boundary::create(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        let function = callback.ok_or_else(|| super::ptr::null("callback"))?;
        if evd.has_fd() {
            let text = "the event dispatcher was made with IT_EVD_CREATE_FD: poll its descriptor";
            return Err(Failure::new(status::IT_ERR_MISMATCH_FD, text));
        }
        if evd.waiters.load(Ordering::Acquire) > 0 {
            let text = "a thread waits on the event dispatcher";
            return Err(Failure::new(status::IT_ERR_EVD_WAIT, text));
        }
        let callback = Callback { function, arg, handle: evd.handle };
        let run = move |_: &Arc<Evd>| callback.run();
        let attached = evd.inner.attach_callback(Box::new(run));
        attached.map_err(Failure::by(status::IT_ERR_CALLBACK_EXISTS))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_evd_callback_detach(evd_handle: it_evd_handle_t) -> Status {
    boundary::call(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        evd.inner.detach_callback().map_err(Failure::by(status::IT_ERR_INVALID_EVD_STATE))
    })
}
