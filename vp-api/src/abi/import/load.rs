//! Loads a provider's shared library: opens it, checks the descriptor, and checks the function table.

use std::borrow::Cow;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use thiserror::Error;

use super::super::export::Exported;
use super::super::types::{Plain, Sized32};
use super::super::{MAGIC, MAJOR, MINOR, codes, grow, text, types as c};
use super::{Imported, elf};
use crate::{Capabilities, Provider};

const DESCRIPTOR: &CStr = c"warpline_provider";
const GET_OPS: &CStr = c"warpline_provider_get_ops";
const WRAP: &CStr = c"warpline_provider_wrap";

/// The error for a library that is not a usable provider.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{path}: {fault}", path = path.display())]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What can be wrong with a provider's library.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum Fault {
    #[error("the path is not absolute; providers are loaded from absolute paths only")]
    NotAbsolute,
    #[error("cannot be loaded: {0}")]
    NotALibrary(String),
    #[error("{0}")]
    Dangerous(String),
    #[error("does not export `{0}`; a provider needs it, see rnicpi.h")]
    MissingSymbol(String),
    #[error("the descriptor's magic is {0:#010x} and not RI_MAGIC ({MAGIC:#010x})")]
    WrongMagic(u32),
    #[error("it speaks ABI {0}.x, this host {MAJOR}.x; rebuild it against this host's rnicpi.h")]
    WrongMajor(u16),
    #[error("the descriptor's size is {0} octets; at least {least} are needed", least = c::ProviderDescriptor::SIZE)]
    ShortDescriptor(u32),
    #[error("a reserved field is {0:#x} and must be zero")]
    Reserved(u32),
    #[error("the descriptor's name is not a word of a-z, 0-9, _ and -")]
    BadName,
    #[error("the descriptor's version is missing or not UTF-8")]
    BadVersion,
    #[error("it refuses a host of ABI {MAJOR}.{MINOR}: get_ops returned NULL")]
    NoOps,
    #[error("ri_provider_ops is too short: {0} octets; at least {least} are needed", least = c::ProviderOps::SIZE)]
    ShortTable(u32),
    #[error("ri_provider_ops lacks `{0}`, which is required")]
    MissingEntry(String),
    #[error("the layer refuses: {0}")]
    Refused(String),
}

/// Loads a library in another process, so that a crash does no harm; an error describes what happened there.
pub type Probe = fn(&Path) -> Result<(), String>;

static PROBE: OnceLock<Probe> = OnceLock::new();

/// From now on `probe` tries every library before it is loaded into this process. Only the first call has an
/// effect.
pub fn probe_with(probe: Probe) {
    // Another probe was set before, and stays.
    let _ = PROBE.set(probe);
}

/// Loads a provider's library (RTLD_NOW, RTLD_LOCAL), checks its descriptor and its table, and never unloads it.
/// Its constructors run: a library that crashes ends this process.
pub fn load(path: &Path) -> Result<Arc<dyn Provider>, LoadError> {
    let named = |fault| LoadError { path: path.to_owned(), fault };
    let library = open(path).map_err(named)?;
    // SAFETY: a library that exports this name promises that it is a descriptor.
    let descriptor = unsafe { symbol::<*const c::ProviderDescriptor>(&library, DESCRIPTOR) };
    let descriptor = descriptor.map_err(named)?;
    // SAFETY: and that this name is the function.
    let get_ops = unsafe { symbol::<c::GetOpsFn>(&library, GET_OPS) }.map_err(named)?;
    // Leaked whatever the checks find: its code may have started threads.
    std::mem::forget(library);
    // SAFETY: both are from one library, which is never unloaded.
    let provider = unsafe { from_descriptor(descriptor, get_ops) }.map_err(named)?;
    Ok(provider)
}

fn open(path: &Path) -> Result<Library, Fault> {
    if !path.is_absolute() {
        return Err(Fault::NotAbsolute);
    }
    // Opening a special file may block.
    if std::fs::metadata(path).is_ok_and(|it| !it.is_file())
        && let Some(why) = elf::fault(path)
    {
        return Err(Fault::NotALibrary(why));
    }
    if cfg!(target_feature = "crt-static") {
        return Err(Fault::NotALibrary(
            "this program is linked statically; it loads no libraries".into(),
        ));
    }
    if let Some(probe) = PROBE.get() {
        probe(path).map_err(Fault::Dangerous)?;
    }
    // SAFETY: its constructors run; naming a provider's library means trusting its code.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    library
        .map_err(|why| Fault::NotALibrary(elf::fault(path).unwrap_or_else(|| because(&why, path))))
}

/// The loader's message without the leading path, which the error shows separately.
fn because(error: &libloading::Error, path: &Path) -> String {
    let words =
        std::error::Error::source(error).map_or_else(|| error.to_string(), |e| e.to_string());
    let path = format!("{}: ", path.display());
    words.strip_prefix(&path).unwrap_or(&words).to_owned()
}

/// # Safety
///
/// The symbol, if there is one, is of this type.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T, Fault> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<T>(name) };
    let missing = |_| Fault::MissingSymbol(name.to_string_lossy().into_owned());
    found.map(|symbol| *symbol).map_err(missing)
}

/// Makes a provider of a descriptor and a function in this process.
///
/// # Safety
///
/// Both obey `rnicpi.h` and stay valid for ever.
pub unsafe fn from_descriptor(
    descriptor: *const c::ProviderDescriptor,
    get_ops: c::GetOpsFn,
) -> Result<Arc<dyn Provider>, Fault> {
    // SAFETY: the caller's promise.
    let identity = unsafe { identify(descriptor) }?;
    // SAFETY: the caller's promise.
    let ops = unsafe { get_ops(MINOR.into()) };
    // SAFETY: a table as the header demands.
    let ops = unsafe { check_table(ops) }?;
    Ok(Arc::new(Imported { ops, ..identity }))
}

/// The provider that a layer wraps: it is behind a table of a host with the minor version `host_minor`. Only
/// the host knows the provider's name.
///
/// # Safety
///
/// `ops` obeys the header and stays valid for ever.
pub(in crate::abi) unsafe fn inner(
    host_minor: u32,
    ops: *const c::ProviderOps,
) -> Result<Arc<dyn Provider>, Fault> {
    // SAFETY: the caller's promise.
    let ops = unsafe { check_table(ops) }?;
    let minor = u16::try_from(host_minor).unwrap_or(MINOR);
    let capabilities = Capabilities::all();
    Ok(Arc::new(Imported { name: Cow::Borrowed("inner"), version: "", minor, capabilities, ops }))
}

/// Checks the descriptor, but not the table.
///
/// # Safety
///
/// `descriptor` obeys the header.
unsafe fn identify(descriptor: *const c::ProviderDescriptor) -> Result<Imported, Fault> {
    // SAFETY: the caller's promise: it begins with size and magic.
    let [size, magic] = unsafe { descriptor.cast::<[u32; 2]>().read() };
    if magic != MAGIC {
        return Err(Fault::WrongMagic(magic));
    }
    if size < c::ProviderDescriptor::SIZE {
        return Err(Fault::ShortDescriptor(size));
    }
    // SAFETY: the caller's promise; it is as large as ours.
    let d = unsafe { descriptor.read() };
    if d.major != MAJOR {
        return Err(Fault::WrongMajor(d.major));
    }
    if d.reserved != 0 {
        return Err(Fault::Reserved(d.reserved));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { text::constant(d.name) }.filter(|name| is_word(name));
    // SAFETY: the caller's promise.
    let version = unsafe { text::constant(d.version) };
    Ok(Imported {
        name: Cow::Borrowed(name.ok_or(Fault::BadName)?),
        version: version.ok_or(Fault::BadVersion)?,
        minor: d.minor,
        capabilities: codes::capabilities(d.capabilities, d.minor),
        ops: c::ProviderOps::zeroed(),
    })
}

fn is_word(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    !name.is_empty() && name.chars().all(fits)
}

/// # Safety
///
/// `ops` is null, or a table as the header demands.
unsafe fn check_table(ops: *const c::ProviderOps) -> Result<c::ProviderOps, Fault> {
    if ops.is_null() {
        return Err(Fault::NoOps);
    }
    // SAFETY: the caller's promise: it begins with its size.
    let size = unsafe { ops.cast::<u32>().read() };
    if size < c::ProviderOps::SIZE {
        return Err(Fault::ShortTable(size));
    }
    // SAFETY: the caller's promise.
    let table = unsafe { grow::read(ops) };
    let missing = |entry: &str| Err(Fault::MissingEntry(entry.to_owned()));
    if table.reserved != 0 {
        return Err(Fault::Reserved(table.reserved));
    }
    match (table.devices, table.open) {
        (None, _) => missing("devices"),
        (_, None) => missing("open"),
        _ => Ok(table),
    }
}

impl LoadError {
    /// The library is not a provider, but may be a layer.
    pub fn may_be_layer(&self) -> bool {
        matches!(&self.fault, Fault::MissingSymbol(name) if GET_OPS.to_bytes() == name.as_bytes())
    }
}

/// A layer's library: wraps providers.
pub struct Layer {
    path: PathBuf,
    descriptor: *const c::ProviderDescriptor,
    wrap: c::WrapFn,
}

// SAFETY: constant data and a function that any thread may call.
unsafe impl Send for Layer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Layer {}

impl Layer {
    /// Loads a layer; checks its descriptor.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let named = |fault| LoadError { path: path.to_owned(), fault };
        let library = open(path).map_err(named)?;
        // SAFETY: a library that exports this name promises that it is a descriptor.
        let descriptor = unsafe { symbol::<*const c::ProviderDescriptor>(&library, DESCRIPTOR) };
        let descriptor = descriptor.map_err(named)?;
        // SAFETY: and that this name is the function.
        let wrap = unsafe { symbol::<c::WrapFn>(&library, WRAP) }.map_err(named)?;
        std::mem::forget(library);
        // SAFETY: both are from one library, which is never unloaded.
        let layer = unsafe { Self::from_descriptor(descriptor, wrap) }.map_err(named)?;
        Ok(Self { path: path.to_owned(), ..layer })
    }

    /// Makes a layer of a descriptor and a function in this process.
    ///
    /// # Safety
    ///
    /// Both obey `rnicpi.h` and stay valid for ever.
    pub unsafe fn from_descriptor(
        descriptor: *const c::ProviderDescriptor,
        wrap: c::WrapFn,
    ) -> Result<Self, Fault> {
        // SAFETY: the caller's promise.
        unsafe { identify(descriptor) }?;
        Ok(Self { path: PathBuf::new(), descriptor, wrap })
    }

    /// Name and version from the library's descriptor.
    pub fn identity(&self) -> Result<(String, &'static str), Fault> {
        // SAFETY: it was checked when it was loaded, and stays.
        unsafe { identify(self.descriptor) }.map(|it| (it.name.into_owned(), it.version))
    }

    /// The wrapped provider, with its name. The inner one is never freed.
    pub fn wrap(
        &self,
        inner: Arc<dyn Provider>,
        arguments: &str,
    ) -> Result<Arc<dyn Provider>, LoadError> {
        let named = |fault| LoadError { path: self.path.clone(), fault };
        let name = Cow::Owned(inner.name().to_owned());
        let table = Exported::for_ever(inner);
        let mut error = c::Error::blank();
        let arguments = text::lend(arguments);
        // SAFETY: the layer's function; the inner table is never freed.
        let ops = unsafe { (self.wrap)(MINOR.into(), table, arguments, &raw mut error) };
        if ops.is_null() {
            let why = text::unavailable(codes::OK, &error).reason;
            return Err(named(Fault::Refused(why)));
        }
        // SAFETY: a table as the header demands.
        let ops = unsafe { check_table(ops) }.map_err(named)?;
        // SAFETY: it was checked when it was loaded.
        let identity = unsafe { identify(self.descriptor) }.map_err(named)?;
        Ok(Arc::new(Imported { name, ops, ..identity }))
    }
}
