//! Devices: the list, names, GUIDs, opening and closing (ibv_get_device_list(3), ibv_open_device(3)).
//!
//! The structures of devices are created with the first list and live as long as the process, because
//! programs keep pointers to them. A child made by fork(2) inherits them, and opens its own device of
//! that name.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use ibv_sys::*;
use vp_api::Transport;

use crate::advice;
use crate::device::{self, Device};
use crate::errno::{self, EINVAL, Errno};
use crate::object;
use crate::record;
use crate::verbs::open;

/// The structure of a device, and the device.
#[repr(C)]
struct Shown {
    whole: whole_device,
    device: &'static Device,
}

/// Structures that are never freed or changed, in the order of the list.
struct DeviceTable(Vec<*mut Shown>);

/// The structures. Threads that need the first at once each create some, and those of one are kept: a
/// lock could be held when another thread forks.
fn table() -> Result<&'static [*mut Shown], Errno> {
    static TABLE: AtomicPtr<DeviceTable> = AtomicPtr::new(null_mut());
    let devices = device::all()?;
    let mut table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        let shown = devices.iter().map(|device| Box::into_raw(Box::new(show(device))));
        let made = Box::into_raw(Box::new(DeviceTable(shown.collect())));
        // Those of another thread are leaked.
        let stored = TABLE.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        table = stored.map_or_else(|other| other, |_| made);
    }
    // SAFETY: not null, made by `into_raw`, and neither freed nor changed.
    Ok(unsafe { &(*table).0 })
}

fn show(device: &'static Device) -> Shown {
    let index = device.index();
    let (node_type, transport_type) = match device.transport() {
        Transport::InfiniBand => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        _ => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
    };
    Shown {
        whole: whole_device {
            head: ibv_device {
                _ops: [std::ptr::null(); 2],
                node_type,
                transport_type,
                name: text(device.name()),
            },
            dev_name: text(&format!("uverbs{index}")),
            dev_path: text(&format!("/sys/class/infiniband_verbs/uverbs{index}")),
            ibdev_path: text(&format!("/sys/class/infiniband/{}", device.name())),
            behind: [0; 128],
        },
        device,
    }
}

/// The structure of a device.
pub(super) fn shown(device: &Device) -> *mut ibv_device {
    let shown = table().ok().and_then(|table| table.get(device.index() as usize));
    shown.map_or(null_mut(), |shown| shown.cast())
}

/// A string as a C array, cut to fit, with a NUL.
pub(super) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    out
}

/// This process's device with the name of a structure that may be inherited.
fn own(device: &Device) -> Result<&'static Device, Errno> {
    let own = device::all()?.iter().find(|own| own.name() == device.name());
    own.ok_or(Errno(libc::ENODEV))
}

unsafe fn device_of(device: *mut ibv_device) -> Result<&'static Device, Errno> {
    let shown: *mut Shown = device.cast();
    match table()?.contains(&shown) {
        // SAFETY: it is one of the table, and those are never freed.
        true => own(unsafe { (*shown).device }),
        false => Err(EINVAL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_get_device_list(num: *mut c_int) -> *mut *mut ibv_device {
    let table = table();
    advice::listed();
    if !num.is_null() {
        // SAFETY: the caller's integer.
        unsafe { *num = table.as_ref().map_or(0, |table| table.len() as c_int) }
    }
    errno::pointer(table.map(|table| {
        let mut list: Vec<*mut ibv_device> = table.iter().map(|shown| shown.cast()).collect();
        list.push(null_mut());
        Box::into_raw(list.into_boxed_slice()).cast()
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_free_device_list(list: *mut *mut ibv_device) {
    let Ok(table) = table() else { return };
    if !list.is_null() {
        let slice = std::ptr::slice_from_raw_parts_mut(list, table.len() + 1);
        // SAFETY: made by `warpline_ibv_get_device_list` of as many, and given back once.
        drop(unsafe { Box::from_raw(slice) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    match device.is_null() {
        true => std::ptr::null(),
        // SAFETY: the caller's device, whose name stays where it is.
        false => unsafe { (&raw const (*device).name).cast() },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the caller's device.
    unsafe { device_of(device) }.map_or(0, |device| device.guid().to_be())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the caller's device.
    unsafe { device_of(device) }.map_or(-1, |device| device.index() as c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller's device.
    let device = unsafe { device_of(device) };
    let opened = device.and_then(|device| open::open(device.open()?, true));
    errno::pointer(record::call("ibv_open_device", opened))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the caller's context.
    let private = unsafe { object::with(context) };
    errno::minus(private.and_then(|private| {
        // A child must not close what it inherited: the parent continues to use it.
        private.adapter()?;
        // SAFETY: the caller gives it up.
        unsafe { object::destroy(context) }.map(|context| context.closed())
    }))
}
