//! The connection manager: listeners and callers of one RNIC.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use vp_api::*;

use crate::state::{Shared, State, no};

pub(crate) struct Cm {
    pub(crate) shared: Arc<Shared>,
}

fn idle(state: &State, qp: QpId) -> VpResult<()> {
    match state.qps.get(&qp.0).map(|qp| qp.state) {
        Some(QpState::Idle) => Ok(()),
        _ => Err(no(VpStatus::InvalidState, "the QP is not in Idle")),
    }
}

/// Octets of private data that a message carries.
pub(crate) const MOST_PRIVATE: u32 = 512;

fn check(private_data: &[u8]) -> VpResult<()> {
    match private_data.len() <= MOST_PRIVATE as usize {
        true => Ok(()),
        false => Err(no(VpStatus::InvalidModifier, "private data have 512 octets at most")),
    }
}

impl Cm {
    fn tell(&self, state: &mut State, event: NativeEvent) {
        state.events.push_back(event);
        self.shared.ring();
    }
}

impl NativeCm for Cm {
    fn listen(&self, mut address: SocketAddr, _: u32) -> VpResult<(u64, SocketAddr)> {
        let mut state = self.shared.lock();
        let id = state.new_id();
        if address.port() == 0 {
            address.set_port(49152 + (id % 16000) as u16);
        }
        state.listeners.insert(id.into(), address);
        Ok((id.into(), address))
    }

    fn unlisten(&self, listener: u64) -> VpResult<()> {
        let gone = self.shared.lock().listeners.remove(&listener);
        gone.map(|_| ()).ok_or_else(|| no(VpStatus::InvalidHandle, "there is no such listener"))
    }

    fn connect(&self, qp: QpId, peer: SocketAddr, params: NativeParams) -> VpResult<()> {
        check(&params.private_data)?;
        let mut state = self.shared.lock();
        idle(&state, qp)?;
        let found = state.listeners.iter().find(|(_, at)| **at == peer).map(|(id, _)| *id);
        let Some(listener) = found else {
            let reason = format!("nobody listens at {peer}");
            self.tell(&mut state, NativeEvent::Failed { qp, reason });
            return Ok(());
        };
        let request = state.new_id().into();
        state.requests.insert(request, (qp, params.clone()));
        self.tell(&mut state, NativeEvent::Request { listener, request, peer, params });
        Ok(())
    }

    fn accept(&self, request: u64, qp: QpId, params: NativeParams) -> VpResult<()> {
        check(&params.private_data)?;
        let mut state = self.shared.lock();
        idle(&state, qp)?;
        let missing = || no(VpStatus::InvalidHandle, "there is no such request");
        let (caller, theirs) = state.requests.remove(&request).ok_or_else(missing)?;
        for (one, other) in [(qp, caller), (caller, qp)] {
            let one = state.qps.get_mut(&one.0).ok_or_else(missing)?;
            (one.state, one.peer) = (QpState::Rts, Some(other));
        }
        self.tell(&mut state, NativeEvent::Established { qp: caller, params });
        self.tell(&mut state, NativeEvent::Established { qp, params: theirs });
        Ok(())
    }

    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()> {
        check(private_data)?;
        let mut state = self.shared.lock();
        let missing = || no(VpStatus::InvalidHandle, "there is no such request");
        let (qp, _) = state.requests.remove(&request).ok_or_else(missing)?;
        let private_data = private_data.to_vec();
        self.tell(&mut state, NativeEvent::Rejected { qp, private_data });
        Ok(())
    }

    fn disconnect(&self, qp: QpId) -> VpResult<()> {
        let (mut rings, mut state) = (Vec::new(), self.shared.lock());
        if state.qps.get(&qp.0).is_none_or(|qp| qp.peer.is_none()) {
            return Err(no(VpStatus::InvalidState, "the QP is not connected"));
        }
        state.break_qp(qp, true, &mut rings);
        self.shared.close(state, rings);
        Ok(())
    }

    fn poll_event(&self) -> Option<NativeEvent> {
        self.shared.lock().events.pop_front()
    }

    fn wait_event(&self, timeout: Option<Duration>) -> VpResult<bool> {
        let begin = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if !state.events.is_empty() {
                return Ok(true);
            }
            // For ever is a long time.
            let left = timeout.unwrap_or(Duration::from_secs(3600)).saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            let waited = self.shared.bell.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
