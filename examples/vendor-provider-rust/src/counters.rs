//! Vendor calls: a table that C and Rust applications find by name. As a C header:
//!
//! ```c
//! typedef struct vendor_mirror_counters {
//!     uint32_t (*made)(void *context);        /* objects made since the device was opened */
//!     uint32_t (*queue_pairs)(void *context); /* that there are now */
//! } vendor_mirror_counters;
//! ```

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use vp_api::*;

use crate::state::{Shared, no};

const NAME: &str = "vendor_mirror.counters/1";

#[repr(C)]
struct Counters {
    made: unsafe extern "C" fn(*mut c_void) -> u32,
    queue_pairs: unsafe extern "C" fn(*mut c_void) -> u32,
}

static COUNTERS: Counters = Counters { made, queue_pairs };

/// The table of a name. `shared` is the context: the RNIC keeps it until it closes.
pub(crate) fn named(name: &str, shared: &Arc<Shared>) -> VpResult<VendorCalls> {
    match name {
        NAME => Ok(VendorCalls {
            table: NonNull::from(&COUNTERS).cast(),
            context: Arc::as_ptr(shared).cast_mut().cast(),
        }),
        _ => Err(no(VpStatus::Unsupported, "the only vendor calls are vendor_mirror.counters/1")),
    }
}

/// # Safety
///
/// `context` came with the table, and the RNIC is open.
unsafe fn shared<'a>(context: *mut c_void) -> &'a Shared {
    // SAFETY: the caller's promise; the RNIC holds it.
    unsafe { &*context.cast::<Shared>() }
}

unsafe extern "C" fn made(context: *mut c_void) -> u32 {
    // SAFETY: the application's promise.
    unsafe { shared(context) }.lock().made
}

unsafe extern "C" fn queue_pairs(context: *mut c_void) -> u32 {
    // SAFETY: the application's promise.
    unsafe { shared(context) }.lock().qps.len() as u32
}
