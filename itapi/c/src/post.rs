//! Common parts of all posts: cookies, flags, the entry in the ring, refusals.
//!
//! Each entry point exists twice, for cookies of 8 and of 24 octets ([`both`]). A post finds its
//! endpoint, copies the segments to the stack, stores the cookie in the endpoint's ring and calls the
//! provider: no allocation, and no lock that endpoints share. The caller's thread.

use std::sync::atomic::{AtomicU64, Ordering};

use ual::vp_api::{Capabilities, Data, PostFailure, SendFlags, SendOp, SendWr, Sge, VpStatus};

use super::ep::EpObject;
use super::failure::{Failure, Outcome};
use super::ring::{Request, full};
use super::status::{self, Status};
use super::types::*;
use super::{check_bits, wr_id};

/// A cookie of either layout.
#[derive(Clone, Copy)]
pub(crate) struct Cookie {
    pub(crate) words: [u64; 3],
    /// The endpoint's `max_dto_payload_size` is enforced; not for the Zurich stack, whose applications
    /// ask for 8 KiB and move megabytes.
    limited: bool,
}

impl From<std_abi::it_dto_cookie_t> for Cookie {
    fn from(cookie: std_abi::it_dto_cookie_t) -> Self {
        Self { words: [cookie, 0, 0], limited: true }
    }
}

impl From<zrl::it_dto_cookie_t> for Cookie {
    fn from(cookie: zrl::it_dto_cookie_t) -> Self {
        Self { words: [cookie.first, cookie.second, cookie.extend], limited: false }
    }
}

/// Two entry points for one function that takes a cookie of either layout.
macro_rules! both {
    ($($standard:ident, $zurich:ident =
        $body:ident($($before:ident: $b:ty),*; $($after:ident: $a:ty),*);)*) => {$(
        both!(@ $standard, std_abi::it_dto_cookie_t, $body, ($($before: $b,)*), ($($after: $a,)*));
        both!(@ $zurich, zrl::it_dto_cookie_t, $body, ($($before: $b,)*), ($($after: $a,)*));
    )*};
    (@ $name:ident, $cookie:ty, $body:ident,
        ($($before:ident: $b:ty,)*), ($($after:ident: $a:ty,)*)) => {
        /// # Safety
        /// Pointers obey the contract of a C caller (see `ptr`).
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            $($before: $b,)*
            cookie: $cookie,
            $($after: $a,)*
        ) -> $crate::status::Status {
            $crate::boundary::call(|| {
                let cookie = $crate::post::Cookie::from(cookie);
                // SAFETY: contract of a C caller.
                unsafe { $body($($before,)* cookie, $($after,)*) }
            })
        }
    };
}
pub(crate) use both;

/// Flags that any send-queue request may have. An operation ignores those that do not apply to it.
const FLAGS: it_dto_flags_t = IT_COMPLETION_FLAG
    | IT_NOTIFY_FLAG
    | IT_SOLICITED_WAIT_FLAG
    | IT_BARRIER_FENCE_FLAG
    | IT_UNLINK_FENCE_FLAG
    | IT_COALESCE_WR_FLAG;

/// The parameters of a send-queue request besides its operation.
#[derive(Clone, Copy)]
pub(crate) struct Posting {
    pub(crate) cookie: Cookie,
    pub(crate) flags: it_dto_flags_t,
    /// The number of its completion event.
    pub(crate) event: it_event_type_t,
    /// The handle of what it unlinks, or 0.
    pub(crate) unlinks: u64,
}

impl Posting {
    /// Checks the flags.
    #[inline]
    pub(crate) fn new(
        cookie: Cookie,
        flags: it_dto_flags_t,
        event: it_event_type_t,
    ) -> Outcome<Self> {
        check_bits(flags, FLAGS, status::IT_ERR_INVALID_DTO_FLAGS, "dto_flags")?;
        Ok(Self { cookie, flags, event, unlinks: 0 })
    }

    /// Whether the receiver must be woken.
    pub(crate) fn is_solicited(&self) -> bool {
        self.flags & IT_SOLICITED_WAIT_FLAG != 0
    }

    /// Posts it.
    #[inline]
    pub(crate) fn run(self, ep: &EpObject, op: SendOp, sgl: &[Sge]) -> Outcome {
        let Self { cookie, flags, event, unlinks } = self;
        if cookie.limited {
            check_payload(&ep.payload, sgl)?;
        }
        let signalled = flags & IT_COMPLETION_FLAG != 0;
        let verbs = [
            (signalled, SendFlags::SIGNALED),
            (flags & IT_BARRIER_FENCE_FLAG != 0, SendFlags::READ_FENCE),
            (flags & IT_UNLINK_FENCE_FLAG != 0, SendFlags::LOCAL_FENCE),
            (flags & IT_COALESCE_WR_FLAG != 0, SendFlags::COALESCE),
        ];
        let unaligned = is_unaligned(&op);
        let post = |number| {
            ep.inner.post_send(&[SendWr {
                wr_id: wr_id::id(ep.slot, false, number, flags & IT_NOTIFY_FLAG != 0),
                op,
                data: Data::Sgl(sgl),
                flags: verbs.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag).collect(),
            }])
        };
        ep.sends.post(
            Request { cookie: cookie.words, unlinks, event, terminate: None },
            signalled,
            post,
            |failure| match failure.status {
                VpStatus::InvalidState => unready(ep),
                VpStatus::InvalidWr if unaligned => Failure::new(
                    status::IT_ERR_OP_NOT_SUPPORTED,
                    "post an atomic: rdma_addr is no multiple of 8 octets",
                ),
                _ => refused(failure, status::IT_ERR_OP_NOT_SUPPORTED),
            },
            || ep.inner.count_refusal(),
        )
    }
}

/// Receives always complete with an event.
const RECEIVE_FLAGS: it_dto_flags_t =
    IT_COMPLETION_FLAG | IT_NOTIFY_FLAG | IT_SOLICITED_WAIT_FLAG | IT_COALESCE_WR_FLAG;

/// Whether a receive with these flags notifies when it completes. One without any flag does: there are
/// applications that set none and wait for their receives.
#[inline]
pub(crate) fn receive_notifies(flags: it_dto_flags_t) -> Outcome<bool> {
    check_bits(flags, RECEIVE_FLAGS, status::IT_ERR_INVALID_DTO_FLAGS, "dto_flags")?;
    Ok(flags & IT_NOTIFY_FLAG != 0 || flags == 0)
}

/// Refuses a message longer than the endpoint was made for: `most` octets.
#[inline]
pub(crate) fn check_payload(most: &AtomicU64, sgl: &[Sge]) -> Outcome {
    let octets: u64 = sgl.iter().map(|sge| u64::from(sge.len)).sum();
    let most = most.load(Ordering::Relaxed);
    if octets <= most {
        return Ok(());
    }
    let text = format!("{octets} octets; the endpoint has max_dto_payload_size {most}");
    Err(Failure::new(status::IT_ERR_PAYLOAD_SIZE, text))
}

/// The status for a provider's refusal; `fallback` where it is not specific enough.
#[cold]
pub(crate) fn refused(failure: PostFailure, fallback: Status) -> Failure {
    match failure.status {
        VpStatus::InvalidHandle => {
            Failure::new(status::IT_ERR_INVALID_EP, "the endpoint was freed during the call")
        }
        VpStatus::TooManyWrs => full(),
        status => Failure::verb(status, fallback, "post a work request"),
    }
}

/// Whether it is an atomic at an address that is no multiple of 8, which providers refuse as it is posted.
#[inline]
fn is_unaligned(op: &SendOp) -> bool {
    matches!(op, SendOp::Atomic { remote, .. } if !remote.to.is_multiple_of(8))
}

/// The endpoint's state allows no requests.
#[cold]
fn unready(ep: &EpObject) -> Failure {
    let state = ep.inner.state().name();
    let text = format!(
        "post a work request: the endpoint is {state}; requests are taken once it is connected: connect or accept, \
         and wait for IT_CM_MSG_CONN_ESTABLISHED_EVENT"
    );
    Failure::new(status::IT_ERR_INVALID_EP_STATE, text)
}

/// Refuses what the adapter cannot do.
pub(crate) fn need(ep: &EpObject, capability: Capabilities, what: &str) -> Outcome {
    let ia = ep.inner.ia();
    if ia.attrs().capabilities.contains(capability) {
        return Ok(());
    }
    let text = format!("{} cannot do this: {what}", ia.device());
    Err(Failure::new(status::IT_ERR_OP_NOT_SUPPORTED, text))
}
