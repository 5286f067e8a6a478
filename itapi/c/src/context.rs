//! Calls on handles of any kind: consumer context and type. No state; the caller's thread.

use super::boundary;
use super::failure::Failure;
use super::object;
use super::ptr::Out;
use super::status::{self, Status};
use super::types::*;

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_get_consumer_context(
    handle: it_handle_t,
    context: *mut it_context_t,
) -> Status {
    boundary::call(|| {
        let found = object::context(handle)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(context, "context") }?;
        let Some(index) = found else {
            let text = "it_set_consumer_context was not called for this object";
            return Err(Failure::new(status::IT_ERR_NO_CONTEXT, text));
        };
        out.write(it_context_t { index });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_set_consumer_context(
    handle: it_handle_t,
    context: it_context_t,
) -> Status {
    boundary::call(|| {
        // SAFETY: plain data of 8 octets, whichever member was written.
        let index = unsafe { context.index };
        object::set_context(handle, index)
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_get_handle_type(
    handle: it_handle_t,
    type_of_handle: *mut it_handle_type_enum_t,
) -> Status {
    boundary::call(|| {
        let found = object::type_of(handle)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(type_of_handle, "type_of_handle") }?;
        out.write(found);
        Ok(())
    })
}
