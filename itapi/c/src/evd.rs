//! Event dispatchers: creation, queries, changes. `dequeue` takes events from them.
//!
//! An EvdObject owns its dispatcher and counts the threads that wait. Any thread.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use std::os::fd::AsRawFd;
use ual::{Error, Evd, EvdInfo, EvdInit, Ia, Overflow, Stream};

use super::boundary;
use super::event::write::{Abi, Standard, Zurich};
use super::failure::{Failure, Outcome};
use super::ia::IaObject;
use super::object::{self, CloseOrder, Kind, Object, Ref};
use super::ptr::{self, Out};
use super::status::{self, Status};
use super::types::*;

/// The object behind the handle of an event dispatcher.
pub(crate) struct EvdObject {
    pub(crate) inner: Arc<Evd>,
    /// Its own handle.
    pub(crate) handle: u64,
    /// As created, without the overflow flags.
    flags: it_evd_flags_t,
    /// Threads inside `it_evd_wait`.
    pub(crate) waiters: AtomicU32,
}

impl Object for EvdObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_EVD,
            name: "event dispatcher",
            wrong: status::IT_ERR_INVALID_EVD,
        }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.ia().clone()
    }

    fn close_order(&self) -> CloseOrder {
        match self.inner.stream() {
            Stream::Aggregate => CloseOrder::Aggregates,
            _ => CloseOrder::Dispatchers,
        }
    }

    fn abort(&self) {
        self.inner.abort();
        // No callback is attached: nothing to detach.
        let _ = self.inner.detach_callback();
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

const OVERFLOW_FLAGS: it_evd_flags_t =
    IT_EVD_OVERFLOW_DEFAULT | IT_EVD_OVERFLOW_NOTIFY | IT_EVD_OVERFLOW_AUTO_RESET;
const FLAGS: it_evd_flags_t = OVERFLOW_FLAGS | IT_EVD_DEQUEUE_NOTIFICATIONS | IT_EVD_CREATE_FD;

/// Attributes that `it_evd_modify` can change.
const MODIFIABLE: it_evd_param_mask_t = IT_EVD_PARAM_FLAG
    | IT_EVD_PARAM_QUEUE_SIZE
    | IT_EVD_PARAM_THRESHOLD
    | IT_EVD_PARAM_AEVD_HANDLE
    | IT_EVD_PARAM_ENABLED
    | IT_EVD_PARAM_OVERFLOWED;
const PARAMS: it_evd_param_mask_t = MODIFIABLE
    | IT_EVD_PARAM_ALL
    | IT_EVD_PARAM_IA
    | IT_EVD_PARAM_EVENT_NUMBER
    | IT_EVD_PARAM_FD
    | IT_EVD_PARAM_BOUND
    | IT_EVD_PARAM_CALLBACK;

/// Events that a queue which is not a completion queue may hold.
const MAX_QUEUE: usize = 1 << 24;

/// # Safety
/// `evd_handle` and `fd` obey the contract of a C caller.
#[allow(clippy::too_many_arguments)] // the C function's
unsafe fn create<A: Abi>(
    ia_handle: it_ia_handle_t,
    event_number: it_event_type_t,
    evd_flag: it_evd_flags_t,
    sevd_queue_size: usize,
    sevd_threshold: usize,
    aevd_handle: it_evd_handle_t,
    evd_handle: *mut it_evd_handle_t,
    fd: *mut c_int,
) -> Status {
    boundary::create(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?.inner.clone();
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(evd_handle, "evd_handle") }?;
        // SAFETY: contract of a C caller.
        let fd = unsafe { Out::optional(fd) };
        let stream = stream_of(event_number)?;
        check_flags(evd_flag, stream, fd.is_some())?;
        let init = EvdInit {
            threshold: 1,
            aggregate: aggregate_of(&ia, stream, aevd_handle)?,
            overflow: overflow_of(evd_flag)?,
            underlying: evd_flag & IT_EVD_DEQUEUE_NOTIFICATIONS == 0,
            wanted: A::hears_of,
            ..EvdInit::new(stream, 1)
        };
        let init = match stream {
            Stream::Aggregate => init,
            _ => {
                let depth = check_queue(&ia, stream, sevd_queue_size)?;
                EvdInit { depth, threshold: check_threshold(sevd_threshold, depth)?, ..init }
            }
        };
        let evd = ia.create_evd(init).map_err(Failure::by(already(&ia, stream)))?;
        let descriptor = match evd_flag & IT_EVD_CREATE_FD {
            0 => -1,
            _ => evd.fd().map_err(Failure::by(status::IT_ERR_RESOURCES))?.as_raw_fd(),
        };
        let raw = object::insert(|raw| {
            evd.tag().set(raw.number());
            let flags = evd_flag & !OVERFLOW_FLAGS;
            EvdObject { inner: evd, handle: raw.number(), flags, waiters: AtomicU32::new(0) }
        })?;
        fd.inspect(|fd| fd.write(descriptor));
        out.write(object::handle(raw.number()));
        Ok(())
    })
}

/// Both layouts have the same arguments; they differ in the events that a dispatcher gets.
macro_rules! create {
    ($call:ident, $layout:ident) => {
        /// # Safety
        /// Pointers obey the contract of a C caller (see `ptr`).
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $call(
            ia_handle: it_ia_handle_t,
            event_number: it_event_type_t,
            evd_flag: it_evd_flags_t,
            sevd_queue_size: usize,
            sevd_threshold: usize,
            aevd_handle: it_evd_handle_t,
            evd_handle: *mut it_evd_handle_t,
            fd: *mut c_int,
        ) -> Status {
            // SAFETY: same pointers, same contract.
            unsafe {
                create::<$layout>(
                    ia_handle,
                    event_number,
                    evd_flag,
                    sevd_queue_size,
                    sevd_threshold,
                    aevd_handle,
                    evd_handle,
                    fd,
                )
            }
        }
    };
}
create!(it_evd_create, Standard);
create!(it_evd_create_zrl, Zurich);

fn stream_of(event_number: it_event_type_t) -> Outcome<Stream> {
    Ok(match event_number {
        IT_DTO_EVENT_STREAM => Stream::Completion,
        IT_CM_REQ_EVENT_STREAM => Stream::Request,
        IT_CM_MSG_EVENT_STREAM => Stream::Connection,
        IT_ASYNC_AFF_EVENT_STREAM => Stream::Affiliated,
        IT_ASYNC_UNAFF_EVENT_STREAM => Stream::Unaffiliated,
        IT_SOFTWARE_EVENT_STREAM => Stream::Software,
        IT_AEVD_NOTIFICATION_EVENT_STREAM => Stream::Aggregate,
        other => {
            let text = format!("{other:#x} is no event stream: pass one of the IT_*_EVENT_STREAM");
            return Err(Failure::new(status::IT_ERR_INVALID_EVD_TYPE, text));
        }
    })
}

fn number_of(stream: Stream) -> it_event_type_t {
    match stream {
        Stream::Completion => IT_DTO_EVENT_STREAM,
        Stream::Request => IT_CM_REQ_EVENT_STREAM,
        Stream::Connection => IT_CM_MSG_EVENT_STREAM,
        Stream::Affiliated => IT_ASYNC_AFF_EVENT_STREAM,
        Stream::Unaffiliated => IT_ASYNC_UNAFF_EVENT_STREAM,
        Stream::Software => IT_SOFTWARE_EVENT_STREAM,
        Stream::Aggregate => IT_AEVD_NOTIFICATION_EVENT_STREAM,
    }
}

/// No overflow flag means the default: notify, and reset by itself.
fn overflow_of(flags: it_evd_flags_t) -> Outcome<Overflow> {
    let chosen = flags & (IT_EVD_OVERFLOW_NOTIFY | IT_EVD_OVERFLOW_AUTO_RESET);
    match (chosen, flags & IT_EVD_OVERFLOW_DEFAULT != 0) {
        (0, _) => Ok(Overflow::default()),
        (_, false) => Ok(Overflow {
            notify: flags & IT_EVD_OVERFLOW_NOTIFY != 0,
            auto_reset: flags & IT_EVD_OVERFLOW_AUTO_RESET != 0,
        }),
        (_, true) => {
            let text = "IT_EVD_OVERFLOW_DEFAULT excludes the other overflow flags";
            Err(Failure::new(status::IT_ERR_INVALID_FLAGS, text))
        }
    }
}

fn check_flags(flags: it_evd_flags_t, stream: Stream, has_fd: bool) -> Outcome {
    super::check_bits(flags, FLAGS, status::IT_ERR_INVALID_FLAGS, "evd_flag")?;
    if flags & IT_EVD_DEQUEUE_NOTIFICATIONS != 0 && stream != Stream::Aggregate {
        let text = "IT_EVD_DEQUEUE_NOTIFICATIONS is for aggregate event dispatchers only";
        return Err(Failure::new(status::IT_ERR_INVALID_FLAGS, text));
    }
    if flags & IT_EVD_CREATE_FD != 0 && !has_fd {
        let text = "IT_EVD_CREATE_FD returns a descriptor in fd, but fd is NULL";
        return Err(Failure::new(status::IT_ERR_MISMATCH_FD, text));
    }
    Ok(())
}

fn check_queue(ia: &Ia, stream: Stream, size: usize) -> Outcome<u32> {
    let most = match stream {
        Stream::Completion => ia.attrs().max_cqe as usize,
        _ => MAX_QUEUE,
    };
    if size == 0 {
        let text = "an event dispatcher needs a queue of at least one event";
        return Err(Failure::new(status::IT_ERR_INVALID_QUEUE_SIZE, text));
    }
    u32::try_from(size).ok().filter(|_| size <= most).ok_or_else(|| {
        let text = format!("a queue of {size} events is too large: at most {most}");
        Failure::new(status::IT_ERR_RESOURCE_QUEUE_SIZE, text)
    })
}

fn check_threshold(threshold: usize, depth: u32) -> Outcome<u32> {
    u32::try_from(threshold).ok().filter(|threshold| *threshold <= depth).ok_or_else(|| {
        let text = format!("a threshold of {threshold} is never met by a queue of {depth} events");
        Failure::new(status::IT_ERR_INVALID_THRESHOLD, text)
    })
}

/// The aggregate dispatcher that another one is to feed.
fn aggregate_of(ia: &Arc<Ia>, stream: Stream, aevd: it_evd_handle_t) -> Outcome<Option<Arc<Evd>>> {
    if aevd.is_null() {
        return Ok(None);
    }
    if stream == Stream::Aggregate {
        let text = "an aggregate event dispatcher cannot feed another one";
        return Err(Failure::new(status::IT_ERR_AEVD_NOT_ALLOWED, text));
    }
    let found = object::find_or::<EvdObject>(aevd.cast(), status::IT_ERR_INVALID_AEVD)?;
    let aevd = &found.inner;
    if aevd.stream() != Stream::Aggregate || !Arc::ptr_eq(aevd.ia(), ia) {
        let text = "aevd_handle must be an aggregate event dispatcher of the same adapter";
        return Err(Failure::new(status::IT_ERR_INVALID_AEVD, text));
    }
    Ok(Some(aevd.clone()))
}

/// A dispatcher for one of an endpoint's streams; `wrong` is the status for another handle.
pub(crate) fn dispatcher(
    handle: it_evd_handle_t,
    ia: &Arc<Ia>,
    streams: &[Stream],
    wrong: Status,
) -> Outcome<Ref<EvdObject>> {
    let evd = object::find_or::<EvdObject>(handle.cast(), wrong)?;
    let stream = evd.inner.stream();
    if !Arc::ptr_eq(evd.inner.ia(), ia) {
        let text = "the event dispatcher is of another interface adapter than the protection zone";
        return Err(Failure::new(wrong, text));
    }
    if streams.contains(&stream) {
        return Ok(evd);
    }
    let status = match stream {
        Stream::Aggregate => status::IT_ERR_AEVD_NOT_ALLOWED,
        _ => status::IT_ERR_INVALID_EVD_TYPE,
    };
    let text = format!("the dispatcher carries {stream:?} events; this needs one of {streams:?}");
    Err(Failure::new(status, text))
}

/// The status for an argument that `create_evd` refuses: the stream is known to be valid.
fn already(ia: &Ia, stream: Stream) -> Status {
    match stream {
        Stream::Affiliated if ia.affiliated_evd().is_some() => status::IT_ERR_ASYNC_AFF_EVD_EXISTS,
        Stream::Unaffiliated if ia.unaffiliated_evd().is_some() => {
            status::IT_ERR_ASYNC_UNAFF_EVD_EXISTS
        }
        _ => status::IT_ERR_RESOURCES,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_evd_free(evd_handle: it_evd_handle_t) -> Status {
    boundary::call(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        evd.inner.close().map_err(|error| match error {
            Error::InUse { .. } if evd.waiters.load(Ordering::Acquire) > 0 => {
                Failure::new(status::IT_ERR_EVD_WAIT, "a thread waits on the event dispatcher")
            }
            other => Failure::of(other, status::IT_ERR_EVD_BUSY),
        })?;
        object::forget(evd_handle.cast());
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_evd_query(
    evd_handle: it_evd_handle_t,
    mask: it_evd_param_mask_t,
    params: *mut it_evd_param_t,
) -> Status {
    boundary::call(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        super::check_mask(mask, PARAMS)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(params, "params") }?;
        out.write(params_of(&evd, &evd.inner.info()));
        Ok(())
    })
}

fn params_of(evd: &EvdObject, info: &EvdInfo) -> it_evd_param_t {
    let flag = |on: bool, flag| if on { flag } else { 0 };
    it_evd_param_t {
        ia: object::handle(evd.inner.ia().tag().get()),
        event_number: number_of(info.stream),
        evd_flag: evd.flags
            | flag(info.overflow.notify, IT_EVD_OVERFLOW_NOTIFY)
            | flag(info.overflow.auto_reset, IT_EVD_OVERFLOW_AUTO_RESET),
        sevd_queue_size: info.depth as usize,
        sevd_threshold: info.threshold as usize,
        aevd: object::handle(info.aggregate.as_ref().map_or(0, |aevd| aevd.tag().get())),
        fd: info.fd.filter(|_| evd.has_fd()).unwrap_or(-1),
        evd_bound: boolean(info.bound),
        evd_enabled: boolean(info.enabled),
        evd_overflowed: boolean(info.overflowed),
        evd_callback: boolean(info.callback),
    }
}

impl EvdObject {
    /// Made with `IT_EVD_CREATE_FD`.
    pub(crate) fn has_fd(&self) -> bool {
        self.flags & IT_EVD_CREATE_FD != 0
    }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_evd_modify(
    evd_handle: it_evd_handle_t,
    mask: it_evd_param_mask_t,
    params: *const it_evd_param_t,
) -> Status {
    boundary::call(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        super::check_mask(mask, MODIFIABLE | IT_EVD_PARAM_ALL)?;
        // SAFETY: contract of a C caller.
        let params = unsafe { ptr::read(params, "params") }?;
        modify(&evd, mask, &params)
    })
}

/// Checks everything, then changes.
fn modify(evd: &EvdObject, mask: it_evd_param_mask_t, params: &it_evd_param_t) -> Outcome {
    let evd = &evd.inner;
    let simple = evd.stream() != Stream::Aggregate;
    let chosen = |bit| mask & bit != 0 || (mask & IT_EVD_PARAM_ALL != 0 && simple);
    if !simple && mask & (IT_EVD_PARAM_QUEUE_SIZE | IT_EVD_PARAM_THRESHOLD) != 0 {
        let text = "an aggregate event dispatcher has neither queue nor threshold";
        return Err(Failure::new(status::IT_ERR_OP_NOT_SUPPORTED, text));
    }
    let info = evd.info();
    let pick = |bit| chosen(bit).then_some(());
    let size = pick(IT_EVD_PARAM_QUEUE_SIZE)
        .map(|()| check_queue(evd.ia(), info.stream, params.sevd_queue_size))
        .transpose()?;
    let depth = size.unwrap_or(info.depth);
    let threshold = match pick(IT_EVD_PARAM_THRESHOLD) {
        Some(()) => check_threshold(params.sevd_threshold, depth)?,
        None if simple => check_threshold(info.threshold as usize, depth)?,
        None => info.threshold,
    };
    let aggregate = pick(IT_EVD_PARAM_AEVD_HANDLE)
        .map(|()| aggregate_of(evd.ia(), info.stream, params.aevd))
        .transpose()?;
    let overflow = pick(IT_EVD_PARAM_FLAG).map(|()| overflow_of(params.evd_flag)).transpose()?;
    if chosen(IT_EVD_PARAM_OVERFLOWED) && params.evd_overflowed != IT_FALSE && !info.overflowed {
        let text = "evd_overflowed can be cleared, not set";
        return Err(Failure::new(status::IT_ERR_INVALID_EVD_STATE, text));
    }
    let by = Failure::by;
    let set_threshold = || match threshold == info.threshold {
        true => Ok(()),
        false => evd.set_threshold(threshold).map_err(by(status::IT_ERR_INVALID_THRESHOLD)),
    };
    // The queue never holds fewer events than the threshold asks for.
    if threshold < info.threshold {
        set_threshold()?;
    }
    size.map(|size| evd.resize(size).map_err(by(status::IT_ERR_INVALID_QUEUE_SIZE))).transpose()?;
    if threshold > info.threshold {
        set_threshold()?;
    }
    aggregate
        .map(|aevd| evd.set_aggregate(aevd.as_ref()).map_err(by(status::IT_ERR_INVALID_AEVD)))
        .transpose()?;
    overflow.into_iter().for_each(|overflow| evd.set_overflow(overflow));
    if chosen(IT_EVD_PARAM_OVERFLOWED) && params.evd_overflowed == IT_FALSE {
        evd.clear_overflow();
    }
    if chosen(IT_EVD_PARAM_ENABLED) {
        let enabled = params.evd_enabled != IT_FALSE;
        evd.set_enabled(enabled).map_err(by(status::IT_ERR_INVALID_EVD_STATE))?;
    }
    Ok(())
}
