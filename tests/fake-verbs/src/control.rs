//! Functions by which tests control the double. Exported: tests load this library a second time, under the same
//! name, and get the same state.

use std::ffi::{CStr, c_char, c_int};

use ibv_sys::*;

use crate::world::{QpState, world};

/// Forgets faults and statuses.
#[unsafe(no_mangle)]
pub extern "C" fn fake_reset() {
    let mut world = world();
    world.faults.clear();
    world.statuses.clear();
    world.hidden = false;
    world.siw = false;
}

/// Devices that are opened from now on have siw's vendor, and keep requests that are posted in Error.
#[unsafe(no_mangle)]
pub extern "C" fn fake_play_siw() {
    world().siw = true;
}

/// Hides or shows the devices.
#[unsafe(no_mangle)]
pub extern "C" fn fake_hide(hidden: c_int) {
    world().hidden = hidden != 0;
}

/// From the `after`-th call on, a function fails with `errno`; 0 ends that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_fail(function: *const c_char, after: u32, errno: c_int) {
    let name = CStr::from_ptr(function).to_string_lossy().into_owned();
    let mut world = world();
    match errno {
        0 => world.faults.remove(&name),
        errno => world.faults.insert(name, (after, errno)),
    };
}

/// The next send completes with this status and does nothing else.
#[unsafe(no_mangle)]
pub extern "C" fn fake_status(status: u32) {
    world().statuses.push_back(status);
}

/// Raises an asynchronous event about the newest object of its kind, or about port 1. A queue pair may be
/// destroyed before its event is taken: the event has a copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_async(kind: u32) {
    let mut world = world();
    let object = match kind {
        // Addresses are used again: handles are numbered.
        IBV_EVENT_CQ_ERR => {
            let handle = |cq: &&usize| (*(**cq as *const ibv_cq)).handle;
            world.cqs.keys().max_by_key(handle).map_or(0, |cq| *cq as u64)
        }
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
            let handle = |srq: &&usize| (*(**srq as *const ibv_srq)).handle;
            world.srqs.keys().max_by_key(handle).map_or(0, |srq| *srq as u64)
        }
        IBV_EVENT_QP_FATAL..=IBV_EVENT_PATH_MIG_ERR | IBV_EVENT_QP_LAST_WQE_REACHED => {
            let newest = world.qps.keys().max().copied().unwrap_or(0);
            let copy = |qp: &QpState| Box::into_raw(Box::new((qp.raw as *const ibv_qp).read()));
            world.qps.get(&newest).map_or(0, |qp| copy(qp) as u64)
        }
        _ => 1,
    };
    for context in world.contexts.clone() {
        world.raise(context, kind, object);
    }
}

/// Raises an event of the connection manager, as of a removed device, on every id that is connected or for
/// datagrams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_cm_event(kind: u32, status: c_int) {
    let mut world = world();
    let up: Vec<usize> =
        world.ids.iter().filter(|(_, id)| id.up || id.datagrams).map(|(at, _)| *at).collect();
    for id in up {
        crate::cm::add_event(&mut world, id, 0, kind, status, &[], (0, 0));
    }
}

/// Numbers of live objects: regions and windows, queue pairs, shared queues, CQs, address handles, ids.
#[unsafe(no_mangle)]
pub extern "C" fn fake_alive() -> usize {
    let world = world();
    let handles = world.ahs.len() + world.ids.len();
    world.keys.len() + world.qps.len() + world.srqs.len() + world.cqs.len() + handles
}
