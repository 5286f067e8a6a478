//! Vendor calls: a provider's own functions, found by name. A handle that keeps the adapter open.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::Result;
use crate::ia::Ia;

impl Ia {
    /// The table of functions of this name, e.g. `acme.telemetry/1`, which the provider of this adapter offers
    /// beside IT-API (`itw_ia_vendor_calls`). The error for an unknown name lists the names that the provider
    /// knows.
    ///
    /// ```
    /// # fn main() -> itapi::Result<()> {
    /// let ia = itapi::Ia::open()?;
    /// match ia.vendor_calls("acme.telemetry/1") {
    ///     Ok(calls) => println!("at {:p}, with {:p}", calls.table(), calls.context()),
    ///     Err(why) => println!("not here: {why}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn vendor_calls(&self, name: &str) -> Result<VendorCalls> {
        let calls = self.ual().vendor_calls(name)?;
        Ok(VendorCalls { calls, _ia: self.ual().clone() })
    }
}

/// A provider's own table of functions ([`Ia::vendor_calls`]). It keeps the adapter open, and the table and its
/// context are valid as long; any thread may call the functions.
#[derive(Clone)]
pub struct VendorCalls {
    calls: vp_api::VendorCalls,
    _ia: Arc<ual::Ia>,
}

impl VendorCalls {
    /// The table. Cast it to the type that the vendor documents for this name, with `#[repr(C)]` and `unsafe
    /// extern "C"` functions, the same for providers in C and in Rust.
    pub fn table(&self) -> NonNull<c_void> {
        self.calls.table
    }

    /// First argument of each function; may be null.
    pub fn context(&self) -> *mut c_void {
        self.calls.context
    }
}

impl std::fmt::Debug for VendorCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.calls.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_table_is_refused_by_name() {
        let why = Ia::open().unwrap().vendor_calls("acme.telemetry/1").unwrap_err().to_string();
        assert!(why.contains("`acme.telemetry/1`") && why.contains("no vendor calls"), "{why}");
    }
}
