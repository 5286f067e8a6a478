//! Interface adapters: opening, closing with everything made from them, and listing.
//!
//! An IaObject owns its adapter and the list of mapped memory. Freeing takes the handle first, so
//! that exactly one of several callers closes; it waits until other threads have left the objects.

use std::ffi::c_char;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ual::{Error, Stream, Ual};

use super::boundary;
use super::failure::{Failure, Outcome};
use super::fork;
use super::info;
use super::log;
use super::mapping::Mappings;
use super::object::{self, Kind};
use super::ptr::{self, Out, OutList, Plain};
use super::status::{self, Status};
use super::types::*;

/// What a handle of this kind names.
pub(crate) struct IaObject {
    pub(crate) inner: Arc<ual::Ia>,
    /// What `it_mem_map` gave out.
    pub(crate) mappings: Mutex<Mappings>,
}

/// Octets of an interface name, NUL included.
const NAME_SIZE: usize = 128;
/// How long a free waits for other threads to leave the adapter's objects.
const PATIENCE: Duration = Duration::from_secs(10);

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ia_create(
    name: *const c_char,
    major_version: u32,
    minor_version: u32,
    ia_handle: *mut it_ia_handle_t,
) -> Status {
    boundary::create(|| {
        // SAFETY: contract of a C caller.
        let name = unsafe { ptr::text(name, NAME_SIZE, "name") }
            .map_err(|null| Failure { status: status::IT_ERR_INVALID_NAME, ..null })?;
        check_version(major_version, minor_version)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(ia_handle, "ia_handle") }?;
        fork::watch();
        log::init();
        let open = || Ual::new()?.open(&name);
        let ia = open().map_err(Failure::by(status::IT_ERR_RESOURCES))?;
        let raw = object::insert(|raw| {
            ia.tag().set(raw.number());
            IaObject { inner: ia, mappings: Mutex::default() }
        })?;
        out.write(object::handle(raw.number()));
        Ok(())
    })
}

/// IT-API 1.0, 2.0 and 2.1.
fn check_version(major: u32, minor: u32) -> Outcome {
    let wrong = match (major, minor) {
        (1, 0) | (2, 0 | 1) => return Ok(()),
        (1 | 2, _) => status::IT_ERR_INVALID_MINOR_VERSION,
        _ => status::IT_ERR_INVALID_MAJOR_VERSION,
    };
    let text = format!("IT-API {major}.{minor} is not here: ask for 1.0, 2.0 or 2.1");
    Err(Failure::new(wrong, text))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ia_free(ia_handle: it_ia_handle_t) -> Status {
    boundary::call(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?.inner.clone();
        if !object::forget(ia_handle.cast()) {
            let text = "another thread is freeing this interface adapter";
            return Err(Failure::new(status::IT_ERR_INVALID_IA, text));
        }
        close(&ia)
    })
}

/// Closes an adapter with all its objects; nobody can make new ones from its handle.
fn close(ia: &Arc<ual::Ia>) -> Outcome {
    let begin = Instant::now();
    loop {
        close_objects(ia);
        match ia.close() {
            Ok(()) | Err(Error::Closed(_)) => return Ok(()),
            // A waiter has not woken up yet, or a create call was in the middle of its work.
            Err(_) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(Failure::of(error, status::IT_ERR_IA_CATASTROPHE)),
        }
    }
}

/// One round of closing what is left, users before what they use.
fn close_objects(ia: &Arc<ual::Ia>) {
    let mut objects = object::of_ia(ia);
    for entry in &objects {
        if let Kind::Evd(evd) = entry.object.kind() {
            evd.inner.abort();
            // No callback is attached: nothing to detach.
            let _ = evd.inner.detach_callback();
        }
    }
    objects.sort_by_key(|entry| rank(entry.object.kind()));
    for entry in objects {
        let (handle, closed) = entry.object.kind().close();
        // What is still in use comes again in the next round.
        if let Ok(()) | Err(Error::Closed(_)) = closed {
            object::forget(object::handle(handle));
        }
    }
}

/// The order of closing.
fn rank(kind: &Kind) -> u8 {
    match kind {
        Kind::Listen(_) | Kind::UdService(_) => 0,
        Kind::Rmr(_) => 1,
        Kind::Ep(_) | Kind::UdEp(_) | Kind::Address(_) => 2,
        Kind::Lmr(_) => 3,
        Kind::Srq(_) => 4,
        Kind::Evd(evd) if evd.inner.stream() != Stream::Aggregate => 5,
        Kind::Evd(_) => 6,
        Kind::Pz(_) => 7,
        Kind::Ia(_) => 8,
    }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_interface_list(
    interfaces: *mut it_interface_t,
    num_interfaces: *mut usize,
    total_interfaces: *mut usize,
) {
    // SAFETY: contract of a C caller.
    let count = unsafe { Out::optional(num_interfaces) };
    // SAFETY: contract of a C caller.
    let total = unsafe { Out::optional(total_interfaces) };
    let listed = boundary::create(|| {
        let capacity = count.as_ref().map_or(0, Out::read);
        let capacity = if interfaces.is_null() { 0 } else { capacity };
        // SAFETY: contract of a C caller; the room is what `num_interfaces` says.
        let room = unsafe { OutList::new(interfaces, capacity, "interfaces") }?;
        let ual = Ual::new().map_err(Failure::by(status::IT_ERR_RESOURCES))?;
        let found = interfaces_of(&ual);
        count.as_ref().inspect(|count| count.write(found.len().min(room.len())));
        total.as_ref().inspect(|total| total.write(found.len()));
        found.into_iter().enumerate().for_each(|(n, interface)| room.write(n, interface));
        Ok(())
    });
    // The standard gives this call no status: without one there are no interfaces, and
    // `itw_last_error` says why.
    if listed != status::IT_SUCCESS {
        count.inspect(|count| count.write(0));
        total.inspect(|total| total.write(0));
    }
}

fn interfaces_of(ual: &Ual) -> Vec<it_interface_t> {
    let usable = ual.providers().into_iter().filter_map(|provider| provider.devices.ok());
    let named = usable.flatten().map(|device| {
        let mut interface = it_interface_t {
            major_version: 2,
            minor_version: 1,
            transport_type: info::transport_type(device.transport),
            ..it_interface_t::zeroed()
        };
        // The last octet stays NUL.
        let octets = device.name.bytes().take(NAME_SIZE - 1);
        interface.name.iter_mut().zip(octets).for_each(|(to, from)| *to = from as c_char);
        interface
    });
    named.collect()
}
