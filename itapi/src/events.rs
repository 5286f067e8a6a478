//! Event dispatchers for everything but completions: connections of many endpoints, asynchronous
//! events. Queues of the access layer; any number of threads.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ual::{AsyncSource, ConnEvent, EvdInit, Event, Stream};
use vp_api::AsyncEvent;

use crate::completion::EpId;
use crate::error::Result;
use crate::ia::Ia;

/// Events of which a queue holds as many as come.
const CONNECTION_DEPTH: u32 = 64;

/// The next event of `evd` that `pick` takes; `None` after the time-out.
pub(crate) fn next<T>(
    evd: &Arc<ual::Evd>,
    timeout: Option<Duration>,
    pick: impl Fn(Event) -> Option<T>,
) -> Result<Option<T>> {
    loop {
        match evd.wait(timeout) {
            Ok(event) => {
                if let Some(event) = pick(event) {
                    return Ok(Some(event));
                }
            }
            Err(ual::Error::Timeout(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Event dispatcher for the connection events of many endpoints (IT-API CM message stream). Clones
/// share it.
#[derive(Clone, Debug)]
pub struct ConnEvd(Arc<ual::Evd>);

impl ConnEvd {
    pub(crate) fn new(ia: &Ia) -> Result<Self> {
        let init = EvdInit::new(Stream::Connection, CONNECTION_DEPTH);
        Ok(Self(ia.ual().create_evd(init)?))
    }

    /// The oldest event, waiting for one; `None` after the time-out.
    pub fn wait(&self, timeout: Duration) -> Result<Option<(EpId, ConnEvent)>> {
        next(&self.0, Some(timeout), |event| match event {
            Event::Connection { qp, event, .. } => Some((EpId(qp.0), *event)),
            _ => None,
        })
    }

    /// A descriptor for `poll`, `epoll` and the like: readable while there is an event.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.0.fd()?)
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Evd> {
        &self.0
    }
}

/// Event dispatcher for asynchronous events of endpoints, dispatchers and shared receive queues
/// (IT-API affiliated stream).
#[derive(Clone, Debug)]
pub struct AsyncEvd(Arc<ual::Evd>);

impl AsyncEvd {
    pub(crate) fn new(ia: &Ia, depth: u32) -> Result<Self> {
        Ok(Self(ia.ual().create_evd(EvdInit::new(Stream::Affiliated, depth))?))
    }

    /// The oldest event, waiting for one; `None` after the time-out.
    pub fn wait(&self, timeout: Duration) -> Result<Option<(AsyncSource, AsyncEvent)>> {
        next(&self.0, Some(timeout), |event| match event {
            Event::Affiliated { source, event } => Some((source, event)),
            _ => None,
        })
    }
}
