//! Exports layers to C: makes a shared library of a Rust function that wraps providers ([`crate::export_layer`]).
//! The wrapped provider and the result are never freed, as the header demands. Any thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Exported, text};
use crate::Provider;
use crate::abi::import;
use crate::abi::types as c;

/// Turns the crate that calls it into a layer's shared library (`crate-type = ["cdylib"]`), with the two symbols of
/// `rnicpi.h`. The function is called once for each provider to be wrapped, with the arguments of the
/// configuration. Its error is shown to the user.
///
/// ```ignore
/// fn wrap(inner: Arc<dyn Provider>, arguments: &str) -> Result<Arc<dyn Provider>, String> { ... }
///
/// vp_api::export_layer!("audit", Capabilities::all(), wrap);
/// ```
#[macro_export]
macro_rules! export_layer {
    ($name:literal, $capabilities:expr, $wrap:expr) => {
        $crate::provider_descriptor!($name, $capabilities);

        /// Wraps a provider.
        ///
        /// # Safety
        ///
        /// As the header demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn warpline_provider_wrap(
            host_minor: u32,
            inner: *const $crate::abi::types::ProviderOps,
            arguments: $crate::abi::types::String,
            error: *mut $crate::abi::types::Error,
        ) -> *const $crate::abi::types::ProviderOps {
            let make = $wrap;
            // SAFETY: the caller's promise.
            unsafe { $crate::abi::export::layer::wrap(host_minor, inner, arguments, error, make) }
        }
    };
}

/// Wraps the provider behind a table with `make`. If `make` refuses, returns null and the reason.
///
/// # Safety
///
/// The arguments are as the header demands.
pub unsafe fn wrap(
    host_minor: u32,
    inner: *const c::ProviderOps,
    arguments: c::String,
    error: *mut c::Error,
    make: impl FnOnce(Arc<dyn Provider>, &str) -> Result<Arc<dyn Provider>, String>,
) -> *const c::ProviderOps {
    let wrapped = || {
        // SAFETY: the caller's promise.
        let inner = unsafe { import::inner(host_minor, inner) }.map_err(|why| why.to_string())?;
        // SAFETY: the caller's promise.
        make(inner, &unsafe { text::copy(arguments) })
    };
    let panicked = |_| Err("the layer panicked".to_owned());
    match catch_unwind(AssertUnwindSafe(wrapped)).unwrap_or_else(panicked) {
        Ok(provider) => Exported::for_ever(provider),
        Err(why) => {
            // SAFETY: the caller's promise.
            unsafe { text::fill(error, &why, "") };
            std::ptr::null()
        }
    }
}
