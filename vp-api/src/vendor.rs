//! Vendor calls: tables of provider-specific functions, which an application requests from its adapter by name.
//! Pointers only: the provider owns the table and its context, which stay valid as long as the RNIC is open.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::{VpError, VpStatus};

/// A table of provider-specific functions, by its name ([`Rnic::vendor_calls`]). The vendor defines its
/// layout, which is the same for C and for Rust.
///
/// # Invariants
///
/// Until the RNIC is closed both pointers stay valid, and any thread may call the functions.
///
/// [`Rnic::vendor_calls`]: crate::Rnic::vendor_calls
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VendorCalls {
    /// The table, laid out as in the vendor's header.
    pub table: NonNull<c_void>,
    /// First argument of each function; may be null.
    pub context: *mut c_void,
}

// SAFETY: two addresses; by the invariant any thread may use what they point to.
unsafe impl Send for VendorCalls {}
// SAFETY: as for `Send`; no method mutates.
unsafe impl Sync for VendorCalls {}

/// The refusal of a provider without vendor calls.
pub(crate) fn no_vendor_calls() -> VpError {
    VpError::new(VpStatus::Unsupported, "the provider has no vendor calls")
}
