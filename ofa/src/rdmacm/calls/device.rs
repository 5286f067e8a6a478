//! The devices of rdma_cm: rdma_get_devices(3), and the context and protection domain that identifiers show.
//!
//! One context per device and process, opened on first use and never closed, as in rdma-core; with it
//! one protection domain, for callers that pass none.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use ibv_sys::*;
use kal_os::fork::PerProcess;
use kal_os::lock;

use crate::adapter::Adapter;
use crate::device;
use crate::errno::{self, Errno};
use crate::fork::Here;
use crate::verbs::open::open;
use crate::verbs::pd::warpline_ibv_alloc_pd;

/// A device's context and protection domain.
pub(super) struct Served {
    adapter: Arc<Adapter>,
    context: AtomicPtr<ibv_context>,
    pd: AtomicPtr<ibv_pd>,
}

impl Served {
    pub(super) fn context(&self) -> *mut ibv_context {
        self.context.load(Ordering::Relaxed)
    }

    pub(super) fn pd(&self) -> *mut ibv_pd {
        self.pd.load(Ordering::Relaxed)
    }
}

static SERVED: PerProcess<Mutex<Vec<Arc<Served>>>> = PerProcess::new();

/// The context and protection domain of a device's identifiers.
pub(super) fn served(adapter: &Arc<Adapter>) -> Result<Arc<Served>, Errno> {
    let mut all = lock(SERVED.get::<Here>());
    if let Some(served) = all.iter().find(|served| Arc::ptr_eq(&served.adapter, adapter)) {
        return Ok(served.clone());
    }
    let context = open(adapter.clone(), false)?;
    // SAFETY: opened just now.
    let pd = unsafe { warpline_ibv_alloc_pd(context) };
    if pd.is_null() {
        return Err(Errno(libc::ENOMEM));
    }
    let (context, pd) = (AtomicPtr::new(context), AtomicPtr::new(pd));
    let served = Arc::new(Served { adapter: adapter.clone(), context, pd });
    all.push(served.clone());
    Ok(served)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let list = contexts().map(|mut list| {
        if !count.is_null() {
            // SAFETY: the caller's number.
            unsafe { count.write(list.len() as c_int) };
        }
        list.push(null_mut());
        Box::into_raw(list.into_boxed_slice()).cast()
    });
    errno::pointer(list)
}

/// Of the devices that can be opened, as in rdma-core.
fn contexts() -> Result<Vec<*mut ibv_context>, Errno> {
    let contexts = device::all()?.iter().map(|device| Ok(served(&device.open()?)?.context()));
    let contexts: Vec<Result<_, Errno>> = contexts.collect();
    let opened: Vec<_> = contexts.iter().filter_map(|one| one.as_ref().ok().copied()).collect();
    match contexts.into_iter().find_map(Result::err) {
        Some(error) if opened.is_empty() => Err(error),
        None if opened.is_empty() => Err(Errno(libc::ENODEV)),
        _ => Ok(opened),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_free_devices(list: *mut *mut ibv_context) {
    if list.is_null() {
        return;
    }
    let mut entries = 1;
    // SAFETY: a list of `rdma_get_devices` ends with NULL.
    while !unsafe { list.wrapping_add(entries - 1).read() }.is_null() {
        entries += 1;
    }
    let list = std::ptr::slice_from_raw_parts_mut(list, entries);
    // SAFETY: a box of `rdma_get_devices` with so many entries, given up by the caller.
    drop(unsafe { Box::from_raw(list) });
}
