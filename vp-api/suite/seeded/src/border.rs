//! Faults that only C can have: a provider is exported, an entry of its tables is replaced, and the
//! result imported again. What the entries replace is the exporter's own, the same for all objects,
//! and noted when it is first seen. No state beside that. Any thread.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock};

use vp_api::abi::export::{Exported, descriptor};
use vp_api::abi::types::{self as c, ProviderDescriptor, ProviderOps, Sized32};
use vp_api::{Capabilities, Provider, import};

use crate::faults::Fault;
use crate::seed::lock;

static DESCRIPTOR: ProviderDescriptor = descriptor("seeded\0", "1\0", Capabilities::all());

/// The table that is being imported. One at a time.
static CURRENT: Mutex<CurrentOps> = Mutex::new(CurrentOps(std::ptr::null()));

struct CurrentOps(*const ProviderOps);

// SAFETY: a table is constant data that is never freed, or null.
unsafe impl Send for CurrentOps {}

extern "C" fn get_ops(_: u32) -> *const ProviderOps {
    lock(&CURRENT).0
}

/// The provider with a fault of its tables, from the outside.
pub(crate) fn through_the_tables(provider: Arc<dyn Provider>, fault: Fault) -> Arc<dyn Provider> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE);
    let table = Box::leak(Box::new(Exported::new())).table(|| provider.clone());
    // SAFETY: just made, and never freed.
    let mut ops = unsafe { *table };
    let _ = OPEN.set(ops.open);
    ops.open = Some(match fault {
        Fault::WcSizeIgnored => open::<0>,
        Fault::SendSizeIgnored => open::<1>,
        Fault::RecvSizeIgnored => open::<2>,
        Fault::NewerSizeRefused => open::<3>,
        Fault::EntryMissing => open::<4>,
        Fault::ReservedUsed => open::<5>,
        Fault::OwnerGivenBack => open::<6>,
        Fault::RoomIgnored => open::<8>,
        Fault::ServicesOverread => open::<9>,
        Fault::UdSourceSizeIgnored => open::<10>,
        Fault::UdSendSizeIgnored => open::<11>,
        Fault::PathEntryMissing => open::<12>,
        Fault::PathReservedUsed => open::<13>,
        _ => open::<7>, // `InlineReadLate`
    });
    lock(&CURRENT).0 = Box::leak(Box::new(ops));
    // SAFETY: both are as the header demands but for the fault, and static.
    let imported = unsafe { import::from_descriptor(&raw const DESCRIPTOR, get_ops) };
    imported.unwrap_or(provider)
}

type Open = unsafe extern "C" fn(
    *mut c_void,
    c::String,
    *const c::Services,
    *mut c::RnicMade,
    *mut c::Error,
) -> u32;

static OPEN: OnceLock<Option<Open>> = OnceLock::new();
static RNIC: OnceLock<c::RnicOps> = OnceLock::new();
static CQ: OnceLock<c::CqOps> = OnceLock::new();
static QP: OnceLock<c::QpOps> = OnceLock::new();

/// An entry of the exporter, which was called before this one could be.
fn entry<T: Copy, F>(table: &OnceLock<T>, of: impl FnOnce(T) -> Option<F>) -> F {
    match table.get().copied().and_then(of) {
        Some(entry) => entry,
        None => unreachable!("the exporter's tables are whole, and were seen before"),
    }
}

unsafe extern "C" fn open<const FAULT: u32>(
    context: *mut c_void,
    device: c::String,
    services: *const c::Services,
    made: *mut c::RnicMade,
    error: *mut c::Error,
) -> u32 {
    let open = entry(&OPEN, |open| open);
    let mut services = services;
    let mut read;
    if FAULT == 9 {
        // SAFETY: the host of the suite has the whole struct, of which it states a smaller size.
        read = unsafe { *services };
        read.size = c::Services::SIZE;
        services = &raw const read;
    }
    // SAFETY: the host's arguments, passed on, or a copy on the stack.
    let status = unsafe { open(context, device, services, made, error) };
    if status == 0 {
        // SAFETY: filled by the exporter.
        let made = unsafe { &mut *made };
        // SAFETY: the exporter's table.
        let mut ops = unsafe { *made.ops };
        let _ = RNIC.set(ops);
        ops.create_cq = Some(create_cq::<FAULT>);
        ops.create_qp = Some(create_qp::<FAULT>);
        match FAULT {
            6 => ops.register_mr = Some(register_mr),
            8 => ops.attrs = Some(attrs),
            11 => ops.datagrams = Some(datagrams),
            12 | 13 => ops.paths = Some(paths::<FAULT>),
            _ => {}
        }
        made.ops = Box::leak(Box::new(ops));
    }
    status
}

unsafe extern "C" fn create_cq<const FAULT: u32>(
    rnic: *mut c_void,
    init: *const c::CqInit,
    made: *mut c::CqMade,
    error: *mut c::Error,
) -> u32 {
    let create = entry(&RNIC, |ops| ops.create_cq);
    // SAFETY: the host's arguments, passed on.
    let status = unsafe { create(rnic, init, made, error) };
    if status == 0 {
        // SAFETY: filled by the exporter.
        let made = unsafe { &mut *made };
        // SAFETY: the exporter's table.
        let mut ops = unsafe { *made.ops };
        let _ = CQ.set(ops);
        match FAULT {
            0 => ops.poll = Some(poll),
            4 => ops.arm = None,
            5 => ops.reserved = 1,
            7 => ops.poll = Some(poll_late),
            10 => ops.poll_from = Some(poll_from),
            _ => {}
        }
        made.ops = Box::leak(Box::new(ops));
    }
    status
}

unsafe extern "C" fn create_qp<const FAULT: u32>(
    rnic: *mut c_void,
    init: *const c::QpInit,
    made: *mut c::QpMade,
    error: *mut c::Error,
) -> u32 {
    let create = entry(&RNIC, |ops| ops.create_qp);
    // SAFETY: the host's arguments, passed on.
    let status = unsafe { create(rnic, init, made, error) };
    if status == 0 {
        // SAFETY: filled by the exporter.
        let made = unsafe { &mut *made };
        // SAFETY: the exporter's table.
        let mut ops = unsafe { *made.ops };
        let _ = QP.set(ops);
        match FAULT {
            1 => ops.post_send = Some(post_send),
            2 => ops.post_recv = Some(post_recv),
            3 => ops.post_send = Some(post_known),
            7 => ops.post_send = Some(post_late),
            _ => {}
        }
        made.ops = Box::leak(Box::new(ops));
    }
    status
}

/// Completions lie `sizeof(ri_wc)` apart.
unsafe extern "C" fn poll(
    cq: *mut c_void,
    wcs: *mut c::Wc,
    _: u32,
    max: u32,
    count: *mut u32,
) -> u32 {
    let poll = entry(&CQ, |ops| ops.poll);
    // SAFETY: the host has room for more than that.
    unsafe { poll(cq, wcs, c::Wc::SIZE, max, count) }
}

/// Sources lie `sizeof(ri_ud_source)` apart.
unsafe extern "C" fn poll_from(
    cq: *mut c_void,
    wcs: *mut c::Wc,
    wc_size: u32,
    sources: *mut c::UdSource,
    _: u32,
    max: u32,
    count: *mut u32,
) -> u32 {
    let poll = entry(&CQ, |ops| ops.poll_from);
    // SAFETY: the host has room for more than that.
    unsafe { poll(cq, wcs, wc_size, sources, c::UdSource::SIZE, max, count) }
}

/// Fills the whole struct.
unsafe extern "C" fn attrs(rnic: *mut c_void, out: *mut c::RnicAttrs) {
    let attrs = entry(&RNIC, |ops| ops.attrs);
    let mut all = c::RnicAttrs::blank();
    // SAFETY: the handle is the host's, and there is room.
    unsafe { attrs(rnic, &raw mut all) };
    // SAFETY: the host of the suite has room for the whole struct, of which it states a smaller size.
    unsafe { out.write(all) };
}

static UD: OnceLock<c::UdOps> = OnceLock::new();
static UD_QP: OnceLock<c::UdQpOps> = OnceLock::new();

unsafe extern "C" fn datagrams(
    rnic: *mut c_void,
    made: *mut c::UdMade,
    error: *mut c::Error,
) -> u32 {
    let make = entry(&RNIC, |ops| ops.datagrams);
    // SAFETY: the host's arguments, passed on.
    let status = unsafe { make(rnic, made, error) };
    if status == 0 {
        // SAFETY: filled by the exporter.
        let made = unsafe { &mut *made };
        // SAFETY: the exporter's table.
        let mut ops = unsafe { *made.ops };
        let _ = UD.set(ops);
        ops.create_qp = Some(create_ud_qp);
        made.ops = Box::leak(Box::new(ops));
    }
    status
}

unsafe extern "C" fn paths<const FAULT: u32>(
    rnic: *mut c_void,
    made: *mut c::PathsMade,
    error: *mut c::Error,
) -> u32 {
    let make = entry(&RNIC, |ops| ops.paths);
    // SAFETY: the host's arguments, passed on.
    let status = unsafe { make(rnic, made, error) };
    if status == 0 {
        // SAFETY: filled by the exporter.
        let made = unsafe { &mut *made };
        // SAFETY: the exporter's table.
        let mut ops = unsafe { *made.ops };
        match FAULT {
            12 => ops.send = None,
            _ => ops.reserved = 1,
        }
        made.ops = Box::leak(Box::new(ops));
    }
    status
}

unsafe extern "C" fn create_ud_qp(
    ud: *mut c_void,
    init: *const c::UdQpInit,
    made: *mut c::UdQpMade,
    error: *mut c::Error,
) -> u32 {
    let create = entry(&UD, |ops| ops.create_qp);
    // SAFETY: the host's arguments, passed on.
    let status = unsafe { create(ud, init, made, error) };
    if status == 0 {
        // SAFETY: filled by the exporter.
        let made = unsafe { &mut *made };
        // SAFETY: the exporter's table.
        let mut ops = unsafe { *made.ops };
        let _ = UD_QP.set(ops);
        ops.post_send = Some(post_datagrams);
        made.ops = Box::leak(Box::new(ops));
    }
    status
}

/// Datagrams lie `sizeof(ri_ud_send_wr)` apart.
unsafe extern "C" fn post_datagrams(
    qp: *mut c_void,
    wrs: *const c::UdSendWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    let post = entry(&UD_QP, |ops| ops.post_send);
    for n in 0..count {
        // SAFETY: the list has at least so many octets.
        let at = unsafe { wrs.add(n as usize) };
        // SAFETY: the same; any octets are such a struct.
        let mut wr = unsafe { *at };
        if n > 0 {
            // Made of parts of others: its pointer is none.
            wr.count = 0;
        }
        wr.size = c::UdSendWr::SIZE;
        let mut one = 0;
        // SAFETY: a copy on the stack.
        let status = unsafe { post(qp, &raw const wr, 1, &raw mut one) };
        // SAFETY: the host's place.
        unsafe { posted.write(n + one) };
        if status != 0 {
            return status;
        }
    }
    0
}

/// Requests lie `sizeof(ri_send_wr)` apart.
unsafe extern "C" fn post_send(
    qp: *mut c_void,
    wrs: *const c::SendWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    let post = entry(&QP, |ops| ops.post_send);
    for n in 0..count {
        let mut one = 0;
        // SAFETY: the list has at least so many octets.
        let wr = unsafe { wrs.add(n as usize) };
        // SAFETY: after the first one what is read has a size of 0, so nothing of it is believed.
        let status = unsafe { post(qp, wr, 1, &raw mut one) };
        // SAFETY: the host's place.
        unsafe { posted.write(n + one) };
        if status != 0 {
            return status;
        }
    }
    0
}

/// Receives lie `sizeof(ri_recv_wr)` apart.
unsafe extern "C" fn post_recv(
    qp: *mut c_void,
    wrs: *const c::RecvWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    let post = entry(&QP, |ops| ops.post_recv);
    for n in 0..count {
        // SAFETY: the list has at least so many octets.
        let at = unsafe { wrs.add(n as usize) };
        // SAFETY: the same; any octets are such a struct.
        let mut wr = unsafe { *at };
        if n > 0 {
            // Made of parts of others: its pointer is none.
            wr.count = 0;
        }
        wr.size = c::RecvWr::SIZE;
        let mut one = 0;
        // SAFETY: a copy on the stack.
        let status = unsafe { post(qp, &raw const wr, 1, &raw mut one) };
        // SAFETY: the host's place.
        unsafe { posted.write(n + one) };
        if status != 0 {
            return status;
        }
    }
    0
}

/// Takes nothing of a size that it does not know.
unsafe extern "C" fn post_known(
    qp: *mut c_void,
    wrs: *const c::SendWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    // SAFETY: a list begins with a size.
    if unsafe { (*wrs).size } > c::SendWr::SIZE {
        // SAFETY: the host's place.
        unsafe { posted.write(0) };
        return 2;
    }
    let post = entry(&QP, |ops| ops.post_send);
    // SAFETY: the host's arguments, passed on.
    unsafe { post(qp, wrs, count, posted) }
}

/// A request that is posted when a queue is polled.
struct DelayedPost(*mut c_void, c::SendWr);

// SAFETY: handles may be used from any thread; what the request points to is the case's, which
// keeps it until it has polled.
unsafe impl Send for DelayedPost {}

static DELAYED: Mutex<Vec<DelayedPost>> = Mutex::new(Vec::new());

/// Puts off what has octets inline.
unsafe extern "C" fn post_late(
    qp: *mut c_void,
    wrs: *const c::SendWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    const INLINE: u32 = 32;
    // SAFETY: a list of at least one.
    let wr = unsafe { *wrs };
    if count == 1 && wr.flags & INLINE != 0 {
        lock(&DELAYED).push(DelayedPost(qp, wr));
        // SAFETY: the host's place.
        unsafe { posted.write(1) };
        return 0;
    }
    let post = entry(&QP, |ops| ops.post_send);
    // SAFETY: the host's arguments, passed on.
    unsafe { post(qp, wrs, count, posted) }
}

unsafe extern "C" fn poll_late(
    cq: *mut c_void,
    wcs: *mut c::Wc,
    wc_size: u32,
    max: u32,
    count: *mut u32,
) -> u32 {
    let late = std::mem::take(&mut *lock(&DELAYED));
    for DelayedPost(qp, wr) in late {
        let (post, mut posted) = (entry(&QP, |ops| ops.post_send), 0);
        // SAFETY: the handle is alive while the case polls, and so are the octets.
        unsafe { post(qp, &raw const wr, 1, &raw mut posted) };
    }
    let poll = entry(&CQ, |ops| ops.poll);
    // SAFETY: the host's arguments, passed on.
    unsafe { poll(cq, wcs, wc_size, max, count) }
}

/// Holds no use of the memory's owner.
unsafe extern "C" fn register_mr(
    rnic: *mut c_void,
    init: *const c::MrInit,
    stag: *mut u32,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host's struct is of this version: both are built together.
    let mut init = unsafe { *init };
    init.range.owner = c::Keep { context: std::ptr::null_mut(), retain: None, release: None };
    let register = entry(&RNIC, |ops| ops.register_mr);
    // SAFETY: a copy on the stack, and the host's places.
    unsafe { register(rnic, &raw const init, stag, error) }
}
