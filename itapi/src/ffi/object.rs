//! The objects behind the handles of C: one table for all kinds, so that a handle of the wrong kind
//! is found out.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use super::ep::EpObject;
use super::evd::EvdObject;
use super::failure::{Failure, Outcome};
use super::ia::IaObject;
use super::listen::ListenObject;
use super::lmr::LmrObject;
use super::pz::PzObject;
use super::rmr::RmrObject;
use super::srq::SrqObject;
use super::status::{self, Status};
use super::table::{Entry, Found, Raw, Table};

static OBJECTS: Table<Object> = Table::new();

/// What a handle names.
pub(crate) struct Object {
    kind: Kind,
    /// `it_set_consumer_context`.
    context: Mutex<Option<u64>>,
}

/// The kinds of objects, and for each its class.
macro_rules! kinds {
    ($($kind:ident($class:ty), $type:literal, $name:literal, $wrong:ident;)*) => {
        /// An object of one of the kinds.
        pub(crate) enum Kind {
            $(
                #[doc = $name]
                $kind($class),
            )*
        }

        impl Kind {
            /// Its `it_handle_type_enum_t`, and its name in messages.
            fn class(&self) -> (u32, &'static str) {
                match self {
                    $(Self::$kind(_) => ($type, $name),)*
                }
            }
        }

        $(
            impl Class for $class {
                const NAME: &'static str = $name;
                const WRONG: Status = status::$wrong;

                fn of(kind: &Kind) -> Option<&Self> {
                    match kind {
                        Kind::$kind(object) => Some(object),
                        _ => None,
                    }
                }

                fn into_kind(self) -> Kind {
                    Kind::$kind(self)
                }
            }
        )*
    };
}

kinds! {
    Ep(EpObject), 1, "endpoint", IT_ERR_INVALID_EP;
    Evd(EvdObject), 2, "event dispatcher", IT_ERR_INVALID_EVD;
    Ia(IaObject), 3, "interface adapter", IT_ERR_INVALID_IA;
    Listen(ListenObject), 4, "listener", IT_ERR_INVALID_LISTEN;
    Lmr(LmrObject), 5, "memory region", IT_ERR_INVALID_LMR;
    Pz(PzObject), 6, "protection zone", IT_ERR_INVALID_PZ;
    Rmr(RmrObject), 7, "memory window", IT_ERR_INVALID_RMR;
    Srq(SrqObject), 9, "shared receive queue", IT_ERR_INVALID_SRQ;
}

/// One kind of object.
pub(crate) trait Class: Sized + 'static {
    /// In messages.
    const NAME: &'static str;
    /// The status for a handle that names none of it.
    const WRONG: Status;
    /// The object, if it is of this kind.
    fn of(kind: &Kind) -> Option<&Self>;
    /// As one of the kinds.
    fn into_kind(self) -> Kind;
}

/// An object that a call looks at; alive until the call is done, whoever frees it meanwhile.
pub(crate) struct Ref<C>(Found<Object>, PhantomData<C>);

impl<C: Class> Deref for Ref<C> {
    type Target = C;

    #[inline]
    fn deref(&self) -> &C {
        let found = self.0.as_ref().and_then(|entry| C::of(&entry.object.kind));
        found.expect("a Ref is made of its own kind only")
    }
}

/// Stores an object; its handle. `make` gets the handle.
pub(crate) fn insert<C: Class>(make: impl FnOnce(Raw) -> C) -> Outcome<Raw> {
    let object = |raw| Object { kind: make(raw).into_kind(), context: Mutex::default() };
    OBJECTS.insert(object).ok_or_else(|| {
        Failure::new(status::IT_ERR_RESOURCES, "more than 2^30 IT-API objects in this process")
    })
}

/// The object of a handle that C passed.
#[inline]
pub(crate) fn find<C: Class>(handle: *mut c_void) -> Outcome<Ref<C>> {
    find_or(handle, C::WRONG)
}

/// As [`find`], with another status for a wrong handle.
#[inline]
pub(crate) fn find_or<C: Class>(handle: *mut c_void, wrong: Status) -> Outcome<Ref<C>> {
    match OBJECTS.get(Raw::new(handle.addr() as u64)) {
        Some(found) if found.as_ref().is_some_and(|e| C::of(&e.object.kind).is_some()) => {
            Ok(Ref(found, PhantomData))
        }
        other => Err(refuse(handle, other, C::NAME, wrong)),
    }
}

/// The object in a slot of the table, if it is of this kind; see [`Raw::slot`].
#[inline]
pub(crate) fn at<C: Class>(slot: u32) -> Option<Ref<C>> {
    let found = OBJECTS.at(slot)?;
    found.as_ref().and_then(|entry| C::of(&entry.object.kind))?;
    Some(Ref(found, PhantomData))
}

/// Makes a handle stale; the object goes when the last call that looks at it is done. Exactly one
/// of several callers gets it.
pub(crate) fn remove(raw: Raw) -> Option<Arc<Entry<Object>>> {
    OBJECTS.remove(raw)
}

/// The kind of a handle of any kind, `it_handle_type_enum_t`.
pub(crate) fn type_of(handle: *mut c_void) -> Outcome<u32> {
    with_any(handle, |object| object.kind.class().0)
}

/// The consumer context of an object of any kind.
pub(crate) fn context(handle: *mut c_void) -> Outcome<Option<u64>> {
    with_any(handle, |object| *object.context.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Sets the consumer context of an object of any kind.
pub(crate) fn set_context(handle: *mut c_void, context: u64) -> Outcome {
    with_any(handle, |object| {
        *object.context.lock().unwrap_or_else(PoisonError::into_inner) = Some(context);
    })
}

fn with_any<R>(handle: *mut c_void, look: impl FnOnce(&Object) -> R) -> Outcome<R> {
    let found = OBJECTS.get(Raw::new(handle.addr() as u64));
    match found.as_ref().and_then(|found| found.as_ref()) {
        Some(entry) => Ok(look(&entry.object)),
        None => Err(refuse(handle, None, "object", status::IT_ERR_INVALID_HANDLE)),
    }
}

/// Says what is wrong with a handle.
#[cold]
fn refuse(
    handle: *mut c_void,
    found: Option<Found<Object>>,
    wanted: &str,
    wrong: Status,
) -> Failure {
    let of = |found: &Found<Object>| found.as_ref().map(|entry| entry.object.kind.class().1);
    let text = match found.as_ref().and_then(of) {
        _ if handle.is_null() => format!("the {wanted} handle is IT_NULL_HANDLE"),
        Some(kind) => format!("the handle {handle:?} names an object of kind {kind}, not {wanted}"),
        None => format!(
            "the {wanted} handle {handle:?} names nothing: it was freed, or never returned by a \
             create call of this process"
        ),
    };
    Failure::new(wrong, text)
}
