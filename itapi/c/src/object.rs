//! The objects behind the handles of C: one table for all kinds, so that a handle of the wrong kind
//! is detected.
//!
//! The table does not depend on the kinds: each kind's own file implements [`Object`]. An object is stored
//! with its type, and returned as that type only. Any thread; a lookup takes no lock.

use std::any::TypeId;
use std::ffi::c_void;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use kal_os::lock;
use ual::{Error, Ia};

use super::failure::{Failure, Outcome};
use super::handle_table::{Found, Full, HandleTable, Raw};
use super::status::{self, Status};

static OBJECTS: HandleTable<Stored> = HandleTable::new();

/// A kind of objects, for C.
pub(crate) struct Kind {
    /// Its `it_handle_type_enum_t`.
    pub(crate) number: u32,
    /// In messages.
    pub(crate) name: &'static str,
    /// The status for a handle that names none of it.
    pub(crate) wrong: Status,
}

/// The order in which an adapter closes its objects: users before what they use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CloseOrder {
    Listeners,
    Windows,
    Endpoints,
    Regions,
    SharedQueues,
    Dispatchers,
    Aggregates,
    Zones,
    /// Itself.
    Adapter,
}

impl CloseOrder {
    /// What an adapter has, in this order.
    const CHILDREN: [Self; 8] = [
        Self::Listeners,
        Self::Windows,
        Self::Endpoints,
        Self::Regions,
        Self::SharedQueues,
        Self::Dispatchers,
        Self::Aggregates,
        Self::Zones,
    ];
}

/// An object that a handle may name.
pub(crate) trait Object: Send + Sync + 'static {
    /// Its kind in C.
    fn kind() -> &'static Kind
    where
        Self: Sized;

    /// Its adapter.
    fn ia(&self) -> Arc<Ia>;

    /// When its adapter closes it.
    fn close_order(&self) -> CloseOrder;

    /// Wakes the threads that wait for it, before its adapter closes anything.
    fn abort(&self) {}

    /// Closes it, unless it is in use.
    fn close(&self) -> ual::Result<()>;
}

/// An object in the table.
struct Stored {
    /// The type of the object.
    of: TypeId,
    kind: &'static Kind,
    /// `it_set_consumer_context`.
    context: Mutex<Option<u64>>,
    value: Box<dyn Object>,
}

impl Stored {
    fn new<T: Object>(value: T) -> Self {
        let (of, kind) = (TypeId::of::<T>(), T::kind());
        Self { of, kind, context: Mutex::default(), value: Box::new(value) }
    }

    /// The object, if it is of this type.
    #[inline]
    fn as_a<T: Object>(&self) -> Option<NonNull<T>> {
        (self.of == TypeId::of::<T>()).then(|| NonNull::from(&*self.value).cast())
    }
}

/// The object of a handle, for one call: it lives until the call has returned, also if another thread frees
/// it meanwhile.
pub(crate) struct Ref<T> {
    object: NonNull<T>,
    _keeps: Found<Stored>,
}

impl<T: Object> Ref<T> {
    #[inline]
    fn new(found: Found<Stored>) -> Result<Self, Found<Stored>> {
        match found.as_ref().and_then(|entry| entry.object.as_a()) {
            Some(object) => Ok(Self { object, _keeps: found }),
            None => Err(found),
        }
    }
}

impl<T: Object> Deref for Ref<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `as_a` made it from a reference to what the box of a `Stored` holds, which is a `T`:
        // `of` says so, and is set together with the box. `_keeps` keeps the `Stored` for as long as
        // this lives. Nothing changes the box or borrows its content exclusively before the `Stored`
        // is dropped, and a `T` is `Sync`.
        unsafe { self.object.as_ref() }
    }
}

/// Stores an object; its handle. `make` gets the handle.
pub(crate) fn insert<T: Object>(make: impl FnOnce(Raw) -> T) -> Outcome<Raw> {
    OBJECTS.insert(|raw| Stored::new(make(raw))).map_err(|full| {
        let text = match full {
            Full::Handles => "more than 2^30 IT-API objects in this process",
            Full::Memory => "no memory for the handle of another object",
        };
        Failure::new(status::IT_ERR_RESOURCES, text)
    })
}

/// The object of a handle that C passed.
#[inline]
pub(crate) fn find<T: Object>(handle: *mut c_void) -> Outcome<Ref<T>> {
    find_or(handle, T::kind().wrong)
}

/// As [`find`], with another status for a wrong handle.
#[inline]
pub(crate) fn find_or<T: Object>(handle: *mut c_void, wrong: Status) -> Outcome<Ref<T>> {
    let other = match OBJECTS.get(raw_of(handle)).map(Ref::new) {
        Some(Ok(found)) => return Ok(found),
        Some(Err(other)) => Some(other),
        None => None,
    };
    Err(refuse(handle, other, T::kind().name, wrong))
}

/// As [`find`] for a handle that may name something else, without a refusal.
pub(crate) fn try_find<T: Object>(handle: *mut c_void) -> Option<Ref<T>> {
    Ref::new(OBJECTS.get(raw_of(handle))?).ok()
}

/// True if there is an object of this kind that is `wanted`.
pub(crate) fn any<T: Object>(wanted: impl Fn(&T) -> bool) -> bool {
    let mut objects = OBJECTS.iter().filter_map(|(raw, _)| Ref::new(OBJECTS.get(raw)?).ok());
    objects.any(|object: Ref<T>| wanted(&object))
}

/// The object in a slot of the table, if it is of this kind; see [`Raw::slot`].
#[inline]
pub(crate) fn at<T: Object>(slot: u32) -> Option<Ref<T>> {
    Ref::new(OBJECTS.at(slot)?).ok()
}

/// Makes a handle stale; the object is dropped when the last call that uses it has returned. False if it
/// was stale already: exactly one of several callers gets true.
pub(crate) fn forget(handle: *mut c_void) -> bool {
    OBJECTS.remove(raw_of(handle)).is_some()
}

/// The kind of a handle of any kind, `it_handle_type_enum_t`.
pub(crate) fn type_of(handle: *mut c_void) -> Outcome<u32> {
    with_any(handle, |stored| stored.kind.number)
}

/// The consumer context of an object of any kind.
pub(crate) fn context(handle: *mut c_void) -> Outcome<Option<u64>> {
    with_any(handle, |stored| *lock(&stored.context))
}

/// Sets the consumer context of an object of any kind.
pub(crate) fn set_context(handle: *mut c_void, context: u64) -> Outcome {
    with_any(handle, |stored| *lock(&stored.context) = Some(context))
}

/// One round of closing an adapter's objects; objects still in use are left for the next round. Allocates nothing.
pub(crate) fn close_all(ia: &Arc<Ia>) {
    let of = |order| {
        OBJECTS.iter().filter(move |(_, entry)| {
            let object = &entry.object.value;
            object.close_order() == order && Arc::ptr_eq(&object.ia(), ia)
        })
    };
    CloseOrder::CHILDREN.into_iter().flat_map(of).for_each(|(_, entry)| entry.object.value.abort());
    for (raw, entry) in CloseOrder::CHILDREN.into_iter().flat_map(of) {
        if let Ok(()) | Err(Error::Closed(_)) = entry.object.value.close() {
            OBJECTS.remove(raw);
        }
    }
}

/// A handle for C.
#[inline]
pub(crate) fn handle<T>(number: u64) -> *mut T {
    std::ptr::without_provenance_mut(number as usize)
}

#[inline]
fn raw_of(handle: *mut c_void) -> Raw {
    Raw::new(handle.addr() as u64)
}

fn with_any<R>(handle: *mut c_void, read: impl FnOnce(&Stored) -> R) -> Outcome<R> {
    let found = OBJECTS.get(raw_of(handle));
    match found.as_ref().and_then(|found| found.as_ref()) {
        Some(entry) => Ok(read(&entry.object)),
        None => Err(refuse(handle, None, "object", status::IT_ERR_INVALID_HANDLE)),
    }
}

/// The failure for a wrong handle.
#[cold]
fn refuse(
    handle: *mut c_void,
    found: Option<Found<Stored>>,
    wanted: &str,
    wrong: Status,
) -> Failure {
    let kind = found.as_ref().and_then(|found| found.as_ref()).map(|entry| entry.object.kind);
    let text = match kind {
        _ if handle.is_null() => format!("the {wanted} handle is IT_NULL_HANDLE"),
        Some(Kind { name, .. }) => {
            format!("the handle {handle:?} names an object of kind {name}, not {wanted}")
        }
        None => format!(
            "the {wanted} handle {handle:?} names nothing: it was freed, or never returned by a \
             create call of this process"
        ),
    };
    // Both types of endpoints have handles of one kind for C.
    let is_endpoint = kind.is_some_and(|kind| kind.wrong == status::IT_ERR_INVALID_EP);
    let wrong = match wrong {
        status::IT_ERR_INVALID_EP if is_endpoint => status::IT_ERR_INVALID_EP_TYPE,
        wrong => wrong,
    };
    Failure::new(wrong, text)
}
