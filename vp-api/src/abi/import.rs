//! Imports providers from C: makes a [`Provider`] of a C library, or of a descriptor and its function.
//!
//! Every imported object owns its handle and releases it when dropped; it keeps its RNIC open. Libraries are never
//! unloaded. Any thread. What a provider returns is checked as far as possible; an unknown number becomes
//! [`VpStatus::Defect`].

mod calls;
mod cm;
mod elf;
mod load;
mod names;
mod path;
mod queues;
mod rnic;
mod ud;

use std::borrow::Cow;
use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(super) use load::inner;
pub use load::{Fault, Layer, LoadError, Probe, from_descriptor, load, probe_with};

use super::types::Sized32;
use super::{codes, keep, net, text, types as c};
use crate::{
    Capabilities, DeviceInfo, LogLevel, Provider, Rnic, Services, Unavailable, VpResult, VpStatus,
    no_settings,
};
use calls::{table_of, verb};

/// A provider behind its C function table.
struct Imported {
    name: Cow<'static, str>,
    version: &'static str,
    /// Minor version of the header that it was built with.
    minor: u16,
    capabilities: Capabilities,
    ops: c::ProviderOps,
}

// SAFETY: the header lets every function be called from any thread, with the table's context.
unsafe impl Send for Imported {}
// SAFETY: as for `Send`.
unsafe impl Sync for Imported {}

impl Imported {
    fn list(&self, devices: &mut Vec<DeviceInfo>) -> Result<(), Unavailable> {
        let mut error = c::Error::blank();
        let receiver = (&raw mut *devices).cast();
        let Some(list) = self.ops.devices else {
            return Err(text::unavailable(codes::status_code(VpStatus::Unsupported), &error));
        };
        let context = self.ops.context;
        // SAFETY: the provider's function, with its context; the receiver is a list of devices.
        let code = unsafe { list(context, receiver, Some(net::take_device), &raw mut error) };
        if code == codes::OK { Ok(()) } else { Err(text::unavailable(code, &error)) }
    }
}

impl Provider for Imported {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        self.version
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        let mut devices = Vec::new();
        self.list(&mut devices)?;
        match names::fault(&devices) {
            None => Ok(devices),
            Some(reason) => Err(Unavailable { reason, remedy: Unavailable::DEFECT.to_owned() }),
        }
    }

    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        if self.minor < SETTINGS {
            let header = format!("{}, built with a header before 1.{SETTINGS},", self.name);
            no_settings(&header, &*services)?;
        }
        let host = Arc::new(Host(services));
        let lent = |(key, value): &(String, String)| c::Setting {
            key: text::lend(key),
            value: text::lend(value),
        };
        let settings: Vec<c::Setting> = host.0.settings().iter().map(lent).collect();
        // A caller without settings passes the struct of an older host. This also detects a provider that reads
        // beyond the struct's size.
        let unread = [c::Setting {
            key: text::lend("behind the size of ri_services"),
            value: text::lend(""),
        }];
        let table = c::Services {
            size: if settings.is_empty() { OLDER_SERVICES } else { c::Services::SIZE },
            settings: if settings.is_empty() { unread.as_ptr() } else { settings.as_ptr() },
            setting_count: if settings.is_empty() { 1 } else { settings.len() as u32 },
            keep: keep::lend(&host),
            log: Some(log),
            now_ns: Some(now_ns),
            pin: Some(pin),
            unpin: Some(unpin),
            ..c::Services::blank()
        };
        let mut made = c::RnicMade::blank();
        let name = text::lend(device);
        verb!(self.ops.open, "open", self.ops.context, name, &raw const table, &raw mut made)?;
        rnic::take(&made, self.minor, self.capabilities, host.0.clone())
    }
}

/// The minor version that added settings.
const SETTINGS: u16 = 4;
/// Size of the services struct before that version.
const OLDER_SERVICES: u32 = std::mem::offset_of!(c::Services, settings) as u32;

/// The host's services, in the form that a C provider calls.
struct Host(Arc<dyn Services>);

/// `context` is a live `Host`.
///
/// `context` is a `Host` that is kept.
unsafe fn host<'a>(context: *mut c_void) -> &'a dyn Services {
    // SAFETY: the caller's promise.
    let host = unsafe { &*context.cast::<Host>() };
    &*host.0
}

unsafe extern "C" fn log(context: *mut c_void, level: u32, target: c::String, message: c::String) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the provider passes what it was given and keeps.
        let host = unsafe { host(context) };
        // SAFETY: a string as the header demands.
        let target = unsafe { text::copy(target) };
        // SAFETY: the same.
        let message = unsafe { text::copy(message) };
        host.log(codes::level(level).unwrap_or(LogLevel::Info), &target, &message);
    }));
}

unsafe extern "C" fn now_ns(context: *mut c_void) -> u64 {
    // SAFETY: the provider passes what it was given and keeps.
    let host = unsafe { host(context) };
    catch_unwind(AssertUnwindSafe(|| host.now_ns())).unwrap_or(0)
}

unsafe extern "C" fn pin(
    context: *mut c_void,
    addr: *mut c_void,
    len: u64,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the provider passes what it was given and keeps.
    let host = unsafe { host(context) };
    let refused = |_| Err(io::Error::other("the host's services panicked"));
    let pinned = catch_unwind(AssertUnwindSafe(|| host.pin(addr.addr(), len as usize)));
    match pinned.unwrap_or_else(refused) {
        Ok(()) => codes::OK,
        Err(why) => {
            // SAFETY: the provider's error is as the header demands.
            unsafe { text::fill(error, &why.to_string(), "") };
            codes::status_code(VpStatus::Os)
        }
    }
}

unsafe extern "C" fn unpin(context: *mut c_void, addr: *mut c_void, len: u64) {
    // SAFETY: the provider passes what it was given and keeps.
    let host = unsafe { host(context) };
    _ = catch_unwind(AssertUnwindSafe(|| host.unpin(addr.addr(), len as usize)));
}
