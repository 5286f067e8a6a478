//! Results of verbs, as far as a wrapper needs to examine them. Plain data.

use std::convert::Infallible;
use std::fmt::{self, Debug};
use std::net::SocketAddr;
use std::sync::Arc;

use vp_api::{
    AhId, AhInfo, Cq, MrInfo, MwId, MwInfo, NativeEvent, PdId, PostFailure, Qp, QpInfo, Rnic, Srq,
    SrqInfo, Stag, UdQp, UdQpInfo, VendorCalls, VpError, VpStatus,
};

/// The result of a verb that succeeded.
pub(crate) trait Value {
    /// The id of the object that it created.
    fn made(&self) -> Option<u32> {
        None
    }
    /// The result is empty, and need not be logged.
    fn is_nothing(&self) -> bool {
        false
    }
    /// Formats it for a log.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// The error of a verb.
pub(crate) trait Failure: Sized + fmt::Display {
    /// The failure with this status; `None` if the verb cannot fail.
    fn new(status: VpStatus, detail: impl FnOnce() -> String) -> Option<Self>;
    /// Its status, if it has one.
    fn status(&self) -> Option<VpStatus>;
    /// Work requests that were accepted before the failure.
    fn posted(&self) -> usize {
        0
    }
}

impl Failure for VpError {
    fn new(status: VpStatus, detail: impl FnOnce() -> String) -> Option<Self> {
        Some(Self::new(status, detail()))
    }

    fn status(&self) -> Option<VpStatus> {
        Some(self.status)
    }
}

impl Failure for VpStatus {
    fn new(status: VpStatus, _: impl FnOnce() -> String) -> Option<Self> {
        Some(status)
    }

    fn status(&self) -> Option<VpStatus> {
        Some(*self)
    }
}

impl Failure for PostFailure {
    fn new(status: VpStatus, _: impl FnOnce() -> String) -> Option<Self> {
        Some(Self { posted: 0, status })
    }

    fn status(&self) -> Option<VpStatus> {
        Some(self.status)
    }

    fn posted(&self) -> usize {
        self.posted
    }
}

impl Failure for Infallible {
    fn new(_: VpStatus, _: impl FnOnce() -> String) -> Option<Self> {
        None
    }

    fn status(&self) -> Option<VpStatus> {
        None
    }
}

macro_rules! shown_by_debug {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.fmt(f)
            }
        }
    )+};
}

shown_by_debug!(usize, u32, MrInfo, MwInfo, SrqInfo, QpInfo, (u64, SocketAddr));
shown_by_debug!(SocketAddr, AhInfo, UdQpInfo, VendorCalls);

impl Value for () {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ok")
    }
}

/// Whether a wait found something.
impl Value for bool {
    fn is_nothing(&self) -> bool {
        !self
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self { "news" } else { "nothing" })
    }
}

impl Value for Option<NativeEvent> {
    fn is_nothing(&self) -> bool {
        self.is_none()
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Some(event) => crate::show::native_event(event, f),
            None => f.write_str("none"),
        }
    }
}

macro_rules! named_by_id {
    ($($type:ty, $name:literal, $value:ident => $id:expr;)+) => {$(
        impl Value for $type {
            fn made(&self) -> Option<u32> {
                let $value = self;
                Some($id)
            }
            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $value = self;
                write!(f, concat!($name, " {}"), $id)
            }
        }
    )+};
}

named_by_id! {
    PdId, "pd", pd => pd.0;
    MwId, "mw", mw => mw.0;
    Arc<dyn Cq>, "cq", cq => cq.id().0;
    Arc<dyn Srq>, "srq", srq => srq.id().0;
    Arc<dyn Qp>, "qp", qp => qp.id().0;
    Arc<dyn UdQp>, "qp", qp => qp.id().0;
    AhId, "ah", ah => ah.0;
}

/// Named by its index; the key is shown, too.
impl Value for Stag {
    fn made(&self) -> Option<u32> {
        Some(self.index())
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stag {:#010x}", self.0)
    }
}

impl Value for Arc<dyn Rnic> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.attrs().fmt(f)
    }
}
