//! Interface adapters: opening, and closing with everything made from them.
//!
//! An IaObject owns its adapter and the list of mapped memory. Freeing takes the handle first, so
//! that exactly one of several callers closes; it waits until other threads have left the objects.

use std::ffi::c_char;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ual::{Error, Ia, Ual};

use super::boundary;
use super::failure::{Failure, Outcome};
use super::fork;
use super::log;
use super::object::{self, CloseOrder, Kind, Object};
use super::ptr::{self, Out};
use super::status::{self, Status};
use super::types::*;

/// The object behind the handle of an interface adapter.
pub(crate) struct IaObject {
    pub(crate) inner: Arc<Ia>,
    /// What `it_mem_map` mapped: first octet and length; the same range may be there more than once.
    pub(crate) mappings: Mutex<Vec<(usize, usize)>>,
}

impl Object for IaObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_IA,
            name: "interface adapter",
            wrong: status::IT_ERR_INVALID_IA,
        }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.clone()
    }

    fn close_order(&self) -> CloseOrder {
        CloseOrder::Adapter
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

/// Octets of an interface name, NUL included.
pub(crate) const NAME_SIZE: usize = 128;
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
    let text = format!("IT-API {major}.{minor} is not supported: request 1.0, 2.0 or 2.1");
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

/// Closes an adapter with all its objects; its handle no longer creates new ones.
fn close(ia: &Arc<Ia>) -> Outcome {
    let begin = Instant::now();
    loop {
        object::close_all(ia);
        match ia.close() {
            Ok(()) | Err(Error::Closed(_)) => return Ok(()),
            // A waiter has not woken up yet, or a create call was in the middle of its work.
            Err(_) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(Failure::of(error, status::IT_ERR_IA_CATASTROPHE)),
        }
    }
}
