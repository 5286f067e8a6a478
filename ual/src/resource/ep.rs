//! Endpoints: a queue pair and its connection.
//!
//! The Ep owns the queue pair. Its state is one atomic: posting reads it, the caller moves it from
//! `Unconnected` to pending and from `Connected` to `Nonoperational`, connection management
//! does the rest. When the peer dies, it learns that from the provider, makes the state
//! `Nonoperational` and says so in a connection event; the provider flushes what was posted.

mod attr;

pub use attr::{EpInfo, EpInit, EpState};

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vp_api::{
    FpduSize, PostFailure, Qp, QpChange, QpId, QpInit, QpState, RecvWr, Role, SendFlags, SendWr,
    VpResult, VpStatus,
};

use super::{Ia, Pz, Srq};
use crate::cm::{
    AcceptParams, BrokenCause, ConnEvent, ConnectParams, ConnectionEnd, Conversion, ConvertError,
    ConvertParams, Disconnect, Established, RequestId, check_connect,
};
use crate::error::{Error, Object, Result};
use crate::event::{AsyncSource, Evd, Event, NOTIFY, Stream};
use crate::life::{Hold, Life, Living};
use crate::node::Ends;
use crate::policy::Policy;
use crate::tag::Tag;

/// A queue pair that ends by itself is looked at so often.
const LOOK: Duration = Duration::from_millis(1);
/// It may do so later than its bound, on a busy machine.
const SETTLE: Duration = Duration::from_secs(1);

/// What is known of the present or last connection.
#[derive(Default)]
pub(crate) struct Link {
    /// Its number in the [`Sequence`](super::Sequence), before it begins; a reset gives the next one.
    pub(crate) stream: u64,
    /// Between established and its end.
    pub(crate) live: bool,
    pub(crate) close_timeout: Duration,
    /// How large its FPDUs may be.
    pub(crate) fpdu: FpduSize,
    pub(crate) ends: Option<Ends>,
    pub(crate) established: Option<Established>,
    /// This end asked for the disconnect.
    pub(crate) closing: bool,
    /// Why there is no connection.
    pub(crate) refused: Option<Box<ConnEvent>>,
}

/// Endpoint (IT-API `it_ep_rc_create`).
pub struct Ep {
    qp: Arc<dyn Qp>,
    state: AtomicU8,
    link: Mutex<Link>,
    /// The largest numbers of reads, inbound and outbound, as they are now.
    reads: Mutex<(u16, u16)>,
    life: Life,
    tag: Tag,
    conn_evd: Hold<Evd>,
    send_evd: Hold<Evd>,
    recv_evd: Hold<Evd>,
    srq: Option<Hold<Srq>>,
    pz: Hold<Pz>,
}

impl Ep {
    pub(super) fn new(pz: &Arc<Pz>, init: EpInit) -> Result<Arc<Self>> {
        // Applications exist that take requests and connection events from one dispatcher.
        if init.conn_evd.stream() != Stream::Request {
            init.conn_evd.check_stream(Stream::Connection)?;
        }
        let pz = Hold::new(pz)?;
        let conn_evd = Hold::new(&init.conn_evd)?;
        let send_evd = Hold::new(&init.send_evd)?;
        let recv_evd = Hold::new(&init.recv_evd)?;
        let srq = init.srq.as_ref().map(Hold::new).transpose()?;
        if let Some(srq) = &srq {
            srq.completes_to(recv_evd.arc())?;
        }
        let verbs = QpInit {
            srq: srq.as_ref().map(|srq| srq.id()),
            send_depth: init.send_depth,
            recv_depth: init.recv_depth,
            max_send_sge: init.max_send_sge,
            max_recv_sge: init.max_recv_sge,
            max_inline: init.max_inline,
            ird: init.ird,
            ord: init.ord,
            allow: init.allow,
            privileged: init.privileged,
            recv_limit: init.recv_high_watermark,
            ..QpInit::new(pz.id(), send_evd.cq()?.id(), recv_evd.cq()?.id())
        };
        let qp = pz.ia().rnic().create_qp(&verbs).map_err(Error::verb("create a queue pair"))?;
        let ep = Arc::new(Self {
            qp,
            state: AtomicU8::new(EpState::Unconnected as u8),
            link: Mutex::new(Link { stream: pz.ia().cm().new_stream(), ..Link::default() }),
            reads: Mutex::new((init.ird, init.ord)),
            life: Life::new(Object::Ep),
            tag: Tag::default(),
            conn_evd,
            send_evd,
            recv_evd,
            srq,
            pz,
        });
        ep.ia().directory().add_ep(&ep);
        Ok(ep)
    }

    /// The provider's id: what completions and events name.
    pub fn id(&self) -> QpId {
        self.qp.id()
    }

    /// What the face above knows it by.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its zone.
    pub fn pz(&self) -> &Arc<Pz> {
        self.pz.arc()
    }

    /// Where it takes its receives from, if that is shared.
    pub fn srq(&self) -> Option<&Arc<Srq>> {
        self.srq.as_ref().map(Hold::arc)
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.pz.ia()
    }

    /// Its dispatcher of connection events.
    pub fn conn_evd(&self) -> &Arc<Evd> {
        self.conn_evd.arc()
    }

    /// Its state.
    pub fn state(&self) -> EpState {
        EpState::from_raw(self.state.load(Ordering::Acquire))
    }

    /// Both ends of the present or last connection.
    pub fn ends(&self) -> Option<Ends> {
        self.link().ends.clone()
    }

    /// How its last connection ended, or why it did not come about, as far as the provider tells; `None`:
    /// it stands. Known when the first work request of the connection completes without success: before
    /// the connection event.
    pub fn connection_end(&self) -> Option<ConnectionEnd> {
        let qp = self.qp.query().ok()?;
        let cause = match (qp.ended, qp.terminate) {
            (Some(event), _) => BrokenCause::of(event),
            (None, Some(terminate)) if terminate.sent => Some(BrokenCause::Terminated(terminate)),
            (None, Some(terminate)) => Some(BrokenCause::TerminatedByPeer(terminate)),
            (None, None) => None,
        };
        let link = self.link();
        if let Some(event) = &link.refused {
            return Some(ConnectionEnd::Refused(ConnEvent::clone(event)));
        }
        let (ends, by_peer) = (link.ends.clone()?, !link.closing);
        match cause {
            // This end wanted it to end, and it did.
            Some(BrokenCause::Reset | BrokenCause::Lost | BrokenCause::ClosedInWork) | None
                if !by_peer =>
            {
                Some(ConnectionEnd::Closed { ends, by_peer })
            }
            Some(cause) => Some(ConnectionEnd::Broken { ends, cause }),
            None => qp.ended.map(|_| ConnectionEnd::Closed { ends, by_peer }),
        }
    }

    /// The endpoint as it is.
    pub fn query(&self) -> Result<EpInfo> {
        let qp = self.qp.query().map_err(Error::verb("query the queue pair"))?;
        let link = self.link();
        let (ends, established) = (link.ends.clone(), link.established.clone());
        Ok(EpInfo { state: self.state(), ends, established, tcp: qp.tcp, qp })
    }

    /// Its queue pair as it is; makes no allocation. The provider may ask the kernel about the stream.
    pub fn qp_info(&self) -> Result<vp_api::QpInfo> {
        self.qp.query().map_err(Error::verb("query the queue pair"))
    }

    /// Connects; a [`crate::ConnEvent`] says what became of it. An error leaves the endpoint
    /// unconnected: [`Error::AddressInUse`] for a local port that is taken, [`Error::Os`] if this
    /// process lacks the right or the descriptors.
    pub fn connect(self: &Arc<Self>, params: ConnectParams) -> Result<()> {
        let policy = self.policy_for(&params);
        check_connect(&params, self.ia().private_data(&policy))?;
        self.begin(EpState::ActivePending, "connect")?;
        let begun = self.ia().cm().connect(self, params, policy);
        if begun.is_err() {
            self.set_state(EpState::Unconnected);
        }
        begun
    }

    /// The policy for connecting as `params` say.
    pub(crate) fn policy_for(&self, params: &ConnectParams) -> Policy {
        let mut policy = match &params.policy {
            Some(policy) => policy.clone(),
            None => self.ia().policies().of(params.remote.ip()).clone(),
        };
        policy.negotiate_ird_ord &= !params.suppress_ird_ord;
        policy
    }

    /// Makes a connected TCP socket the endpoint's stream, after the applications at both its ends
    /// agreed to (IT-API `it_socket_convert`); a [`crate::ConnEvent`] says what became of it.
    ///
    /// The initiator is connecting until the peer's reply is there, bounded by the policy's
    /// `connect_timeout`; without start-up it is connected at once. The responder waits
    /// ([`EpState::PassiveWait`]) for the request, which it accepts by itself with the endpoint's
    /// IRD and ORD, bounded by `request_timeout`; without start-up for the first FPDU, bounded by
    /// `answer_timeout`, since the peer's application sends it. A disconnect ends the wait.
    ///
    /// [`Error::Socket`] in the error: this socket cannot become a stream. Whatever the error, the
    /// socket comes back as it was. A success consumes it, also if no connection comes about. No
    /// second descriptor of it may stay open: the peer would not see the connection's end.
    pub fn convert(
        self: &Arc<Self>,
        socket: OwnedFd,
        params: ConvertParams,
    ) -> std::result::Result<(), ConvertError> {
        let pending = match params.role {
            Role::Initiator => EpState::ActivePending,
            Role::Responder => EpState::PassiveWait,
        };
        let conversion = Conversion::check(self, socket, params)?;
        match self.begin(pending, "convert a socket") {
            Ok(()) => {
                self.ia().cm().convert(self, conversion);
                Ok(())
            }
            Err(error) => Err(conversion.refuse(error)),
        }
    }

    /// Accepts a connection request; a [`crate::ConnEvent`] says what became of it.
    pub fn accept(self: &Arc<Self>, request: RequestId, params: AcceptParams) -> Result<()> {
        self.begin(EpState::PassivePending, "accept")?;
        let accepted = self.ia().cm().accept(self, request, params);
        if accepted.is_err() {
            self.set_state(EpState::Unconnected);
        }
        accepted
    }

    fn begin(&self, pending: EpState, attempt: &'static str) -> Result<()> {
        if self.life.is_closed() {
            return Err(Error::Closed(Object::Ep));
        }
        self.conn_evd.make_room()?;
        if self.change_state(EpState::Unconnected, pending) {
            return Ok(());
        }
        Err(self.invalid_state(attempt, "unconnected (reset it after a connection)"))
    }

    /// Ends the connection, or the attempt to make one. [`crate::ConnEvent::Disconnected`], or for
    /// an attempt [`crate::ConnEvent::Failed`], follows within the policy's close time-out. Work
    /// that is still posted completes as flushed. What has completed arrives, unless the end is
    /// [`Disconnect::Abrupt`].
    pub fn disconnect(self: &Arc<Self>, how: Disconnect) -> Result<()> {
        let (state, stream) = self.present();
        match state {
            EpState::Unconnected => Err(self.invalid_state("disconnect", "connected")),
            EpState::ActivePending | EpState::PassivePending | EpState::PassiveWait => {
                self.ia().cm().cancel(self, stream);
                Ok(())
            }
            EpState::Connected => self.leave(how),
            // Over already, or somebody else was faster: the event says so.
            EpState::Nonoperational => Ok(()),
        }
    }

    /// The state, and the number of the stream that it is the state of.
    fn present(&self) -> (EpState, u64) {
        // A reset changes both under this lock.
        let link = self.link();
        (self.state(), link.stream)
    }

    fn leave(self: &Arc<Self>, how: Disconnect) -> Result<()> {
        // Else the connection ended by itself in this moment: its event, on the way, says how.
        if let Some(stream) = self.end_stream(how)? {
            self.ia().cm().disconnecting(self, stream, how);
        }
        Ok(())
    }

    /// Ends the stream; its number. `None` if it has ended by itself.
    fn end_stream(&self, how: Disconnect) -> Result<Option<u64>> {
        // Under its lock: else news of an end that came first could be taken for news of this one, and
        // the stream that another thread begins behind a reset for this one.
        let mut link = self.link();
        let left = match (how, self.ia().cm().native()) {
            (Disconnect::Graceful, None) => self.end_llp(&link, QpChange::Closing)?,
            (Disconnect::Graceful, Some(native)) => {
                ended_by_this(native.disconnect(self.id()))?;
                true
            }
            (Disconnect::Abrupt, _) => self.end_llp(&link, QpChange::Error)?,
        };
        if !left {
            return Ok(None);
        }
        link.closing = true;
        self.change_state(EpState::Connected, EpState::Nonoperational);
        Ok(Some(link.stream))
    }

    fn end_llp(&self, link: &Link, change: QpChange) -> Result<bool> {
        if link.live && !matches!(self.qp_info()?.state, QpState::Rts | QpState::Closing) {
            return Ok(false);
        }
        // Refused: it ended since; or it closes already, or is still to begin.
        Ok(ended_by_this(self.qp.modify(change))? || !link.live || link.closing)
    }

    /// Nonoperational to Unconnected, once everything posted is flushed (IT-API `it_ep_reset`). Answers
    /// how many requests of the send queue failed, the last ones that were posted.
    ///
    /// Refused before the connection's last event. If a peer that does not read keeps a Terminate from
    /// going out, this waits for that, bounded by the policy's `close_timeout`.
    pub fn reset(&self) -> Result<u32> {
        let (state, stream) = self.present();
        if state != EpState::Nonoperational {
            return Err(self.invalid_state("reset", "nonoperational"));
        }
        let early = |needed| Error::InvalidState {
            object: Object::Ep,
            state: "still disconnecting",
            attempt: "reset",
            needed,
        };
        if self.link().live {
            // Else its last event would be lost.
            return Err(early("disconnected (wait for the event)"));
        }
        let verb = Error::verb("reset the queue pair");
        let before = self.settled()?;
        match before.state {
            QpState::Idle => {}
            QpState::Error => self.qp.modify(QpChange::Idle).map_err(&verb)?,
            _ => return Err(early("disconnected (its last words are on their way; try again)")),
        }
        // Asked twice: the first answer may miss what was flushed meanwhile.
        let after = self.qp.query().map_err(verb)?;
        let next = self.ia().cm().new_stream();
        let mut link = self.link();
        if link.stream != stream {
            // Another thread has reset it, and may use it already.
            return Err(self.invalid_state("reset", "nonoperational"));
        }
        *link = Link { stream: next, ..Link::default() };
        self.set_state(EpState::Unconnected);
        Ok(after.sends_lost.max(before.sends_lost))
    }

    /// The queue pair once it has ended by itself, as it does within its bound; [`Ep::reset`] waits so,
    /// too, but with posts kept away, which is not needed while this waits.
    // RDMAC 6.2.3 [VERBS-10]
    pub fn settled(&self) -> Result<vp_api::QpInfo> {
        let bound = self.link().close_timeout.saturating_add(SETTLE);
        let begin = Instant::now();
        loop {
            let info = self.qp_info()?;
            let settled = matches!(info.state, QpState::Idle | QpState::Error);
            if settled || begin.elapsed() >= bound {
                return Ok(info);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Posts to the send queue. Before the connection is established: [`VpStatus::InvalidState`];
    /// after it ended the requests complete as flushed.
    #[inline]
    pub fn post_send(&self, wrs: &[SendWr<'_>]) -> std::result::Result<(), PostFailure> {
        if !EpState::takes_work(self.state.load(Ordering::Acquire)) {
            return Err(unposted(VpStatus::InvalidState));
        }
        let is_quiet =
            |wr: &SendWr<'_>| wr.wr_id & NOTIFY == 0 && wr.flags.contains(SendFlags::SIGNALED);
        if wrs.iter().any(is_quiet) {
            self.send_evd.expect_quiet().map_err(unposted)?;
        }
        self.qp.post_send(wrs)
    }

    /// Posts receives; allowed in every state.
    #[inline]
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> std::result::Result<(), PostFailure> {
        if wrs.iter().any(|wr| wr.wr_id & NOTIFY == 0) {
            self.recv_evd.expect_quiet().map_err(unposted)?;
        }
        self.qp.post_recv(wrs)
    }

    /// Changes limits of the queue pair.
    pub fn modify(&self, change: QpChange) -> Result<()> {
        match change {
            QpChange::Limits { ird, ord, .. } => {
                let mut reads = self.reads();
                self.qp.modify(change).map_err(Error::verb("modify the queue pair"))?;
                *reads = (ird.unwrap_or(reads.0), ord.unwrap_or(reads.1));
                Ok(())
            }
            _ => Err(Error::InvalidArgument(
                "only limits can be modified; connect, disconnect and reset change the state"
                    .into(),
            )),
        }
    }

    /// Destroys it in any state. Its completions and events leave their dispatchers, and none comes
    /// afterwards. What has completed arrives, bounded by the policy's `close_timeout`; if work
    /// was under way, the peer sees a reset behind that.
    pub fn close(&self) -> Result<()> {
        // Events are made under this lock.
        let mut link = self.link();
        self.life.close()?;
        if let Err(error) = self.ia().rnic().destroy_qp(self.id()) {
            self.life.reopen();
            return Err(Error::verb("destroy the queue pair")(error));
        }
        self.set_state(EpState::Nonoperational);
        if std::mem::take(&mut link.live)
            && let Some(ends) = &link.ends
        {
            tracing::info!("disconnected: {ends}: the endpoint was freed");
        }
        drop(link);
        self.ia().directory().remove_ep(self.id());
        self.ia().directory().discard(AsyncSource::Ep(self.id()));
        let of_this =
            |event: &Event| matches!(event, Event::Connection { qp, .. } if *qp == self.id());
        self.conn_evd.discard(of_this);
        self.ia().cm().forget(self.id());
        self.send_evd.forget(self.id());
        self.recv_evd.forget(self.id());
        self.release();
        Ok(())
    }

    fn release(&self) {
        self.conn_evd.release();
        self.send_evd.release();
        self.recv_evd.release();
        self.srq.iter().for_each(Hold::release);
        self.pz.release();
    }

    fn invalid_state(&self, attempt: &'static str, needed: &'static str) -> Error {
        Error::InvalidState { object: Object::Ep, state: self.state().name(), attempt, needed }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.life.is_closed()
    }

    /// Work requests of it that may wait in `evd` at once. Of a shared receive queue: all of its.
    pub(crate) fn slots_in(&self, evd: &Evd) -> u32 {
        let Ok(info) = self.qp.query() else { return 0 };
        let shared = self.srq.as_ref().and_then(|srq| srq.query().ok());
        let receives = shared.map_or(info.recv_depth, |srq| srq.depth);
        let of = |used: &Hold<Evd>, depth| if std::ptr::eq(&**used.arc(), evd) { depth } else { 0 };
        of(&self.send_evd, info.send_depth) + of(&self.recv_evd, receives)
    }

    /// One of its dispatchers lost completions.
    pub(crate) fn has_overrun(&self) -> bool {
        self.send_evd.arc().has_overrun() || self.recv_evd.arc().has_overrun()
    }

    pub(crate) fn qp(&self) -> &dyn Qp {
        &*self.qp
    }

    /// Largest IRD and ORD.
    pub(crate) fn ird_ord(&self) -> (u16, u16) {
        *self.reads()
    }

    fn reads(&self) -> MutexGuard<'_, (u16, u16)> {
        // Nothing panics while the lock is held.
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Link> {
        // Nothing panics while the lock is held.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_state(&self, state: EpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Changes the state if it is `from`.
    pub(crate) fn change_state(&self, from: EpState, to: EpState) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Whether a verb ended the stream, and not something else before.
fn ended_by_this(ended: VpResult<()>) -> Result<bool> {
    match ended {
        Ok(()) => Ok(true),
        Err(error) if error.status == VpStatus::InvalidState => Ok(false),
        Err(error) => Err(Error::verb("disconnect")(error)),
    }
}

fn unposted(status: VpStatus) -> PostFailure {
    PostFailure { posted: 0, status }
}

impl Living for Ep {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Ep {
    fn drop(&mut self) {
        // Closed already, or nobody can use it any more; either way there is nobody to tell.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Ep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ep({:?}, {})", self.id(), self.state().name())
    }
}
