//! The connection manager: listeners and callers of one RNIC.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use vp_api::*;

use crate::state::{Asked, Shared, State, no};

pub(crate) struct Cm {
    pub(crate) shared: Arc<Shared>,
}

fn idle(state: &State, qp: QpId) -> VpResult<()> {
    match state.qps.get(&qp.0).map(|qp| qp.state) {
        Some(QpState::Idle) => Ok(()),
        _ => Err(no(VpStatus::InvalidState, "the QP is not in Idle")),
    }
}

/// Port of every connecting end; it has no listener.
const CALLER: u16 = 1;

/// Longest private data of a message in octets.
pub(crate) const MOST_PRIVATE: u32 = 512;

/// Both ends have the listener's address; the connecting end has its own port.
fn calling(at: SocketAddr) -> SocketAddr {
    (at.ip(), CALLER).into()
}

fn check(private_data: &[u8]) -> VpResult<()> {
    match private_data.len() <= MOST_PRIVATE as usize {
        true => Ok(()),
        false => Err(no(VpStatus::InvalidModifier, "private data have 512 octets at most")),
    }
}

impl Cm {
    fn deliver(&self, state: &mut State, event: NativeEvent) {
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
            let reason = format!("there is no listener at {peer}");
            self.deliver(&mut state, NativeEvent::Failed { qp, reason });
            return Ok(());
        };
        let request = state.new_id().into();
        let (caller, local) = (calling(peer), Some(peer));
        let asked = Asked { caller: qp, params: params.clone(), at: peer };
        state.requests.insert(request, asked);
        self.deliver(&mut state, NativeEvent::Request { listener, request, peer: caller, local, params });
        Ok(())
    }

    fn accept(&self, request: u64, qp: QpId, params: NativeParams) -> VpResult<()> {
        check(&params.private_data)?;
        let mut state = self.shared.lock();
        idle(&state, qp)?;
        let missing = || no(VpStatus::InvalidHandle, "there is no such request");
        let Asked { caller, params: theirs, at } =
            state.requests.remove(&request).ok_or_else(missing)?;
        // Reads that one end may have outstanding, the other must serve.
        let (there, back) = (theirs.ord.min(params.ird), params.ord.min(theirs.ird));
        for (one, other, reads) in [(qp, caller, (there, back)), (caller, qp, (back, there))] {
            let one = state.qps.get_mut(&one.0).ok_or_else(missing)?;
            (one.state, one.peer, one.reads) = (QpState::Rts, Some(other), reads);
        }
        let far = NativeParams { private_data: theirs.private_data, ird: there, ord: back };
        let near = NativeParams { private_data: params.private_data, ird: back, ord: there };
        let local = Some(calling(at));
        self.deliver(&mut state, NativeEvent::Established { qp: caller, local, params: near });
        self.deliver(&mut state, NativeEvent::Established { qp, local: Some(at), params: far });
        Ok(())
    }

    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()> {
        check(private_data)?;
        let mut state = self.shared.lock();
        let missing = || no(VpStatus::InvalidHandle, "there is no such request");
        let qp = state.requests.remove(&request).ok_or_else(missing)?.caller;
        let private_data = private_data.to_vec();
        self.deliver(&mut state, NativeEvent::Rejected { qp, private_data });
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
            // Too large for a deadline: no time-out.
            let left = timeout.unwrap_or(Duration::from_secs(3600)).saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            let waited = self.shared.bell.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
