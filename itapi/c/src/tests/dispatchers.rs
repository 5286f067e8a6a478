//! Tests of event dispatchers: flags, parameters, software events, waiting, aggregates, callbacks.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::dequeue::*;
use crate::evd::*;
use crate::object;
use crate::ptr::Plain;
use std_abi::it_event_t;

/// Long enough for anything; a test that needs it fails.
const HANG: u64 = 30_000_000;

struct Wanted {
    stream: it_event_type_t,
    flags: it_evd_flags_t,
    depth: usize,
    threshold: usize,
    aevd: it_evd_handle_t,
}

impl Wanted {
    const SOFTWARE: Self = Self {
        stream: IT_SOFTWARE_EVENT_STREAM,
        flags: 0,
        depth: 8,
        threshold: 1,
        aevd: null_mut(),
    };
    const AGGREGATE: Self = Self { stream: IT_AEVD_NOTIFICATION_EVENT_STREAM, ..Self::SOFTWARE };

    fn create(&self, ia: &Adapter) -> Result<(it_evd_handle_t, c_int), Status> {
        let (mut evd, mut fd) = (null_mut(), 77);
        let (depth, threshold) = (self.depth, self.threshold);
        let (out, place) = (&raw mut evd, &raw mut fd);
        // SAFETY: room for both results.
        let created = unsafe {
            it_evd_create(ia.0, self.stream, self.flags, depth, threshold, self.aevd, out, place)
        };
        if created == IT_SUCCESS { Ok((evd, fd)) } else { Err(created) }
    }
}

fn software(ia: &Adapter) -> it_evd_handle_t {
    Wanted::SOFTWARE.create(ia).unwrap().0
}

fn post(evd: it_evd_handle_t, data: usize) -> Status {
    it_evd_post_se(evd, std::ptr::without_provenance(data))
}

fn dequeue(evd: it_evd_handle_t) -> Result<it_event_t, Status> {
    let mut event = it_event_t::zeroed();
    // SAFETY: room for an event.
    let taken = unsafe { it_evd_dequeue(evd, &raw mut event) };
    if taken == IT_SUCCESS { Ok(event) } else { Err(taken) }
}

fn wait(evd: it_evd_handle_t, timeout: u64) -> Result<(it_event_t, usize), Status> {
    let (mut event, mut more) = (it_event_t::zeroed(), 0);
    // SAFETY: room for an event and a number.
    let taken = unsafe { it_evd_wait(evd, timeout, &raw mut event, &raw mut more) };
    if taken == IT_SUCCESS { Ok((event, more)) } else { Err(taken) }
}

fn data(event: &it_event_t) -> usize {
    // SAFETY: plain data; the callers expect a software event.
    let event = unsafe { event.sw };
    assert_eq!(event.event_number, IT_SOFTWARE_EVENT);
    event.data.addr()
}

// [it_evd_create]
#[test]
fn a_dispatcher_is_made_as_its_arguments_say_or_not_at_all() {
    let ia = Adapter::new();
    let with = |change: fn(&mut Wanted)| {
        let mut wanted = Wanted::SOFTWARE;
        change(&mut wanted);
        wanted.create(&ia).map(|(_, fd)| fd)
    };
    assert_eq!(with(|_| {}), Ok(-1));
    assert_eq!(with(|w| w.stream = 0x1001), Err(IT_ERR_INVALID_EVD_TYPE));
    assert_eq!(with(|w| w.flags = 0x20), Err(IT_ERR_INVALID_FLAGS));
    assert_eq!(with(|w| w.flags = IT_EVD_DEQUEUE_NOTIFICATIONS), Err(IT_ERR_INVALID_FLAGS));
    let both = |w: &mut Wanted| w.flags = IT_EVD_OVERFLOW_DEFAULT | IT_EVD_OVERFLOW_NOTIFY;
    assert_eq!(with(both), Err(IT_ERR_INVALID_FLAGS));
    assert_eq!(with(|w| w.depth = 0), Err(IT_ERR_INVALID_QUEUE_SIZE));
    assert_eq!(with(|w| w.depth = usize::MAX), Err(IT_ERR_RESOURCE_QUEUE_SIZE));
    assert_eq!(with(|w| w.threshold = 9), Err(IT_ERR_INVALID_THRESHOLD));
    assert_eq!(with(|w| w.threshold = 0), Ok(-1));
    assert!(with(|w| w.flags = IT_EVD_CREATE_FD).unwrap() >= 0);
    let wrong = Wanted { aevd: software(&ia), ..Wanted::SOFTWARE };
    assert_eq!(wrong.create(&ia), Err(IT_ERR_INVALID_AEVD));
    let (aevd, _) = Wanted::AGGREGATE.create(&ia).unwrap();
    let nested = Wanted { aevd, ..Wanted::AGGREGATE };
    assert_eq!(nested.create(&ia), Err(IT_ERR_AEVD_NOT_ALLOWED));
    let other = Adapter::new();
    let foreign = Wanted { aevd, ..Wanted::SOFTWARE };
    assert_eq!(foreign.create(&other), Err(IT_ERR_INVALID_AEVD));
    for (stream, taken) in [
        (IT_ASYNC_AFF_EVENT_STREAM, IT_ERR_ASYNC_AFF_EVD_EXISTS),
        (IT_ASYNC_UNAFF_EVENT_STREAM, IT_ERR_ASYNC_UNAFF_EVD_EXISTS),
    ] {
        let one = Wanted { stream, ..Wanted::SOFTWARE };
        assert!(one.create(&ia).is_ok());
        assert_eq!(one.create(&ia), Err(taken));
    }
    let (stream, flags) = (IT_SOFTWARE_EVENT_STREAM, IT_EVD_CREATE_FD);
    let mut evd = null_mut();
    // SAFETY: NULL is allowed by the contract.
    let no_place =
        unsafe { it_evd_create(ia.0, stream, flags, 8, 1, null_mut(), &raw mut evd, null_mut()) };
    assert_eq!(no_place, IT_ERR_MISMATCH_FD);
}

// [it_evd_post_se] [it_evd_dequeue] [it_evd_dequeue_n] [it_evd_free]
#[test]
fn software_events_come_out_in_order() {
    let ia = Adapter::new();
    let evd = software(&ia);
    assert_eq!(dequeue(evd).err(), Some(IT_ERR_QUEUE_EMPTY));
    for n in 0..8 {
        assert_eq!(post(evd, n), IT_SUCCESS);
    }
    assert_eq!(post(evd, 8), IT_ERR_EVD_QUEUE_FULL);
    assert_eq!(data(&dequeue(evd).unwrap()), 0);
    let mut events = [it_event_t::zeroed(); 10];
    let mut count = 0;
    // SAFETY: room for ten events.
    let mut dequeue_n =
        |wanted| unsafe { it_evd_dequeue_n(evd, wanted, events.as_mut_ptr(), &raw mut count) };
    assert_eq!(dequeue_n(-1), IT_ERR_INVALID_LENGTH);
    assert_eq!(dequeue_n(10), IT_SUCCESS);
    assert_eq!(count, 7);
    assert!(events[..7].iter().map(data).eq(1..8));
    // SAFETY: plain data.
    assert_eq!(unsafe { events[0].any }.evd, evd);
    let zone = zone(&ia);
    assert_eq!(post(zone.cast(), 0), IT_ERR_INVALID_EVD);
    let stream = IT_CM_MSG_EVENT_STREAM;
    let (other, _) = Wanted { stream, ..Wanted::SOFTWARE }.create(&ia).unwrap();
    assert_eq!(post(other, 0), IT_ERR_INVALID_SOFT_EVD);
    // SAFETY: NULL is allowed by the contract.
    assert_eq!(unsafe { it_evd_dequeue(evd, null_mut()) }, IT_ERR_FAULT);
    assert_eq!(it_evd_free(evd), IT_SUCCESS);
    assert_eq!(it_evd_free(evd), IT_ERR_INVALID_EVD);
    assert_eq!(dequeue(evd).err(), Some(IT_ERR_INVALID_EVD));
}

// [it_evd_wait]
#[test]
fn a_wait_ends_with_an_event_a_time_out_or_the_adapter() {
    let ia = Adapter::new();
    let evd = Wanted { threshold: 2, ..Wanted::SOFTWARE }.create(&ia).unwrap().0;
    post(evd, 1);
    assert_eq!(wait(evd, 0).err(), Some(IT_ERR_TIMEOUT_EXPIRED));
    assert_eq!(wait(evd, 1000).err(), Some(IT_ERR_TIMEOUT_EXPIRED));
    post(evd, 2);
    let (event, more) = wait(evd, HANG).unwrap();
    assert_eq!((data(&event), more), (1, 1));
    let waited = evd.addr();
    let waiter = std::thread::spawn(move || {
        wait(std::ptr::without_provenance_mut(waited), IT_TIMEOUT_INFINITE).err()
    });
    let inside = || object::find::<EvdObject>(evd.cast()).unwrap().waiters.load(Ordering::SeqCst);
    warpline_patience::until("the waiter to be inside", || inside() != 0);
    assert_eq!(it_evd_free(evd), IT_ERR_EVD_WAIT);
    assert_eq!(it_ia_free(ia.0), IT_SUCCESS);
    let ended = warpline_patience::within("the wait to be aborted", || waiter.join().unwrap());
    assert_eq!(ended, Some(IT_ERR_ABORT));
    assert_eq!(it_evd_free(evd), IT_ERR_INVALID_EVD);
}

// [it_evd_query] [it_evd_modify]
#[test]
fn parameters_are_queried_and_changed() {
    let ia = Adapter::new();
    let evd = Wanted { flags: IT_EVD_CREATE_FD, ..Wanted::SOFTWARE }.create(&ia).unwrap();
    let (evd, fd) = evd;
    let query = |mask| {
        let mut params = it_evd_param_t::zeroed();
        // SAFETY: room for the parameters.
        let queried = unsafe { it_evd_query(evd, mask, &raw mut params) };
        if queried == IT_SUCCESS { Ok(params) } else { Err(queried) }
    };
    assert_eq!(query(0x1000).err(), Some(IT_ERR_INVALID_MASK));
    let params = query(IT_EVD_PARAM_ALL).unwrap();
    assert_eq!((params.ia, params.event_number), (ia.0, IT_SOFTWARE_EVENT_STREAM));
    assert_eq!((params.sevd_queue_size, params.sevd_threshold, params.fd), (8, 1, fd));
    assert_eq!((params.evd_enabled, params.evd_bound, params.evd_callback), (1, 0, 0));
    let default = IT_EVD_OVERFLOW_NOTIFY | IT_EVD_OVERFLOW_AUTO_RESET;
    assert_eq!(params.evd_flag, IT_EVD_CREATE_FD | default);
    // SAFETY: parameters to read.
    let modify =
        |mask, params: it_evd_param_t| unsafe { it_evd_modify(evd, mask, &raw const params) };
    assert_eq!(modify(IT_EVD_PARAM_ALL, params), IT_SUCCESS);
    assert_eq!(modify(IT_EVD_PARAM_FD, params), IT_ERR_INVALID_MASK);
    let both = IT_EVD_PARAM_QUEUE_SIZE | IT_EVD_PARAM_THRESHOLD;
    let larger = it_evd_param_t { sevd_queue_size: 20, sevd_threshold: 15, ..params };
    assert_eq!(modify(IT_EVD_PARAM_THRESHOLD, larger), IT_ERR_INVALID_THRESHOLD);
    assert_eq!(modify(both, larger), IT_SUCCESS);
    assert_eq!(modify(IT_EVD_PARAM_QUEUE_SIZE, params), IT_ERR_INVALID_THRESHOLD);
    assert_eq!(modify(both, params), IT_SUCCESS);
    let off = it_evd_param_t { evd_enabled: IT_FALSE, ..params };
    assert_eq!(modify(IT_EVD_PARAM_ENABLED, off), IT_SUCCESS);
    post(evd, 1);
    assert_eq!(wait(evd, 0).err(), Some(IT_ERR_TIMEOUT_EXPIRED));
    assert_eq!(modify(IT_EVD_PARAM_ENABLED, params), IT_SUCCESS);
    assert_eq!(data(&wait(evd, HANG).unwrap().0), 1);
    let lost = it_evd_param_t { evd_overflowed: IT_TRUE, ..params };
    assert_eq!(modify(IT_EVD_PARAM_OVERFLOWED, lost), IT_ERR_INVALID_EVD_STATE);
    assert_eq!(query(IT_EVD_PARAM_ENABLED).unwrap().evd_enabled, IT_TRUE);
    // SAFETY: NULL is allowed by the contract.
    assert_eq!(unsafe { it_evd_modify(evd, IT_EVD_PARAM_ALL, null()) }, IT_ERR_FAULT);
}

// [it_evd_wait]
#[test]
fn an_aggregate_names_its_dispatchers_or_hands_their_events_out() {
    let ia = Adapter::new();
    let flags = IT_EVD_DEQUEUE_NOTIFICATIONS;
    let (aevd, _) = Wanted { flags, ..Wanted::AGGREGATE }.create(&ia).unwrap();
    let (sevd, _) = Wanted { aevd, ..Wanted::SOFTWARE }.create(&ia).unwrap();
    assert_eq!(it_evd_free(aevd), IT_ERR_EVD_BUSY);
    assert_eq!(dequeue(aevd).err(), Some(IT_ERR_QUEUE_EMPTY));
    post(sevd, 5);
    // SAFETY: plain data; the number is checked.
    let notified = unsafe { wait(aevd, HANG).unwrap().0.aevd_notify };
    assert_eq!(notified.event_number, IT_AEVD_NOTIFICATION_EVENT);
    assert_eq!((notified.aevd, notified.sevd), (aevd, sevd));
    assert_eq!(data(&dequeue(sevd).unwrap()), 5);
    assert_eq!(wait(aevd, 0).err(), Some(IT_ERR_TIMEOUT_EXPIRED));
    let (plain, _) = Wanted::AGGREGATE.create(&ia).unwrap();
    let (sevd, _) = Wanted { aevd: plain, ..Wanted::SOFTWARE }.create(&ia).unwrap();
    post(sevd, 6);
    let event = wait(plain, HANG).unwrap().0;
    assert_eq!(data(&event), 6);
    // SAFETY: plain data.
    assert_eq!(unsafe { event.any }.evd, sevd);
}

static CALLS: AtomicU32 = AtomicU32::new(0);

/// Takes everything that is there; `arg` is what it expects as data.
unsafe extern "C" fn drain(evd: it_evd_handle_t, arg: *mut c_void) {
    while let Ok(event) = dequeue(evd) {
        assert_eq!(data(&event), arg.addr());
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
}

// [it_evd_callback_attach] [it_evd_callback_detach]
#[test]
fn a_callback_takes_the_events() {
    let ia = Adapter::new();
    let evd = software(&ia);
    let arg = std::ptr::without_provenance_mut(9);
    // SAFETY: the function may be called with this argument from anywhere.
    let attach = |evd, function| unsafe { it_evd_callback_attach(evd, function, arg) };
    assert_eq!(attach(evd, None), IT_ERR_FAULT);
    assert_eq!(attach(evd, Some(drain)), IT_SUCCESS);
    assert_eq!(attach(evd, Some(drain)), IT_ERR_CALLBACK_EXISTS);
    assert_eq!(wait(evd, 0).err(), Some(IT_ERR_CALLBACK_EXISTS));
    post(evd, 9);
    warpline_patience::until("the callback", || CALLS.load(Ordering::SeqCst) != 0);
    assert_eq!(it_evd_callback_detach(evd), IT_SUCCESS);
    post(evd, 10);
    assert_eq!(data(&wait(evd, HANG).unwrap().0), 10);
    let (polled, _) = Wanted { flags: IT_EVD_CREATE_FD, ..Wanted::SOFTWARE }.create(&ia).unwrap();
    assert_eq!(attach(polled, Some(drain)), IT_ERR_MISMATCH_FD);
    assert_eq!(it_evd_callback_detach(null_mut()), IT_ERR_INVALID_EVD);
}
