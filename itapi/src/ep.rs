//! Endpoints: one end of a connection. An [`Ep`] owns its queue pair and, until they complete, the
//! memory of its work requests. Any thread may post; a lock per queue keeps posts and memory in
//! step. When the peer dies every request completes, and [`Ep::ended`] returns the cause.

mod builder;
mod connection;

pub use builder::EpBuilder;
#[cfg(feature = "tokio")]
pub(crate) use connection::established;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ual::{ConnEvent, ConnectionEnd, Ends, EpInfo, EpState};
use vp_api::{MwKind, QpChange, RecvWr, SendWr, room};

use crate::context::context;
use crate::error::{Error, PostResult, Refused, Result};
use crate::evd::Evd;
use crate::ids::{EpId, WorkId, WorkIds};
use crate::outstanding::Flights;
use crate::post;
use crate::receive::receives;
use crate::rmr::{Rmr, WeakRmr};
use crate::work::{Kind, Local, Work};

/// Endpoint (IT-API `it_ep_rc_create`). Clones share it. Dropping the last one closes the connection, if there
/// is one. What has completed still arrives, unless the peer does not take it within the policy's
/// `close_timeout`. If work was outstanding, a reset follows.
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{Ia, Work};
/// # fn main() -> itapi::Result<()> {
/// # let second = Duration::from_secs(20);
/// let ia = Ia::open()?;
/// let listen = ia.listen("127.0.0.1:0")?;
/// let address = listen.address();
/// std::thread::scope(|scope| {
///     let server = scope.spawn(|| {
///         let (pz, evd) = (ia.pz()?, ia.evd(16)?);
///         let ep = pz.ep(&evd).build()?;
///         ep.post_recv(pz.buffer(64)?)?; // before the peer can send
///         listen.request()?.accept(&ep, b"")?;
///         let hello = evd.wait_success(second)?.into_buffer();
///         ep.ended(second)?;
///         Ok::<_, itapi::Error>(hello.map(|buffer| buffer.to_vec()))
///     });
///     let (pz, evd) = (ia.pz()?, ia.evd(16)?);
///     let ep = pz.ep(&evd).build()?;
///     ep.connect(address, b"")?;
///     ep.post(Work::send(b"hello"))?;
///     evd.wait_success(second)?;
///     ep.disconnect()?;
///     assert_eq!(server.join().expect("no panic")?.as_deref(), Some(&b"hello"[..]));
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct Ep(Arc<EpInner>);

context!(Ep, ep => ep.0.ep.tag());

struct EpInner {
    ep: Arc<ual::Ep>,
    flights: Arc<Flights>,
    evds: [Evd; 2],
    /// Its own connection events, unless they are shared.
    events: Option<Arc<ual::Evd>>,
    /// How its connection ended.
    end: Mutex<Option<ConnEvent>>,
    /// Windows that were linked through it.
    windows: Mutex<Vec<WeakRmr>>,
}

/// Attempts to unlink the windows of an endpoint that is dropped; each finds the windows that were linked until
/// then.
const END_TRIES: usize = 3;

impl Drop for EpInner {
    fn drop(&mut self) {
        // After this the provider accesses no memory of ours and queues no completion; only then may the memory
        // of outstanding requests be freed.
        for _ in 0..END_TRIES {
            if self.ep.close().is_ok() {
                self.flights.left(self.ep.id());
                break;
            }
            // Refused while narrow windows are linked through it: they end with it.
            let windows = self.windows.get_mut().unwrap_or_else(PoisonError::into_inner);
            windows.iter().for_each(|window| window.end_with(self.ep.id()));
        }
        self.flights.mark_gone();
        self.evds.iter().for_each(|evd| evd.remove(self.ep.id()));
    }
}

/// Limits of an endpoint to change; `None` leaves one as it is. Depths and `ird` can change only while it is
/// unconnected; `ord` can also be lowered while it is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpLimits {
    /// Outbound RDMA Reads and atomics at once.
    pub ord: Option<u16>,
    /// Inbound RDMA Reads and atomics at once.
    pub ird: Option<u16>,
    /// Work requests outstanding in the send queue.
    pub send_depth: Option<u32>,
    /// Receives outstanding.
    pub recv_depth: Option<u32>,
    /// Arms the event of [`EpBuilder::recv_watermark`] anew.
    pub recv_watermark: Option<u32>,
}

impl Ep {
    /// Its id in completions and events.
    pub fn id(&self) -> EpId {
        EpId(self.0.ep.id().0)
    }

    /// Its state.
    pub fn state(&self) -> EpState {
        self.0.ep.state()
    }

    /// Both ends of the present or last connection.
    pub fn ends(&self) -> Option<Ends> {
        self.0.ep.ends()
    }

    /// How its last connection ended, or why it was not established, as far as the provider reports it; `None`:
    /// it is up. An asynchronous event of the endpoint concerns this connection.
    pub fn connection_end(&self) -> Option<ConnectionEnd> {
        self.0.ep.connection_end()
    }

    /// All that is known of it (`it_ep_query`).
    pub fn query(&self) -> Result<EpInfo> {
        Ok(self.0.ep.query()?)
    }

    /// Says of the connection what only the program knows, for `warpline stat`, `top` and `explain`: at most 128 octets. It stays
    /// until the next, over a reset, too.
    pub fn set_note(&self, note: &str) {
        self.0.ep.note(note);
    }

    /// Changes limits (`it_ep_modify`): all of them or, with an error, none.
    pub fn modify(&self, limits: EpLimits) -> Result<()> {
        let EpLimits { ord, ird, send_depth, recv_depth, recv_watermark: recv_limit } = limits;
        let change = QpChange::Limits { ord, ird, send_depth, recv_depth, recv_limit };
        let (mut sends, mut receives) = (self.0.flights.send(), self.0.flights.recv());
        self.0.ep.modify(change)?;
        send_depth.inspect(|depth| sends.set_depth(*depth));
        recv_depth.inspect(|depth| receives.set_depth(*depth));
        Ok(())
    }

    /// Posts to the send queue. A refused request is dropped with its memory; [`Ep::try_post`]
    /// returns it instead.
    ///
    /// ```no_run
    /// # use itapi::{Ep, Work};
    /// # fn show(ep: &Ep) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let line = format!("it is {:?}", std::time::SystemTime::now());
    /// ep.post(Work::send(line.as_bytes()))?; // few octets are copied
    /// # Ok(())
    /// # }
    /// ```
    pub fn post(&self, work: Work<'_>) -> Result<WorkId> {
        Ok(self.try_post(work)?)
    }

    /// As [`Ep::post`]; the error returns a refused work request.
    ///
    /// ```
    /// # use itapi::{Buffer, Ep, Result, Work};
    /// # fn show(ep: &Ep, buffer: Buffer) -> Result<()> {
    /// match ep.try_post(Work::send(buffer)) {
    ///     Ok(id) => println!("{id:?} is under way"),
    ///     Err(refused) => println!("{refused}: {:?} is still here", refused.given),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_post<'a>(&self, work: Work<'a>) -> PostResult<Work<'a>> {
        if let Err(error) = self.remember_window(&work) {
            return Err(Refused::new(error, work));
        }
        let ep = &self.0.ep;
        let post = |wrs: &[SendWr<'_>]| ep.post_send(wrs);
        post::send(&mut self.0.flights.send(), ep.id(), work, post, &**ep)
    }

    /// Posts work requests, as many as fit, in as few calls of the provider as possible; returns their ids. The
    /// posted ones are removed from the front of `works`. Errors: the first one was refused.
    ///
    /// ```
    /// # use itapi::{Ep, RemoteRange, Result, Work};
    /// # fn show(ep: &Ep, peer: RemoteRange) -> Result<()> {
    /// let mut works = vec![Work::write(b"data", peer).unsignalled(), Work::send(b"look")];
    /// ep.post_all(&mut works)?;
    /// assert!(works.is_empty()); // unless the queue is full
    /// # Ok(())
    /// # }
    /// ```
    pub fn post_all(&self, works: &mut Vec<Work<'_>>) -> Result<WorkIds> {
        works.iter().try_for_each(|work| self.remember_window(work))?;
        let ep = &self.0.ep;
        let (flight, post) = (&mut self.0.flights.send(), |wrs: &[SendWr<'_>]| ep.post_send(wrs));
        let (first, count) = post::send_all(flight, ep.id(), works, post, &**ep)?;
        Ok(WorkIds(first..first + count))
    }

    /// Posts receives, as many as fit; returns how many. The posted ones are removed from the front of
    /// `locals`. Errors: the first one was refused.
    pub fn post_recv_all(&self, locals: &mut Vec<Local>) -> Result<usize> {
        let ep = &self.0.ep;
        let (flight, post) = (&mut self.0.flights.recv(), |wrs: &[RecvWr<'_>]| ep.post_recv(wrs));
        post::receive_all(flight, locals, post, &**ep)
    }

    /// Records the windows that may have to be unlinked when the endpoint is dropped.
    #[inline]
    fn remember_window(&self, work: &Work<'_>) -> Result<()> {
        match &work.kind {
            Kind::Link { rmr, .. } if rmr.kind() == MwKind::Narrow => self.remember(rmr),
            _ => Ok(()),
        }
    }

    fn remember(&self, rmr: &Rmr) -> Result<()> {
        let mut windows = self.windows();
        windows.retain(|window| !window.is_gone() && !window.is(rmr));
        room::push(&mut windows, "windows of an endpoint", Rmr::downgrade(rmr))
            .map_err(Error::no_room)
    }

    fn windows(&self) -> MutexGuard<'_, Vec<WeakRmr>> {
        // Nothing panics while the lock is held.
        self.0.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Ep> {
        &self.0.ep
    }
}

receives!(Ep, "Posts a receive (`it_post_recv`).", ep => ep.0.flights.recv(), ep.0.ep);

impl std::fmt::Debug for Ep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.ep)
    }
}
