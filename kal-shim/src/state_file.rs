//! The state page of this process as a file: creates, grows and removes it, and lends its records.
//!
//! Owner: the access layer, one per process and copy of the library. Records are lent to adapters and queue
//! pairs, and returned when the last user of one drops it: no queue pair writes to another's record. A lock
//! protects the list of free records; it is taken when queue pairs are created and destroyed.
//!
//! All octets of the file are allocated before they are mapped, so a full file system is an
//! error here and no fault later. If the page is full, a queue pair has no record; the page counts it. A forked
//! child has neither file nor mapping ([`crate::shared_map`]), and makes its own. The file is removed with its
//! last user, or when the process exits; after a kill the first reader removes it.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, Weak};

use kal_os::fork::Descriptors;
use kal_os::lock;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use state_page::layout::{self, DEVICES, DEVICES_AT, SLOTS_AT};
use state_page::place::{self, PAGE, SOCKET, Unusable};
use state_page::{Device, DeviceRef, Header, RecordRef, Slot, SlotRef};

use crate::fork::{self, Host};
use crate::mem::page_size;
use crate::shared_map::SharedMap;

/// Most copies of the library in one process.
const COPIES: u32 = 8;
/// Most slots by which the file grows.
const MOST_MORE: usize = 4096;

/// Why there is no state page.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory is not one that this user alone can write to.
    #[error("the directory {path} cannot be used: {why}", path = path.display())]
    Directory {
        /// The directory.
        path: std::path::PathBuf,
        /// Why not.
        why: Unusable,
    },
    /// The system refused a call.
    #[error("{attempt}: {why}")]
    Os {
        /// What.
        attempt: &'static str,
        /// Its error.
        why: io::Error,
    },
    /// All names are taken, by copies of the library in this process.
    #[error("{COPIES} copies of the library in this process publish already")]
    Copies,
}

fn os<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> StateError {
    move |why| StateError::Os { attempt, why: why.into() }
}

/// The page, and its free records.
pub struct StateFile(Arc<Inner>);

struct Inner {
    directory: OwnedFd,
    /// Names of the page and of the socket.
    names: [CString; 2],
    file: File,
    header: RecordRef<Header>,
    devices: [RecordRef<Device>; DEVICES],
    free: Mutex<Free>,
    /// The process that made it.
    generation: u32,
}

struct Free {
    slots: Vec<RecordRef<Slot>>,
    devices: u32,
    octets: u64,
}

/// A lent slot; dropping it returns the slot.
struct LentSlot {
    slot: RecordRef<Slot>,
    file: Arc<Inner>,
}

struct LentDevice {
    index: u32,
    file: Arc<Inner>,
}

impl StateFile {
    /// Makes the page of this process in a directory, which is made if it is not there. `library`: its version.
    ///
    /// # Errors
    /// See [`StateError`]; no file is left then.
    pub fn create(directory: &Path, library: &str) -> Result<Self, StateError> {
        let uid = user();
        match rustix::fs::mkdir(directory, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(os("make the directory of state pages")(error)),
        }
        let opened = Descriptors::make::<Host, _>(|| {
            place::open_directory(directory, uid).map_err(io::Error::other)
        });
        let opened = opened.map_err(|why| {
            let why = why.downcast::<Unusable>().unwrap_or_else(Unusable::Os);
            StateError::Directory { path: directory.to_owned(), why }
        })?;
        let inner = Inner::create(opened.into(), uid, library)?;
        let inner = Arc::new(inner);
        remove_at_exit(&inner);
        Ok(Self(inner))
    }

    /// A record for an adapter, with its index; `None`: all are taken.
    pub fn device(&self) -> Option<(u32, DeviceRef)> {
        let mut free = lock(&self.0.free);
        let index = free.devices.trailing_ones();
        let record = self.0.devices.get(index as usize)?;
        free.devices |= 1 << index;
        let keep = Arc::new(LentDevice { index, file: self.0.clone() });
        // SAFETY: the record lies in a mapping that the file keeps, and `keep` keeps the file.
        Some((index, unsafe { RecordRef::at(NonNull::from(&**record), keep) }))
    }

    /// A record for a queue pair, cleared; `None`: there is no room, which the page counts until
    /// [`StateFile::forget_unpublished`].
    pub fn slot(&self) -> Option<SlotRef> {
        let slot = self.0.take_slot();
        if slot.is_none() {
            self.0.header.unpublished.fetch_add(1, Relaxed);
        }
        let slot = slot?;
        let at = NonNull::from(&*slot);
        let keep = Arc::new(LentSlot { slot, file: self.0.clone() });
        // SAFETY: the record lies in the mapping that `slot` keeps, and `keep` has `slot`.
        Some(unsafe { RecordRef::at(at, keep) })
    }

    /// Counts one queue pair without a record less.
    pub fn forget_unpublished(&self) {
        self.0.header.unpublished.fetch_sub(1, Relaxed);
    }

    /// The directory.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.0.directory.as_fd()
    }

    /// Name of the socket for questions that belongs to the page.
    pub fn socket_name(&self) -> &CString {
        &self.0.names[1]
    }

    /// Whether this process made it, and did not inherit it.
    pub fn is_ours(&self) -> bool {
        self.0.is_ours()
    }
}

impl Inner {
    fn create(directory: OwnedFd, uid: u32, library: &str) -> Result<Self, StateError> {
        let pid = std::process::id();
        // Another copy of the library may be creating it at this moment.
        let scratch = format!(".{pid}.{:x}.new", &raw const LIVE as usize);
        let file = make_file(&directory, &scratch)?;
        let made = Self::fill(file, uid, library, pid).and_then(|(file, map)| {
            let names = publish(&directory, &scratch, pid)?;
            Ok((file, map, names))
        });
        // Its final name differs.
        let _ = rustix::fs::unlinkat(&directory, &*scratch, AtFlags::empty());
        let (file, (first, octets), names) = made?;
        let first = Arc::new(first);
        let free = Free { slots: Vec::new(), devices: 0, octets };
        // SAFETY: the mapping begins with a header, and `first` keeps it.
        let header = unsafe { RecordRef::at(first.addr().cast(), first.clone()) };
        let devices = std::array::from_fn(|n| {
            let at = DEVICES_AT + n * size_of::<Device>();
            // SAFETY: the device records lie in the mapping, before the slots.
            let at = unsafe { first.addr().add(at) };
            // SAFETY: as for the header.
            unsafe { RecordRef::at(at.cast(), first.clone()) }
        });
        let generation = fork::generation();
        let inner = Self { directory, names, file, header, devices, free: free.into(), generation };
        let mut free = lock(&inner.free);
        inner
            .reserve(&mut free, (first.len() - SLOTS_AT) / layout::SLOT)
            .map_err(os("list the records of a state page"))?;
        inner.add_slots(&mut free, &first, SLOTS_AT);
        drop(free);
        Ok(inner)
    }

    /// Allocates, locks, maps and fills the first octets.
    fn fill(
        file: File,
        uid: u32,
        library: &str,
        pid: u32,
    ) -> Result<(File, (SharedMap, u64)), StateError> {
        let len = (SLOTS_AT + 16 * layout::SLOT).next_multiple_of(page_size());
        kal_os::allocate(&file, 0, len as u64).map_err(os("allocate a state page"))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(os("lock a state page"))?;
        let map = SharedMap::new(&file, 0, len).map_err(os("map a state page"))?;
        // SAFETY: the mapping begins with a header of atomics, all zero, and lives for as long as this function.
        let header = unsafe { map.addr().cast::<Header>().as_ref() };
        header.version.store(layout::VERSION, Relaxed);
        header.header_size.store(size_of::<Header>() as u32, Relaxed);
        header.devices_at.store(DEVICES_AT as u32, Relaxed);
        header.device_size.store(layout::DEVICE as u32, Relaxed);
        header.devices.store(DEVICES as u32, Relaxed);
        header.slots_at.store(SLOTS_AT as u32, Relaxed);
        header.slot_size.store(layout::SLOT as u32, Relaxed);
        header.pid.store(pid, Relaxed);
        header.uid.store(uid, Relaxed);
        header.start.store(place::start_of(pid).unwrap_or(0), Relaxed);
        header.pid_namespace.store(place::pid_namespace(), Relaxed);
        for (to, half) in header.boot_id.iter().zip(place::boot_id()) {
            to.store(half, Relaxed);
        }
        header.library.set(library);
        let exe = std::env::current_exe().unwrap_or_default();
        header.exe.set(&exe.to_string_lossy());
        header.magic.store(layout::MAGIC, Release);
        Ok((file, (map, len as u64)))
    }

    fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    fn take_slot(self: &Arc<Self>) -> Option<RecordRef<Slot>> {
        if !self.is_ours() {
            return None;
        }
        let mut free = lock(&self.free);
        if free.slots.is_empty() {
            self.grow(&mut free).ok()?;
        }
        free.slots.pop()
    }

    /// Doubles the slots, within bounds.
    fn grow(&self, free: &mut Free) -> io::Result<()> {
        let now = self.header.slots.load(Relaxed) as usize;
        let len = (now.min(MOST_MORE) * layout::SLOT).next_multiple_of(page_size());
        let at = free.octets;
        self.reserve(free, len / layout::SLOT)?;
        kal_os::allocate(&self.file, at, len as u64)?;
        let map = Arc::new(SharedMap::new(&self.file, at, len)?);
        free.octets += len as u64;
        self.add_slots(free, &map, 0);
        Ok(())
    }

    /// Reserves room in the list for all slots and `more` new ones.
    fn reserve(&self, free: &mut Free, more: usize) -> io::Result<()> {
        let all = self.header.slots.load(Relaxed) as usize + more;
        let missing = all.saturating_sub(free.slots.len());
        free.slots.try_reserve_exact(missing).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    /// Adds the slots of a mapping, from `from` on, to the list, which has room for them.
    fn add_slots(&self, free: &mut Free, map: &Arc<SharedMap>, from: usize) {
        let more = (map.len() - from) / layout::SLOT;
        // The first ones are taken first.
        for n in (0..more).rev() {
            // SAFETY: `from` and `more` slots after it are in the mapping.
            let at = unsafe { map.addr().add(from + n * layout::SLOT) };
            // SAFETY: slots are aligned in it, all atomics, and `map` keeps it.
            free.slots.push(unsafe { RecordRef::at(at.cast(), map.clone()) });
        }
        self.header.slots.fetch_add(more as u32, Release);
    }

    fn remove(&self) {
        if self.is_ours() {
            for name in &self.names {
                let _ = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Drop for LentSlot {
    fn drop(&mut self) {
        // A child's copy is private memory, and its lock may never be released.
        if self.file.is_ours() {
            self.slot.clear();
            // There is room for all of them.
            lock(&self.file.free).slots.push(self.slot.clone());
        }
    }
}

impl Drop for LentDevice {
    fn drop(&mut self) {
        if self.file.is_ours() {
            self.file.devices[self.index as usize].clear();
            lock(&self.file.free).devices &= !(1 << self.index);
        }
    }
}

/// The user id of our pages.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn make_file(directory: &OwnedFd, name: &str) -> Result<File, StateError> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let open = || {
        let made = rustix::fs::openat(directory, name, flags, mode);
        Descriptors::make::<Host, _>(|| Ok(made?))
    };
    let made = open().or_else(|error| match error.kind() {
        // Of a killed process with this id.
        io::ErrorKind::AlreadyExists => {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
            open()
        }
        _ => Err(error),
    });
    Ok(File::from(made.map_err(os("make a state page"))?))
}

/// Gives the complete page its name; the names of the page and of its socket.
fn publish(directory: &OwnedFd, scratch: &str, pid: u32) -> Result<[CString; 2], StateError> {
    for copy in 0..COPIES {
        let stem = if copy == 0 { pid.to_string() } else { format!("{pid}.{copy}") };
        let name = format!("{stem}.{PAGE}");
        for _ in 0..2 {
            match rustix::fs::linkat(directory, scratch, directory, &*name, AtFlags::empty()) {
                Ok(()) => {
                    let names = [name, format!("{stem}.{SOCKET}")];
                    return Ok(names.map(|name| CString::new(name).unwrap_or_default()));
                }
                Err(Errno::EXIST) if is_stale(directory, &name) => {
                    let _ = rustix::fs::unlinkat(directory, &*name, AtFlags::empty());
                }
                Err(Errno::EXIST) => break,
                Err(error) => return Err(os("name a state page")(error)),
            }
        }
    }
    Err(StateError::Copies)
}

/// Whether a page belongs to a killed process with this id.
fn is_stale(directory: &OwnedFd, name: &str) -> bool {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::RDONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => rustix::fs::flock(file, FlockOperation::NonBlockingLockShared).is_ok(),
        // A symbolic link, or a file that this library did not make.
        Err(error) => error != Errno::NOENT,
    }
}

/// Files that are to be removed when the process exits without having closed its adapters.
static LIVE: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

fn remove_at_exit(inner: &Arc<Inner>) {
    let Ok(mut live) = LIVE.try_lock() else { return };
    let first = live.capacity() == 0;
    live.retain(|known| known.strong_count() > 0);
    live.push(Arc::downgrade(inner));
    if first {
        // If that fails, the next reader removes the file.
        kal_os::at_exit(exit);
    }
}

extern "C" fn exit() {
    // A thread that uses it now removes it, or leaves it to the next reader.
    if let Ok(live) = LIVE.try_lock() {
        live.iter().filter_map(Weak::upgrade).for_each(|inner| inner.remove());
    }
}

#[cfg(test)]
#[path = "state_file_tests.rs"]
mod tests;
