//! Vendor calls: tables of functions of a provider's own, which an application asks its adapter for by
//! name. Pointers only: the provider owns the table and what it works on, as long as the RNIC is open.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::{VpError, VpStatus};

/// A table of functions of a provider's own, by its name ([`Rnic::vendor_calls`]). What the table looks
/// like is the vendor's to say, and the same for C and for Rust.
///
/// # Invariants
///
/// Until the RNIC is closed both pointers stay good, and any thread may call the functions.
///
/// [`Rnic::vendor_calls`]: crate::Rnic::vendor_calls
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VendorCalls {
    /// The table, laid out as the vendor's header says.
    pub table: NonNull<c_void>,
    /// First argument of each function; may be null.
    pub context: *mut c_void,
}

// SAFETY: two addresses; what is behind them any thread may use, by the invariant.
unsafe impl Send for VendorCalls {}
// SAFETY: as for `Send`; no method mutates.
unsafe impl Sync for VendorCalls {}

/// The refusal of a provider without vendor calls.
pub(crate) fn no_vendor_calls() -> VpError {
    VpError::new(VpStatus::Unsupported, "the provider has no vendor calls")
}
