//! Exports Rust providers to C: the function tables behind [`crate::export_provider`].
//!
//! A handle is a box around an `Arc` of the object; the host's `release` drops it. Every entry catches panics and
//! returns `RI_DEFECT` for them. Any thread.

pub mod layer;
mod objects;
mod path;
mod queues;
mod rnic;
mod ud;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::keep::Kept;
use super::types::{Plain, Sized32};
use super::{grow, net, text, types as c};
use crate::{LogLevel, Provider, Services, Unavailable, VpError, VpResult, VpStatus};

/// Turns the crate that calls it into a provider's shared library (`crate-type = ["cdylib"]`), with the two symbols
/// of `rnicpi.h`. The provider is created when it is first asked for. Its version is the crate's.
///
/// ```ignore
/// vp_api::export_provider!("acme", Capabilities::SRQ, acme::Provider::new());
/// ```
#[macro_export]
macro_rules! export_provider {
    ($name:literal, $capabilities:expr, $provider:expr) => {
        $crate::provider_descriptor!($name, $capabilities);

        /// The function table of the provider.
        #[unsafe(no_mangle)]
        pub extern "C" fn warpline_provider_get_ops(
            _host_minor: u32,
        ) -> *const $crate::abi::types::ProviderOps {
            static EXPORTED: $crate::abi::export::Exported = $crate::abi::export::Exported::new();
            EXPORTED.table(|| ::std::sync::Arc::new($provider))
        }
    };
}

/// The symbol that identifies a library; for [`export_provider`] and [`export_layer`].
///
/// [`export_layer`]: crate::export_layer
#[doc(hidden)]
#[macro_export]
macro_rules! provider_descriptor {
    ($name:literal, $capabilities:expr) => {
        /// The descriptor of this library, readable before any of its code runs.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)] // the header's name
        pub static warpline_provider: $crate::abi::types::ProviderDescriptor =
            $crate::abi::export::descriptor(
                concat!($name, "\0"),
                concat!(env!("CARGO_PKG_VERSION"), "\0"),
                $capabilities,
            );
    };
}

/// A descriptor; both texts end with a NUL.
pub const fn descriptor(
    name: &'static str,
    version: &'static str,
    capabilities: crate::Capabilities,
) -> c::ProviderDescriptor {
    c::ProviderDescriptor {
        size: size_of::<c::ProviderDescriptor>() as u32,
        magic: super::MAGIC,
        major: super::MAJOR,
        minor: super::MINOR,
        reserved: 0,
        name: name.as_ptr().cast(),
        version: version.as_ptr().cast(),
        capabilities: capabilities.bits(),
    }
}

/// A provider with its table, created once.
pub struct Exported(OnceLock<Option<ExportedTable>>);

struct ExportedTable(c::ProviderOps);

// SAFETY: constant data; the context is a provider, which any thread may use.
unsafe impl Sync for ExportedTable {}
// SAFETY: as for `Sync`.
unsafe impl Send for ExportedTable {}

impl Default for Exported {
    fn default() -> Self {
        Self::new()
    }
}

impl Exported {
    /// Creates nothing yet.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Leaks a table: it is never freed.
    pub(in crate::abi) fn for_ever(provider: Arc<dyn Provider>) -> *const c::ProviderOps {
        static ALL: Mutex<Vec<&'static Exported>> = Mutex::new(Vec::new());
        let exported: &'static Self = Box::leak(Box::new(Self::new()));
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push(exported);
        exported.table(|| provider)
    }

    /// The table, valid as long as `self`; null if the provider cannot be created.
    pub fn table(&self, make: impl FnOnce() -> Arc<dyn Provider>) -> *const c::ProviderOps {
        let made = || catch_unwind(AssertUnwindSafe(make)).ok().map(ExportedTable::new);
        self.0.get_or_init(made).as_ref().map_or(std::ptr::null(), |table| &raw const table.0)
    }
}

impl ExportedTable {
    fn new(provider: Arc<dyn Provider>) -> Self {
        Self(c::ProviderOps {
            context: hand_out(provider),
            devices: Some(devices),
            open: Some(open),
            ..c::ProviderOps::blank()
        })
    }
}

impl Drop for ExportedTable {
    fn drop(&mut self) {
        // SAFETY: made by `hand_out` in `new`, and dropped once.
        unsafe { take_back::<dyn Provider>(self.0.context) };
    }
}

/// Makes a handle for an object.
fn hand_out<T: ?Sized>(object: Arc<T>) -> *mut c_void {
    Box::into_raw(Box::new(object)).cast()
}

/// Releases a handle.
///
/// # Safety
///
/// `handle` is from `hand_out::<T>` and not used again.
unsafe fn take_back<T: ?Sized>(handle: *mut c_void) {
    // SAFETY: the caller's promise.
    let object = unsafe { Box::from_raw(handle.cast::<Arc<T>>()) };
    _ = catch_unwind(AssertUnwindSafe(|| drop(object)));
}

/// The object of a handle.
///
/// # Safety
///
/// `handle` is from `hand_out::<T>` and not released while the reference is used.
unsafe fn object<'a, T: ?Sized>(handle: *mut c_void) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<Arc<T>>() }
}

const PANICKED: &str = "the provider panicked";

/// Runs a verb and passes its result to the host; a panic becomes an error.
///
/// # Safety
///
/// `error` is null or as the header demands.
unsafe fn report(error: *mut c::Error, verb: impl FnOnce() -> VpResult<()>) -> u32 {
    let panicked = |_| Err(VpError::new(VpStatus::Defect, PANICKED));
    match catch_unwind(AssertUnwindSafe(verb)).unwrap_or_else(panicked) {
        Ok(()) => super::codes::OK,
        // SAFETY: the caller's promise.
        Err(why) => unsafe { text::refuse(error, &why) },
    }
}

fn meaningless(what: &str) -> VpError {
    VpError::new(VpStatus::InvalidModifier, format!("{what}: a number in it is unknown"))
}

/// Refuses a struct of the host that is missing, or says to be shorter than any version of it.
///
/// # Safety
///
/// `at` is null, or a `u32` can be read from it.
unsafe fn check<T: Sized32>(name: &str, at: *const T) -> VpResult<()> {
    present(name, at)?;
    // SAFETY: the caller's promise; not null.
    let size = unsafe { at.cast::<u32>().read() };
    if size >= T::LEAST {
        return Ok(());
    }
    let detail = format!("{name}->size is {size}, and at least {}", T::LEAST);
    Err(VpError::new(VpStatus::InvalidModifier, detail))
}

/// Refuses a missing argument of the host.
fn present<T>(name: &str, at: *const T) -> VpResult<()> {
    let missing = || VpError::new(VpStatus::InvalidModifier, format!("{name} is NULL"));
    (!at.is_null()).then_some(()).ok_or_else(missing)
}

/// Reads a struct of a fixed size.
///
/// # Safety
///
/// `at` is null, or one can be read from it.
unsafe fn fixed<T: Plain>(name: &str, at: *const T) -> VpResult<T> {
    present(name, at)?;
    // SAFETY: the caller's promise; not null.
    Ok(unsafe { at.read() })
}

/// An argument as the host passes it.
trait In {
    type Value;
    /// # Safety
    ///
    /// Null, or as the header demands.
    unsafe fn get(self, name: &str) -> VpResult<Self::Value>;
}

impl In for u32 {
    type Value = u32;
    unsafe fn get(self, _: &str) -> VpResult<u32> {
        Ok(self)
    }
}

impl In for u64 {
    type Value = u64;
    unsafe fn get(self, _: &str) -> VpResult<u64> {
        Ok(self)
    }
}

impl In for c::String {
    type Value = String;
    unsafe fn get(self, _: &str) -> VpResult<String> {
        // SAFETY: the caller's promise.
        Ok(unsafe { text::copy(self) })
    }
}

impl<T: Sized32> In for *const T {
    type Value = T;
    unsafe fn get(self, name: &str) -> VpResult<T> {
        // SAFETY: the caller's promise.
        unsafe { check(name, self) }?;
        // SAFETY: the same; not null.
        Ok(unsafe { grow::read(self) })
    }
}

/// A pointer to where a result is stored.
trait Out<T> {
    /// Before the verb runs: whether there is a place for its result.
    ///
    /// # Safety
    ///
    /// Null, or as the header demands.
    unsafe fn check(self) -> VpResult<()>;
    /// # Safety
    ///
    /// As the header demands.
    unsafe fn put(self, value: T);
}

/// How errors name a place for a result.
const RESULT: &str = "the place for the result";

impl Out<u32> for *mut u32 {
    unsafe fn check(self) -> VpResult<()> {
        present(RESULT, self)
    }
    unsafe fn put(self, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.write(value) };
    }
}

impl<T: Sized32> Out<T> for *mut T {
    unsafe fn check(self) -> VpResult<()> {
        // SAFETY: the caller's promise.
        unsafe { check(RESULT, self) }
    }
    unsafe fn put(self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { grow::write(self, &value) };
    }
}

/// Declares entries of a table: handle, arguments, place for the result, error.
macro_rules! verbs {
    ($($name:ident($this:ident: $object:ty $(, $arg:ident: $ty:ty)* $(=> $out:ty)?) $body:block)+)
    => {$(
        unsafe extern "C" fn $name(
            handle: *mut c_void,
            $($arg: $ty,)*
            $(out: $out,)?
            error: *mut c::Error,
        ) -> u32 {
            let verb = || {
                crate::abi::export::present(stringify!($this), handle)?;
                // SAFETY: the host has not released the handle.
                let $this = unsafe { crate::abi::export::object::<$object>(handle) };
                $(
                    // SAFETY: arguments are null or as the header demands.
                    let $arg = unsafe { crate::abi::export::In::get($arg, stringify!($arg)) }?;
                )*
                $(verbs!(@check out, $out);)?
                let value = $body?;
                verbs!(@put value $(, out, $out)?);
                Ok(())
            };
            // SAFETY: the host's error is as the header demands.
            unsafe { crate::abi::export::report(error, verb) }
        }
    )+};
    (@check $place:ident, $out:ty) => {
        // SAFETY: the place for the result is null or as the header demands.
        unsafe { crate::abi::export::Out::check($place) }?
    };
    (@put $value:ident) => { let () = $value; };
    (@put $value:ident, $place:ident, $out:ty) => {
        // SAFETY: the place for the result is as the header demands.
        unsafe { crate::abi::export::Out::put($place, $value) }
    };
}
use verbs;

unsafe extern "C" fn devices(
    context: *mut c_void,
    receiver: *mut c_void,
    f: Option<c::DeviceFn>,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the table's own context.
    let provider = unsafe { object::<dyn Provider>(context) };
    let verb = || {
        for device in &provider.devices()? {
            net::lend_device(device, &mut |lent| {
                if let Some(f) = f {
                    // SAFETY: the host's function, with its receiver.
                    unsafe { f(receiver, lent) };
                }
            });
        }
        Ok(())
    };
    let (status, why) = match catch_unwind(AssertUnwindSafe(verb)) {
        Ok(Ok(())) => return super::codes::OK,
        Ok(Err(why)) => (VpStatus::Unsupported, why),
        Err(_) => (VpStatus::Defect, Unavailable { reason: PANICKED.into(), remedy: "".into() }),
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { text::fill(error, &why.reason, &why.remedy) };
    super::codes::status_code(status)
}

unsafe extern "C" fn open(
    context: *mut c_void,
    device: c::String,
    services: *const c::Services,
    made: *mut c::RnicMade,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the table's own context.
    let provider = unsafe { object::<dyn Provider>(context) };
    let verb = || {
        // SAFETY: null, or as the header demands.
        unsafe { check("services", services) }?;
        // SAFETY: the same.
        unsafe { check(RESULT, made) }?;
        // SAFETY: the host's string.
        let device = unsafe { text::copy(device) };
        // SAFETY: services as the header demands.
        let services = unsafe { Host::new(services) };
        let opened = provider.open(&device, Arc::new(services))?;
        let handle = rnic::hand_out(opened);
        // SAFETY: the place for the result is as the header demands.
        unsafe { grow::write(made, &handle) };
        Ok(())
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, verb) }
}

/// The host's services.
struct Host {
    services: c::Services,
    settings: Vec<(String, String)>,
    kept: Kept,
}

// SAFETY: the host's functions may be called from any thread, with the context that is kept.
unsafe impl Send for Host {}
// SAFETY: as for `Send`.
unsafe impl Sync for Host {}

impl Host {
    /// # Safety
    ///
    /// `services` is as the header demands.
    unsafe fn new(services: *const c::Services) -> Self {
        // SAFETY: the caller's promise.
        let services = unsafe { grow::read(services) };
        // SAFETY: the caller's promise.
        let kept = unsafe { Kept::new(services.keep) };
        let count = if services.settings.is_null() { 0 } else { services.setting_count };
        let setting = |at: u32| {
            // SAFETY: the caller's promise: there are this many elements, and this is one of them.
            let place = unsafe { services.settings.add(at as usize) };
            // SAFETY: the same; of a fixed size, so elements lie as in an array.
            let c::Setting { key, value } = unsafe { place.read() };
            // SAFETY: a string as the header demands.
            let key = unsafe { text::copy(key) };
            // SAFETY: the same.
            (key, unsafe { text::copy(value) })
        };
        let settings = (0..count).map(setting).collect();
        Self { services, settings, kept }
    }
}

impl Services for Host {
    fn log(&self, level: LogLevel, target: &str, message: &str) {
        if let Some(log) = self.services.log {
            let level = super::codes::level_code(level);
            // SAFETY: the host's function with the context that is kept.
            unsafe { log(self.kept.context(), level, text::lend(target), text::lend(message)) };
        }
    }

    fn now_ns(&self) -> u64 {
        // SAFETY: as in `log`.
        self.services.now_ns.map_or(0, |now| unsafe { now(self.kept.context()) })
    }

    fn pin(&self, addr: usize, len: usize) -> std::io::Result<()> {
        let Some(pin) = self.services.pin else {
            return Err(std::io::Error::other("the host does not pin memory"));
        };
        let mut error = c::Error::blank();
        let memory = std::ptr::without_provenance_mut(addr);
        // SAFETY: as in `log`.
        let code = unsafe { pin(self.kept.context(), memory, len as u64, &raw mut error) };
        text::outcome(code, &error).map_err(|why| std::io::Error::other(why.detail))
    }

    fn unpin(&self, addr: usize, len: usize) {
        if let Some(unpin) = self.services.unpin {
            let memory = std::ptr::without_provenance_mut(addr);
            // SAFETY: as in `log`.
            unsafe { unpin(self.kept.context(), memory, len as u64) };
        }
    }

    fn settings(&self) -> &[(String, String)] {
        &self.settings
    }
}
