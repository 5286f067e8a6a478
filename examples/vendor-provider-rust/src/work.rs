//! Queue pairs: a post executes the request at once, under the lock.

use std::sync::Arc;

use vp_api::*;

use crate::state::{Rings, Shared, State, no};

pub(crate) struct QpHandle {
    pub(crate) id: QpId,
    pub(crate) shared: Arc<Shared>,
}

fn acceptable(state: &State, id: QpId, wr: &SendWr<'_>) -> Result<(), VpStatus> {
    let qp = state.qps.get(&id.0).ok_or(VpStatus::InvalidHandle)?;
    if qp.state == QpState::Idle {
        return Err(VpStatus::InvalidState);
    }
    let known = match wr.op {
        SendOp::Send { invalidate: None, .. } | SendOp::Write { .. } => true,
        SendOp::Read { invalidate_sink, .. } => !invalidate_sink,
        _ => false,
    };
    if !known {
        return Err(VpStatus::InvalidWr);
    }
    match wr.data {
        Data::Sgl(sgl) if sgl.len() > 4 => Err(VpStatus::InvalidSgl),
        Data::Inline(octets) if octets.len() > 64 => Err(VpStatus::InvalidSgl),
        _ if qp.sends >= qp.init.send_depth => Err(VpStatus::TooManyWrs),
        _ => Ok(()),
    }
}

fn payload(state: &State, pd: PdId, wr: &SendWr<'_>) -> Result<Vec<u8>, WcStatus> {
    match wr.data {
        Data::Sgl(sgl) => state.gather(pd, sgl, Access::LOCAL_READ),
        Data::Inline(octets) => Ok(octets.to_vec()),
    }
}

/// Delivers a message to the peer's next receive.
fn send(
    state: &mut State,
    peer: QpId,
    octets: &[u8],
    solicited: bool,
    rings: &mut Rings,
) -> Result<(), WcStatus> {
    let qp = state.qps.get_mut(&peer.0).ok_or(WcStatus::RemoteTermination)?;
    let pd = qp.init.pd;
    let (wr_id, sgl) = qp.receives.pop_front().ok_or(WcStatus::RemoteTermination)?;
    let room: u64 = sgl.iter().map(|sge| u64::from(sge.len)).sum();
    let placed = match room < octets.len() as u64 {
        true => Err(WcStatus::Bounds),
        false => state.scatter(pd, &sgl, Access::LOCAL_WRITE, octets),
    };
    let wc = WorkCompletion {
        wr_id,
        qp: peer,
        opcode: WcOpcode::Recv,
        status: placed.err().unwrap_or(WcStatus::Success),
        solicited,
        octets: octets.len() as u32,
        ..WorkCompletion::BLANK
    };
    state.complete_recv(wc, rings);
    placed.map_err(|_| WcStatus::RemoteTermination)
}

/// The opcode of a request's completion, and how it ended.
fn execute(
    state: &mut State,
    id: QpId,
    wr: &SendWr<'_>,
    rings: &mut Rings,
) -> (WcOpcode, Result<(), WcStatus>) {
    let opcode = match wr.op {
        SendOp::Write { .. } => WcOpcode::Write,
        SendOp::Read { .. } => WcOpcode::Read,
        _ => WcOpcode::Send,
    };
    (opcode, try_execute(state, id, wr, rings))
}

fn try_execute(
    state: &mut State,
    id: QpId,
    wr: &SendWr<'_>,
    rings: &mut Rings,
) -> Result<(), WcStatus> {
    let qp = state.qps.get(&id.0).ok_or(WcStatus::Flushed)?;
    let (pd, peer) = (qp.init.pd, qp.peer.ok_or(WcStatus::Flushed)?);
    let there = state.qps.get(&peer.0).ok_or(WcStatus::Flushed)?.init.clone();
    let theirs = |_| WcStatus::RemoteTermination;
    match wr.op {
        SendOp::Send { solicited, .. } => {
            let octets = payload(state, pd, wr)?;
            send(state, peer, &octets, solicited, rings)
        }
        SendOp::Write { remote } => {
            let octets = payload(state, pd, wr)?;
            if !octets.is_empty() && !there.allow.contains(Access::REMOTE_WRITE) {
                return Err(WcStatus::RemoteTermination);
            }
            let at = [Sge { stag: remote.stag, len: octets.len() as u32, to: remote.to }];
            state.scatter(there.pd, &at, Access::REMOTE_WRITE, &octets).map_err(theirs)
        }
        SendOp::Read { remote, .. } => {
            let Data::Sgl(&[sink]) = wr.data else { return Err(WcStatus::InvalidWqe) };
            let at = [Sge { stag: remote.stag, len: sink.len, to: remote.to }];
            if sink.len > 0 && !there.allow.contains(Access::REMOTE_READ) {
                return Err(WcStatus::RemoteTermination);
            }
            let octets = state.gather(there.pd, &at, Access::REMOTE_READ).map_err(theirs)?;
            state.scatter(pd, &[sink], Access::LOCAL_WRITE, &octets)
        }
        _ => Err(WcStatus::InvalidWqe),
    }
}

/// The octets of a read.
fn read_octets(wr: &SendWr<'_>, status: WcStatus) -> u32 {
    match (&wr.op, wr.data) {
        (SendOp::Read { .. }, Data::Sgl(&[sink])) if status == WcStatus::Success => sink.len,
        _ => 0,
    }
}

fn post_one(state: &mut State, id: QpId, wr: &SendWr<'_>, rings: &mut Rings) {
    let (opcode, result) = execute(state, id, wr, rings);
    let status = result.err().unwrap_or(WcStatus::Success);
    state.qps.entry(id.0).and_modify(|qp| (qp.sends, qp.silent) = (qp.sends + 1, qp.silent + 1));
    if status != WcStatus::Success || wr.flags.contains(SendFlags::SIGNALED) {
        let (wr_id, octets) = (wr.wr_id, read_octets(wr, status));
        let wc = WorkCompletion { wr_id, qp: id, opcode, status, octets, ..WorkCompletion::BLANK };
        state.complete_send(wc, rings);
    }
    if !matches!(status, WcStatus::Success | WcStatus::Flushed) {
        state.break_qp(id, true, rings);
    }
}

fn take_receive(
    state: &mut State,
    id: QpId,
    wr: &RecvWr<'_>,
    rings: &mut Rings,
) -> Result<(), VpStatus> {
    let qp = state.qps.get_mut(&id.0).ok_or(VpStatus::InvalidHandle)?;
    if wr.sgl.len() > 4 {
        return Err(VpStatus::InvalidSgl);
    }
    if qp.receives.len() + qp.recvs_waiting as usize >= qp.init.recv_depth as usize {
        return Err(VpStatus::TooManyWrs);
    }
    qp.receives.push_back((wr.wr_id, wr.sgl.to_vec()));
    if qp.state == QpState::Error {
        state.flush(id, rings);
    }
    Ok(())
}

impl Qp for QpHandle {
    fn id(&self) -> QpId {
        self.id
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        let (mut rings, mut state) = (Vec::new(), self.shared.lock());
        let mut result = Ok(());
        for (posted, wr) in wrs.iter().enumerate() {
            if let Err(status) = acceptable(&state, self.id, wr) {
                result = Err(PostFailure { posted, status });
                break;
            }
            post_one(&mut state, self.id, wr, &mut rings);
        }
        self.shared.close(state, rings);
        result
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let (mut rings, mut state) = (Vec::new(), self.shared.lock());
        let mut each = wrs.iter().enumerate();
        let result = each.try_for_each(|(posted, wr)| {
            let taken = take_receive(&mut state, self.id, wr, &mut rings);
            taken.map_err(|status| PostFailure { posted, status })
        });
        self.shared.close(state, rings);
        result
    }

    fn modify(&self, change: QpChange) -> VpResult<()> {
        let (mut rings, mut state) = (Vec::new(), self.shared.lock());
        let Some(qp) = state.qps.get_mut(&self.id.0) else {
            return Err(no(VpStatus::InvalidHandle, "the QP was destroyed"));
        };
        match change {
            QpChange::Error | QpChange::Terminate | QpChange::Closing => {
                state.break_qp(self.id, true, &mut rings);
            }
            QpChange::Idle if qp.state == QpState::Error => {
                qp.state = QpState::Idle;
                qp.sends -= std::mem::take(&mut qp.silent);
                qp.lost = (0, 0);
                qp.reads = (qp.init.ird, qp.init.ord);
            }
            QpChange::Limits { .. } => {
                return Err(no(VpStatus::CannotChange, "limits cannot be changed"));
            }
            QpChange::Rts(_) | QpChange::Idle => {
                return Err(no(VpStatus::InvalidState, "not in this state"));
            }
            _ => return Err(no(VpStatus::Unsupported, "there is no such change")),
        }
        self.shared.close(state, rings);
        Ok(())
    }

    fn query(&self) -> VpResult<QpInfo> {
        let state = self.shared.lock();
        let Some(qp) = state.qps.get(&self.id.0) else {
            return Err(no(VpStatus::InvalidHandle, "the QP was destroyed"));
        };
        let mut info = QpInfo::new(self.id);
        info.state = qp.state;
        (info.send_depth, info.recv_depth) = (qp.init.send_depth, qp.init.recv_depth);
        info.recvs_outstanding = qp.receives.len() as u32;
        (info.sends_lost, info.recvs_lost) = qp.lost;
        (info.ird, info.ord) = qp.reads;
        Ok(info)
    }
}
