//! The thread of a session that has no connection: it takes back what was under way, then makes the next connection, or ends
//! the session when its time is over.
//!
//! One thread for each such session, which owns nothing: it holds the channel's end for a step at a time, and ends when the
//! application drops the channel. The end that connected tries its ways in their order, again and again with longer pauses; the
//! other end waits for a request. A second kind decides whether a connection that seems to live does, when the peer asks for
//! another.

mod accept;
mod come_back;
mod connect;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use itapi::{Disconnect, Ep, EpState, Work};

use crate::core::ChannelEnd;
use crate::error::{End, Refusal};
use crate::hub::Hub;
use crate::link;
use crate::resume::{Attempt, Role};
use crate::state::State;
use crate::tuning::{ANSWER, SETTLE};
use crate::wire::Purpose;

/// Starts the thread; false: there is none.
pub(crate) fn begin(core: &Arc<ChannelEnd>, moves: u64) -> bool {
    start("warpline-resume", core, moves, Away::run)
}

/// Starts the thread that decides whether the present connection lives; false: there is none.
pub(crate) fn doubt(core: &Arc<ChannelEnd>, moves: u64) -> bool {
    start("warpline-doubt", core, moves, Away::decide)
}

/// Starts the thread that tries the ways before the present one; false: there is none.
pub(crate) fn come_back(core: &Arc<ChannelEnd>, moves: u64) -> bool {
    start("warpline-return", core, moves, Away::come_back)
}

/// Starts a thread that keeps an end that has closed until the peer knows that both have everything; without one the end is
/// dropped.
pub(crate) fn linger(core: Arc<ChannelEnd>) {
    let builder = std::thread::Builder::new().name("warpline-linger".into()).stack_size(512 << 10);
    let _ = builder.spawn(move || wait_until_done(&core));
}

/// Waits until the peer knows that both ends have everything; not for long.
pub(crate) fn wait_until_done(core: &Arc<ChannelEnd>) {
    let until = Instant::now() + ANSWER;
    while !core.state().is_done() && Instant::now() < until {
        let seen = core.hub.round();
        core.hub.take_all();
        if !core.state().is_done() {
            let _ = core.hub.advance(seen + 1, Some(until));
        }
    }
    core.end(Disconnect::Graceful);
}

fn start(name: &str, core: &Arc<ChannelEnd>, moves: u64, run: fn(&Away)) -> bool {
    let away = Away { hub: core.hub.clone(), core: Arc::downgrade(core), moves };
    let builder = std::thread::Builder::new().name(name.into()).stack_size(512 << 10);
    builder.spawn(move || run(&away)).is_ok()
}

/// What a thread knows.
struct Away {
    hub: Arc<Hub>,
    core: Weak<ChannelEnd>,
    /// Connections that the session has had after the first: the thread is of no use once there is another.
    moves: u64,
}

/// The session is dropped, or has ended.
struct Over;

type Step<T> = Result<T, Over>;

impl Away {
    fn run(&self) {
        // The result says only that it is done.
        let _ = self.go();
        self.hub.changed();
    }

    fn go(&self) -> Step<()> {
        self.clear()?;
        let role = self.with(|core, state| {
            let whole = core.settle(state);
            if !whole || (state.is_complete() && state.is_done()) {
                core.end_away(state);
            }
            matches!(state.resume.as_ref().map(|resume| &resume.role), Some(Role::Connects { .. }))
        })?;
        self.hub.changed();
        if role { self.connect() } else { self.accept() }
    }

    /// One step under the lock of the state. Errors: the session is dropped, or not without a connection any more.
    fn with<T>(&self, step: impl FnOnce(&Arc<ChannelEnd>, &mut State) -> T) -> Step<T> {
        let core = self.core.upgrade().ok_or(Over)?;
        let mut state = core.state();
        let moved = state.resume.as_ref().is_none_or(|resume| resume.moves != self.moves);
        if moved || !state.is_down || state.over.is_some() {
            return Err(Over);
        }
        Ok(step(&core, &mut state))
    }

    /// Repeats a step after each event until it has a result; `None`: not until then.
    fn until<T>(
        &self,
        until: Instant,
        mut step: impl FnMut(&Arc<ChannelEnd>, &mut State) -> Option<T>,
    ) -> Step<Option<T>> {
        loop {
            let seen = self.hub.round();
            if let Some(done) = self.with(&mut step)? {
                return Ok(Some(done));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            // It returns at the latest after a second.
            let _ = self.hub.follow(seen, Some(until));
        }
    }

    /// Waits for the end of the former connection, and until all its completions were handled.
    fn clear(&self) -> Step<()> {
        let bound = Instant::now() + SETTLE;
        self.until(bound, |_, state| {
            let away = state.resume.as_ref()?.away.as_ref()?;
            let idle = state.link.ep.state() == EpState::Unconnected;
            (away.ended || idle).then_some(())
        })?;
        let (ep, adapter, ia) =
            self.with(|_, state| (state.link.ep.clone(), state.link.adapter, state.link.pz.ia()))?;
        // Memory of requests that had no completion of their own comes with this one.
        if ep.state() == EpState::Nonoperational {
            let _ = ep.post(Work::send(b""));
        }
        // Refused while the last event is being delivered.
        while ep.state() != EpState::Unconnected {
            match ep.reset() {
                Ok(()) => break,
                // All is flushed; the next connection has another endpoint.
                Err(error) if link::is_useless(&ia, &error) => break,
                Err(_) => {}
            }
            if Instant::now() >= bound {
                return self.stuck(&ep);
            }
            let seen = self.hub.round();
            let _ = self.hub.follow(seen, Some(Instant::now() + Duration::from_millis(1)));
        }
        self.hub.drain(adapter);
        self.hub.forget_lost();
        self.with(|_, state| {
            if let Some(away) = state.resume.as_mut().and_then(|resume| resume.away.as_mut()) {
                away.attempt = Attempt::None;
            }
        })
    }

    /// The former connection does not end.
    fn stuck(&self, ep: &Ep) -> Step<()> {
        let _ = ep.start_disconnect(Disconnect::Abrupt);
        self.with(|core, state| core.end_away(state))?;
        Err(Over)
    }

    /// The time of the session is over, or the peer is gone for good.
    fn end(&self, gone: bool) -> Step<()> {
        self.with(|core, state| {
            if let Some(away) = state.resume.as_mut().and_then(|resume| resume.away.as_mut())
                && gone
            {
                away.causes.gave_up();
            }
            core.end_away(state);
        })?;
        Err(Over)
    }

    fn deadline(&self) -> Step<Instant> {
        let until = self.with(|_, state| Some(state.resume.as_ref()?.away.as_ref()?.until))?;
        until.ok_or(Over)
    }

    fn failed(&self, cause: End) -> Step<()> {
        self.with(|_, state| {
            if let Some(away) = state.resume.as_mut().and_then(|resume| resume.away.as_mut()) {
                away.attempt = Attempt::None;
                away.causes.add(cause);
            }
        })
    }

    /// Whether the connection for which there is another request lives: then that is rejected. Else it is given up.
    fn decide(&self) {
        let until = Instant::now() + ANSWER;
        loop {
            let seen = self.hub.round();
            self.hub.take_all();
            let Some(core) = self.core.upgrade() else { return };
            let mut state = core.state();
            let Some(resume) = &state.resume else { return };
            if resume.knock.is_none() || resume.moves != self.moves {
                // Lost meanwhile: the request is answered with the next connection.
                return;
            }
            if resume.heard
                && let Some(knock) = core.unanswered(&mut state)
            {
                drop(state);
                return crate::sessions::reject(knock, core.ours, Purpose::Busy);
            }
            if Instant::now() >= until {
                return core.give_up_for(&mut state, End::Refused(Refusal::Busy));
            }
            drop(state);
            drop(core);
            let _ = self.hub.follow(seen, Some(until.min(Instant::now() + ANSWER / 50)));
        }
    }
}
