//! Connection and service requests that wait for the application's reply, of all adapters of the
//! process.
//!
//! One table under one mutex, so that an id alone names a request. Only the thread that takes a request
//! out of it may reply to it: a caller, or the manager when the peer gives up or the time is over. When
//! the manager ends it takes out the rest.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kal_os::fork::PerProcess;
use kal_shim::fork::Host;
use vp_api::{Datagrams, NativeCm};

use crate::error::{Error, Result, check_length};
use crate::handle::{Handle, HandleTable};
use crate::mailbox::{Command, Mailbox};
use crate::private::PrivateData;
use crate::registry::{self, Moving};
use crate::types::{Handoff, RequestId};

static REQUESTS: PerProcess<Mutex<HandleTable<Waiting>>> = PerProcess::new();

/// A request as callers see it.
#[derive(Clone)]
pub(crate) struct Waiting {
    /// The table that holds its socket.
    pub(crate) owner: Mailbox,
    /// Its entry there.
    pub(crate) token: u64,
    /// Private data that the replies can carry.
    pub(crate) most: PrivateData,
    /// The address that it arrived at.
    pub(crate) local: SocketAddr,
    /// It belongs to the provider's connection manager.
    pub(crate) native: Option<Native>,
    /// It asks for a queue pair that takes datagrams, not for a connection.
    pub(crate) asker: Option<Asker>,
}

impl Waiting {
    /// It cannot leave the adapter.
    pub(crate) fn is_bound(&self) -> bool {
        self.native.is_some() || self.asker.is_some()
    }
}

/// A connection request that the provider's connection manager has.
#[derive(Clone)]
pub(crate) struct Native {
    pub(crate) manager: Arc<dyn NativeCm>,
    /// The provider's id for it.
    pub(crate) request: u64,
}

/// How to reply to a service request.
#[derive(Clone)]
pub(crate) struct Asker {
    pub(crate) datagrams: Arc<dyn Datagrams>,
    /// The provider's id for it.
    pub(crate) request: u64,
}

fn table() -> MutexGuard<'static, HandleTable<Waiting>> {
    // Nothing panics while the lock is held.
    REQUESTS.get::<Host>().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a request; returns the id to reply to it by.
pub(crate) fn add(waiting: Waiting) -> Handle {
    table().insert(waiting)
}

/// Takes a request out; false if it was replied to already.
pub(crate) fn remove(handle: Handle) -> bool {
    table().remove(handle).is_some()
}

/// Takes a request out, so that only one reply is sent, if `check` allows it.
fn claim(id: RequestId, check: impl FnOnce(&Waiting) -> Result<()>) -> Result<Waiting> {
    let mut table = table();
    check(table.get(id.0).ok_or(Error::NoRequest)?)?;
    table.remove(id.0).ok_or(Error::NoRequest)
}

/// Takes a request out to accept it with `len` octets of private data; only if it belongs to this table.
pub(crate) fn claim_to_accept(id: RequestId, len: usize, owner: &Mailbox) -> Result<Waiting> {
    claim(id, |waiting| match waiting.asker.is_none() && owner.is(&waiting.owner) {
        true => check_length(len, waiting.most.accept),
        false => Err(Error::NoRequest),
    })
}

/// Takes a service request out to reply to it with `len` octets of private data.
pub(crate) fn claim_to_reply(id: RequestId, len: usize) -> Result<Asker> {
    let claimed = claim(id, |waiting| match waiting.asker {
        Some(_) => check_length(len, waiting.most.accept),
        None => Err(Error::NoServiceRequest),
    });
    let waiting = claimed.map_err(|error| match error {
        Error::NoRequest => Error::NoServiceRequest,
        error => error,
    })?;
    waiting.owner.send(Command::Answered { token: waiting.token });
    waiting.asker.ok_or(Error::NoServiceRequest)
}

/// The provider's id of a request that waits for its reply, if the provider has a connection manager.
pub fn native_request(request: RequestId) -> Option<u64> {
    Some(table().get(request.0)?.native.as_ref()?.request)
}

/// Rejects a connection request of any adapter, with private data for the peer (IT-API
/// `it_reject`).
pub fn reject(request: RequestId, private_data: &[u8]) -> Result<()> {
    let Waiting { owner, token, native, .. } = claim(request, |waiting| match waiting.asker {
        None => check_length(private_data.len(), waiting.most.reject),
        Some(_) => Err(Error::NoRequest),
    })?;
    // Sent in this thread: the process may end next.
    if let Some(Native { manager, request }) = native
        && let Err(error) = manager.reject(request, private_data)
    {
        tracing::debug!("reject: {error}");
    }
    owner.send(Command::Reject { token, private_data: private_data.to_vec() });
    Ok(())
}

/// Gives a request to another listener of the process, of this or of another adapter (IT-API
/// `it_handoff`). Its id is stale then; the other listener's sink gets it under a new one. If that
/// listener closes meanwhile the request is rejected.
///
/// [`Error::NoListener`]: there is no such listener; the request can still be accepted or rejected. A
/// request of a provider with its own connection manager goes only to listeners of its own adapter.
pub fn handoff(request: RequestId, to: Handoff) -> Result<()> {
    let waiting = table().get(request.0).cloned().ok_or(Error::NoRequest)?;
    let Waiting { owner, local, .. } = &waiting;
    let moving = Moving { owner, is_bound: waiting.is_bound(), local: *local };
    let to = registry::find(&to, &moving).ok_or_else(|| Error::NoListener(to.to_string()))?;
    // Only the thread that takes it out may hand it over.
    let Waiting { owner, token, .. } = claim(request, |_| Ok(()))?;
    owner.send(Command::Handoff { token, to });
    Ok(())
}
