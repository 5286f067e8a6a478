//! Vendor calls: a provider's own table of functions, by name. No state; the caller's thread.

use std::ffi::c_char;

use super::boundary;
use super::failure::Failure;
use super::ia::IaObject;
use super::object;
use super::ptr::{self, Out};
use super::status::{self, Status};
use super::types::*;

/// Octets of a name, NUL included.
const NAME_SIZE: usize = 128;

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_ia_vendor_calls(
    ia_handle: it_ia_handle_t,
    name: *const c_char,
    calls: *mut itw_vendor_calls_t,
) -> Status {
    boundary::call(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?;
        // SAFETY: contract of a C caller.
        let name = unsafe { ptr::text(name, NAME_SIZE, "name") }?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(calls, "calls") }?;
        let found = ia.inner.vendor_calls(&name);
        let found = found.map_err(Failure::by(status::IT_ERR_RESOURCES))?;
        out.write(itw_vendor_calls_t { table: found.table.as_ptr(), context: found.context });
        Ok(())
    })
}
