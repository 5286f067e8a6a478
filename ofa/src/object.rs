//! Handles of the verbs interface: pointers to structures that applications read, each followed by its
//! private part.
//!
//! The pointer is the handle, as the interface demands, so in general a stale one cannot be distinguished from
//! a valid one. A word after the public part detects most mistakes: a handle of another kind, and, in debug
//! builds, which never free the memory, every use after destruction; both end the process with a message. The
//! application owns a handle from creation to destruction; the private part lives as long as it is referenced.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kal_os::lock;

use crate::errno::{EINVAL, Errno};

/// A C handle type and its private part.
pub trait Handle: Sized {
    /// The structure that it points into.
    type Whole;
    /// The private part.
    type Private: Send + Sync + 'static;
    /// Offset of the handle in the structure, in octets.
    const OFFSET: usize = 0;
    /// Its name in C.
    const NAME: &'static str;
}

/// The memory of a handle.
#[repr(C)]
struct Object<H: Handle> {
    /// Applications read and write it.
    whole: UnsafeCell<H::Whole>,
    alive: AtomicU64,
    /// Threads in [`unless_retired`].
    users: AtomicU32,
    private: ManuallyDrop<Arc<H::Private>>,
}

/// The word of live objects of a kind.
const fn word<H: Handle>() -> u64 {
    // FNV-1a of the name.
    let name = H::NAME.as_bytes();
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < name.len() {
        hash = (hash ^ name[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash | 1
}

/// The word of destroyed objects.
const DEAD: u64 = 0;

/// Creates a handle, valid until [`destroy`].
pub fn new<H: Handle>(whole: H::Whole, private: Arc<H::Private>) -> *mut H {
    let object = Object::<H> {
        whole: UnsafeCell::new(whole),
        alive: AtomicU64::new(word::<H>()),
        users: AtomicU32::new(0),
        private: ManuallyDrop::new(private),
    };
    // The structure comes first, and the handle points into it.
    Box::into_raw(Box::new(object)).wrapping_byte_add(H::OFFSET).cast()
}

/// The private part of a handle; EINVAL for NULL.
///
/// # Safety
/// `handle` is NULL, or was created by [`new`] and not destroyed, and is not destroyed while the result
/// lives.
#[inline]
pub unsafe fn with<'a, H: Handle>(handle: *mut H) -> Result<&'a Arc<H::Private>, Errno> {
    if handle.is_null() {
        return Err(EINVAL);
    }
    let object = handle.wrapping_byte_sub(H::OFFSET).cast::<Object<H>>();
    // SAFETY: the caller's promise: `new` made it, and it lives; C writes `whole` only, which is a cell.
    let object = unsafe { &*object };
    if object.alive.load(Ordering::Relaxed) != word::<H>() {
        misused::<H>();
    }
    Ok(&object.private)
}

/// Calls `visit` with the private part of a handle, which is not taken meanwhile; EINVAL for NULL, and for a
/// handle that was given to [`retire`]. `visit` must be short, and does not destroy the handle.
///
/// # Safety
/// As [`with`], but it may have been given to [`retire`], also at the same time.
pub unsafe fn unless_retired<H: Handle, R>(
    handle: *mut H,
    visit: impl FnOnce(&Arc<H::Private>) -> R,
) -> Result<R, Errno> {
    if handle.is_null() {
        return Err(EINVAL);
    }
    let object = handle.wrapping_byte_sub(H::OFFSET).cast::<Object<H>>();
    // SAFETY: the caller's promise; `retire` does not free it.
    let users = unsafe { &(*object).users };
    // SAFETY: as above.
    let alive = unsafe { &(*object).alive };
    // Either this thread reads that the handle is dead, or the one that retires it reads that this one is here:
    // both write before they read, in one order.
    users.fetch_add(1, Ordering::SeqCst);
    let result = match alive.load(Ordering::SeqCst) {
        DEAD => Err(EINVAL),
        // SAFETY: the caller's promise; it is not taken while this thread is counted.
        _ => unsafe { with(handle) }.map(visit),
    };
    users.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Destroys a handle of which a thread of the program may know nothing yet, and returns its private part. Its
/// memory stays.
///
/// # Safety
/// As [`with`]; it is used later by [`unless_retired`] only.
pub unsafe fn retire<H: Handle>(handle: *mut H) -> Result<Arc<H::Private>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { end(handle) }.map(|(_, private)| private)
}

/// Destroys a handle, and returns its private part; EINVAL for NULL.
///
/// # Safety
/// As [`with`]; the handle is not used at the same time or later.
pub unsafe fn destroy<H: Handle>(handle: *mut H) -> Result<Arc<H::Private>, Errno> {
    // SAFETY: the caller's promise.
    let (object, private) = unsafe { end(handle) }?;
    if !cfg!(debug_assertions) {
        // SAFETY: a box of `new`, given up here; `private` is taken and not dropped by it.
        drop(unsafe { Box::from_raw(object) });
    }
    Ok(private)
}

/// Marks a handle as destroyed, and takes its private part.
///
/// # Safety
/// As [`with`].
unsafe fn end<H: Handle>(handle: *mut H) -> Result<(*mut Object<H>, Arc<H::Private>), Errno> {
    if handle.is_null() {
        return Err(EINVAL);
    }
    let object = handle.wrapping_byte_sub(H::OFFSET).cast::<Object<H>>();
    // SAFETY: the caller's promise, as in `with`.
    let users = unsafe { &(*object).users };
    // SAFETY: as above.
    let alive = unsafe { &(*object).alive };
    if alive.swap(DEAD, Ordering::SeqCst) != word::<H>() {
        misused::<H>();
    }
    while users.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
    // SAFETY: only the first call that destroys it comes here, and it is no longer used.
    let private = unsafe { &mut (*object).private };
    // SAFETY: as above, so it is taken once.
    let private = unsafe { ManuallyDrop::take(private) };
    Ok((object, private))
}

#[cold]
fn misused<H: Handle>() -> ! {
    eprintln!(
        "warpline: a {} was passed that was destroyed before, or is none: this is an error of the program",
        H::NAME
    );
    std::process::abort();
}

/// A number in a handle's structure that applications read directly and that events change.
#[derive(Default)]
pub struct Mirror(Mutex<Option<Number>>);

/// Valid until the handle is destroyed, which removes it first.
struct Number(*mut u32);

// SAFETY: only used under the lock, to write a number that others read at their own risk, as in C.
unsafe impl Send for Number {}

impl Mirror {
    /// Writes the number to this place from now on.
    ///
    /// # Safety
    /// It may be written until [`Mirror::end`].
    pub(crate) unsafe fn begin(&self, at: *mut u32) {
        *lock(&self.0) = Some(Number(at));
    }

    /// The structure is destroyed: writes no more.
    pub(crate) fn end(&self) {
        *lock(&self.0) = None;
    }

    pub(crate) fn set(&self, value: u32) {
        if let Some(Number(at)) = &*lock(&self.0) {
            // SAFETY: promised to `begin`, and `end` waits for the lock.
            unsafe { at.write_volatile(value) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct Thing;

    impl Handle for Thing {
        type Whole = u32;
        type Private = AtomicBool;
        const NAME: &'static str = "thing";
    }

    struct Shared(*mut Thing);

    // SAFETY: only passed to functions of this module that several threads may call.
    unsafe impl Sync for Shared {}

    #[test]
    fn a_thread_inside_has_left_when_a_handle_is_retired() {
        let private = Arc::new(AtomicBool::new(false));
        let handle = Shared(new::<Thing>(0, private.clone()));
        let handle = &handle;
        let (inside, may_leave) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let visit = |left: &Arc<AtomicBool>| {
                inside.store(true, Ordering::SeqCst);
                warpline_patience::until("to be told to leave", || {
                    may_leave.load(Ordering::SeqCst)
                });
                left.store(true, Ordering::SeqCst);
            };
            // SAFETY: `handle` is only retired below.
            let visitor = scope.spawn(move || unsafe { unless_retired(handle.0, visit) });
            warpline_patience::until("a thread inside", || inside.load(Ordering::SeqCst));
            let retirer = scope.spawn(move || {
                // SAFETY: once, and later uses are those of `unless_retired`.
                let retired = unsafe { retire(handle.0) }.unwrap();
                assert!(retired.load(Ordering::SeqCst), "a thread is still inside");
            });
            let object = handle.0.cast::<Object<Thing>>();
            // SAFETY: it is not freed.
            let alive = unsafe { &(*object).alive };
            warpline_patience::until("the handle to be dead", || {
                alive.load(Ordering::SeqCst) == DEAD
            });
            // SAFETY: it is retired.
            let late = unsafe { unless_retired(handle.0, |_| ()) };
            assert_eq!(late, Err(EINVAL));
            may_leave.store(true, Ordering::SeqCst);
            visitor.join().unwrap().unwrap();
            retirer.join().unwrap();
        });
        assert_eq!(Arc::strong_count(&private), 1);
    }
}
