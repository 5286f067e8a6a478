//! The objects behind the handles of C: one table for all kinds, so that a handle of the wrong kind
//! is found out.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use kal_os::lock;
use ual::{ConnEvent, Ia};

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
use super::table::{Entry, Found, Full, Raw, Table};
use super::ud::address::AddressObject;
use super::ud::endpoint::UdEpObject;
use super::ud::service::UdServiceObject;

static OBJECTS: Table<Object> = Table::new();

/// What a handle names.
pub(crate) struct Object {
    kind: Kind,
    /// `it_set_consumer_context`.
    context: Mutex<Option<u64>>,
    /// Endpoints: the connection event that was dequeued last, for its text.
    news: Mutex<Option<Box<ConnEvent>>>,
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
    Address(AddressObject), 0, "address handle", IT_ERR_INVALID_AH;
    Ep(EpObject), 1, "endpoint", IT_ERR_INVALID_EP;
    Evd(EvdObject), 2, "event dispatcher", IT_ERR_INVALID_EVD;
    Ia(IaObject), 3, "interface adapter", IT_ERR_INVALID_IA;
    Listen(ListenObject), 4, "listener", IT_ERR_INVALID_LISTEN;
    Lmr(LmrObject), 5, "memory region", IT_ERR_INVALID_LMR;
    Pz(PzObject), 6, "protection zone", IT_ERR_INVALID_PZ;
    Rmr(RmrObject), 7, "memory window", IT_ERR_INVALID_RMR;
    UdEp(UdEpObject), 1, "endpoint for datagrams", IT_ERR_INVALID_EP;
    UdService(UdServiceObject), 8, "UD service request", IT_ERR_INVALID_UD_SVC;
    Srq(SrqObject), 9, "shared receive queue", IT_ERR_INVALID_SRQ;
}

impl Kind {
    /// Its adapter.
    fn ia(&self) -> Arc<Ia> {
        match self {
            Self::Address(object) => object.inner.pz().ia().clone(),
            Self::Ep(object) => object.inner.ia().clone(),
            Self::Evd(object) => object.inner.ia().clone(),
            Self::Ia(object) => object.inner.clone(),
            Self::Listen(object) => object.inner.ia().clone(),
            Self::Lmr(object) => object.inner.pz().ia().clone(),
            Self::Pz(object) => object.inner.ia().clone(),
            Self::Rmr(object) => object.inner.pz().ia().clone(),
            Self::Srq(object) => object.inner.pz().ia().clone(),
            Self::UdEp(object) => object.inner.ia().clone(),
            Self::UdService(object) => object.inner.ia().clone(),
        }
    }

    /// Its name below, and how to close it.
    pub(crate) fn close(&self) -> (u64, ual::Result<()>) {
        match self {
            Self::Address(object) => (object.inner.tag().get(), object.inner.close()),
            Self::Ep(object) => (object.inner.tag().get(), object.inner.close()),
            Self::Evd(object) => (object.inner.tag().get(), object.inner.close()),
            Self::Ia(object) => (object.inner.tag().get(), object.inner.close()),
            Self::Listen(object) => (object.inner.tag().get(), object.inner.close()),
            Self::Lmr(object) => (object.inner.tag().get(), object.inner.close()),
            Self::Pz(object) => (object.inner.tag().get(), object.inner.close()),
            Self::Rmr(object) => (object.inner.tag().get(), object.inner.close()),
            Self::Srq(object) => (object.inner.tag().get(), object.inner.close()),
            Self::UdEp(object) => (object.inner.tag().get(), object.inner.close()),
            Self::UdService(object) => (object.inner.tag().get(), object.inner.close()),
        }
    }
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
    let object = |raw| Object {
        kind: make(raw).into_kind(),
        context: Mutex::default(),
        news: Mutex::default(),
    };
    OBJECTS.insert(object).map_err(|full| {
        let text = match full {
            Full::Handles => "more than 2^30 IT-API objects in this process",
            Full::Memory => "no memory for the handle of another object",
        };
        Failure::new(status::IT_ERR_RESOURCES, text)
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

/// As [`find`] for a handle that may name something else, without a refusal.
pub(crate) fn look<C: Class>(handle: *mut c_void) -> Option<Ref<C>> {
    let found = OBJECTS.get(Raw::new(handle.addr() as u64))?;
    found.as_ref().and_then(|entry| C::of(&entry.object.kind))?;
    Some(Ref(found, PhantomData))
}

/// True if there is an object of this kind that is `wanted`.
pub(crate) fn any<C: Class>(wanted: impl Fn(&C) -> bool) -> bool {
    !OBJECTS.select(|object| C::of(&object.kind).is_some_and(&wanted)).is_empty()
}

/// The object in a slot of the table, if it is of this kind; see [`Raw::slot`].
#[inline]
pub(crate) fn at<C: Class>(slot: u32) -> Option<Ref<C>> {
    let found = OBJECTS.at(slot)?;
    found.as_ref().and_then(|entry| C::of(&entry.object.kind))?;
    Some(Ref(found, PhantomData))
}

/// Makes a handle stale; the object goes when the last call that looks at it is done. False if it
/// was stale already: exactly one of several callers gets true.
pub(crate) fn forget(handle: *mut c_void) -> bool {
    OBJECTS.remove(Raw::new(handle.addr() as u64)).is_some()
}

/// The kind of a handle of any kind, `it_handle_type_enum_t`.
pub(crate) fn type_of(handle: *mut c_void) -> Outcome<u32> {
    with_any(handle, |object| object.kind.class().0)
}

/// The consumer context of an object of any kind.
pub(crate) fn context(handle: *mut c_void) -> Outcome<Option<u64>> {
    with_any(handle, |object| *lock(&object.context))
}

/// Sets the consumer context of an object of any kind.
pub(crate) fn set_context(handle: *mut c_void, context: u64) -> Outcome {
    with_any(handle, |object| *lock(&object.context) = Some(context))
}

/// Remembers the connection event that was dequeued last, if the endpoint is still there.
pub(crate) fn set_news(handle: *mut c_void, event: Box<ConnEvent>) {
    // Freed meanwhile: nobody can ask any more.
    let _ = with_any(handle, |object| *lock(&object.news) = Some(event));
}

/// The connection event of an endpoint that was dequeued last.
pub(crate) fn news(handle: *mut c_void) -> Option<Box<ConnEvent>> {
    with_any(handle, |object| lock(&object.news).clone()).ok().flatten()
}

/// Objects of an adapter, with what it takes to close them.
pub(crate) fn of_ia(ia: &Arc<Ia>) -> Vec<Arc<Entry<Object>>> {
    let child = |kind: &Kind| !matches!(kind, Kind::Ia(_)) && Arc::ptr_eq(&kind.ia(), ia);
    let handles = OBJECTS.select(|object| child(&object.kind));
    handles.into_iter().filter_map(|raw| OBJECTS.get(raw)?.clone()).collect()
}

impl Object {
    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }
}

/// A handle for C.
#[inline]
pub(crate) fn handle<T>(number: u64) -> *mut T {
    std::ptr::without_provenance_mut(number as usize)
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
    // Both types of endpoints have handles of one kind for C.
    let other_type = |found: &Found<Object>| {
        found.as_ref().is_some_and(|entry| matches!(entry.object.kind, Kind::Ep(_) | Kind::UdEp(_)))
    };
    let wrong = match wrong {
        status::IT_ERR_INVALID_EP if found.as_ref().is_some_and(other_type) => {
            status::IT_ERR_INVALID_EP_TYPE
        }
        wrong => wrong,
    };
    Failure::new(wrong, text)
}
