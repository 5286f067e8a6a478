//! The state transitions of a queue pair, with the attributes that each requires and allows
//! (ibv_modify_qp(3); InfiniBand Architecture Specification 1.4, section 11.2.5.2, table 96). Plain
//! values.
//!
//! The attributes that InfiniBand requires for RTR and RTS name the peer, which the rendezvous needs. A
//! queue pair of a connection identifier gets its peer from that, and may leave them out.

use ibv_sys::*;

use crate::errno::{EINVAL, Errno};

/// A transition, and the attributes that it requires and allows.
struct Rule {
    from: u32,
    to: u32,
    needed: i32,
    taken: i32,
}

const fn rule(from: u32, to: u32, needed: i32, taken: i32) -> Rule {
    Rule { from, to, needed, taken }
}

const INIT: i32 = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const RTS_TAKES: i32 =
    IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
const RC_RTS_TAKES: i32 = RTS_TAKES | IBV_QP_MIN_RNR_TIMER;
const PEER: i32 = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
const RC_PEER: i32 = PEER | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
const RC_SEND: i32 =
    IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
const SQD_TAKES: i32 =
    IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE;
const RC_SQD_TAKES: i32 = SQD_TAKES
    | IBV_QP_PORT
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
const RTR_TAKES: i32 = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;

const RC: &[Rule] = &[
    rule(IBV_QPS_RESET, IBV_QPS_RESET, 0, 0),
    rule(IBV_QPS_RESET, IBV_QPS_INIT, INIT, 0),
    rule(IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT),
    rule(IBV_QPS_INIT, IBV_QPS_RTR, RC_PEER, RTR_TAKES),
    rule(IBV_QPS_RTR, IBV_QPS_RTS, RC_SEND, RC_RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_RTS, 0, RC_RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    rule(IBV_QPS_SQD, IBV_QPS_SQD, 0, RC_SQD_TAKES),
    rule(IBV_QPS_SQD, IBV_QPS_RTS, 0, RC_RTS_TAKES),
];

const UC: &[Rule] = &[
    rule(IBV_QPS_RESET, IBV_QPS_RESET, 0, 0),
    rule(IBV_QPS_RESET, IBV_QPS_INIT, INIT, 0),
    rule(IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT),
    rule(IBV_QPS_INIT, IBV_QPS_RTR, PEER, RTR_TAKES),
    rule(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    rule(IBV_QPS_SQD, IBV_QPS_SQD, 0, SQD_TAKES),
    rule(IBV_QPS_SQD, IBV_QPS_RTS, 0, RTS_TAKES),
];

const UD_INIT: i32 = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
const UD_RTS_TAKES: i32 = IBV_QP_CUR_STATE | IBV_QP_QKEY;

const UD: &[Rule] = &[
    rule(IBV_QPS_RESET, IBV_QPS_RESET, 0, 0),
    rule(IBV_QPS_RESET, IBV_QPS_INIT, UD_INIT, 0),
    rule(IBV_QPS_INIT, IBV_QPS_INIT, 0, UD_INIT),
    rule(IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
    rule(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, UD_RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_RTS, 0, UD_RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    rule(IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
    rule(IBV_QPS_SQD, IBV_QPS_RTS, 0, UD_RTS_TAKES),
];

/// The state that a change leads to, if it is allowed. `connected_by_id`: the queue pair belongs to a
/// connection identifier.
///
/// # Errors
/// EINVAL: there is no such transition, or an attribute is missing or not allowed.
pub(crate) fn check(
    kind: u32,
    connected_by_id: bool,
    now: u32,
    attr: &ibv_qp_attr,
    mask: i32,
) -> Result<u32, Errno> {
    let has = |flag| mask & flag != 0;
    let to = if has(IBV_QP_STATE) { attr.qp_state } else { now };
    if has(IBV_QP_CUR_STATE) && attr.cur_qp_state != now {
        return Err(EINVAL);
    }
    let rest = mask & !IBV_QP_STATE;
    match to {
        IBV_QPS_RESET | IBV_QPS_ERR if has(IBV_QP_STATE) => {
            return if rest == 0 { Ok(to) } else { Err(EINVAL) };
        }
        _ => {}
    }
    let rules = match kind {
        IBV_QPT_UC => UC,
        IBV_QPT_UD => UD,
        _ => RC,
    };
    let rule = rules.iter().find(|rule| (rule.from, rule.to) == (now, to)).ok_or(EINVAL)?;
    let needed = if connected_by_id { 0 } else { rule.needed };
    let known = rule.needed | rule.taken;
    if rest & needed == needed && rest & !known == 0 { Ok(to) } else { Err(EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(state: u32, now: u32, mask: i32) -> Result<u32, Errno> {
        let attr = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
        check(IBV_QPT_RC, false, now, &attr, mask | IBV_QP_STATE)
    }

    #[test]
    fn the_way_to_rts_and_back() {
        for (from, state, mask) in [
            (IBV_QPS_RESET, IBV_QPS_INIT, INIT),
            (IBV_QPS_INIT, IBV_QPS_RTR, RC_PEER),
            (IBV_QPS_RTR, IBV_QPS_RTS, RC_SEND),
            (IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS),
            (IBV_QPS_RTS, IBV_QPS_ERR, 0),
            (IBV_QPS_ERR, IBV_QPS_RESET, 0),
        ] {
            assert_eq!(to(state, from, mask), Ok(state), "{from} to {state}");
        }
    }

    #[test]
    fn every_other_change_is_refused() {
        for (from, state, mask) in [
            (IBV_QPS_RESET, IBV_QPS_RTR, RC_PEER),
            (IBV_QPS_RESET, IBV_QPS_RTS, RC_SEND),
            (IBV_QPS_INIT, IBV_QPS_RTS, RC_SEND),
            (IBV_QPS_ERR, IBV_QPS_RTS, RC_SEND),
            (IBV_QPS_ERR, IBV_QPS_INIT, 0),
            // Without the peer's number, or with attributes that are not allowed.
            (IBV_QPS_INIT, IBV_QPS_RTR, RC_PEER & !IBV_QP_DEST_QPN),
            (IBV_QPS_INIT, IBV_QPS_RTR, RC_PEER | IBV_QP_QKEY),
            (IBV_QPS_RTR, IBV_QPS_RTS, RC_SEND | IBV_QP_CAP),
            (IBV_QPS_RTS, IBV_QPS_ERR, IBV_QP_PORT),
        ] {
            assert_eq!(to(state, from, mask), Err(EINVAL), "{from} to {state}");
        }
    }

    /// A transition, the attributes that it requires, and those that it takes as well.
    type Transition = (u32, u32, i32, i32);

    /// As ibv_modify_qp(3) and table 96 of the specification have them for a type.
    fn transitions(kind: u32) -> Vec<Transition> {
        use states::*;
        let mut all = match kind {
            IBV_QPT_UD => unconnected(),
            _ => connected(kind),
        };
        for from in RESET..=ERR {
            all.extend([(from, RESET, 0, 0), (from, ERR, 0, 0)]);
        }
        all
    }

    fn unconnected() -> Vec<Transition> {
        use states::*;
        let init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        let (key, rts) = (IBV_QP_PKEY_INDEX | IBV_QP_QKEY, IBV_QP_CUR_STATE | IBV_QP_QKEY);
        vec![
            (RESET, INIT, init, 0),
            (INIT, INIT, 0, init),
            (INIT, RTR, 0, key),
            (RTR, RTS, IBV_QP_SQ_PSN, rts),
            (RTS, RTS, 0, rts),
            (RTS, SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
            (SQD, SQD, 0, key),
            (SQD, RTS, 0, rts),
        ]
    }

    fn connected(kind: u32) -> Vec<Transition> {
        use states::*;
        let is_rc = kind == IBV_QPT_RC;
        let rc = |flags: i32| if is_rc { flags } else { 0 };
        let init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        let peer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        let reads = rc(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        let timers =
            rc(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
        let path = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS;
        let moved = path | IBV_QP_PATH_MIG_STATE;
        let rts = moved | IBV_QP_CUR_STATE | rc(IBV_QP_MIN_RNR_TIMER);
        let sqd = moved | IBV_QP_AV | IBV_QP_PKEY_INDEX | rc(IBV_QP_PORT) | reads | timers;
        vec![
            (RESET, INIT, init, 0),
            (INIT, INIT, 0, init),
            (INIT, RTR, peer | reads, path | IBV_QP_PKEY_INDEX),
            (RTR, RTS, IBV_QP_SQ_PSN | timers, rts),
            (RTS, RTS, 0, rts),
            (RTS, SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
            (SQD, SQD, 0, sqd),
            (SQD, RTS, 0, rts),
        ]
    }

    mod states {
        pub(super) use ibv_sys::{
            IBV_QPS_ERR as ERR, IBV_QPS_INIT as INIT, IBV_QPS_RESET as RESET, IBV_QPS_RTR as RTR,
            IBV_QPS_RTS as RTS, IBV_QPS_SQD as SQD,
        };
    }

    #[test]
    fn each_transition_requires_its_attributes_and_takes_no_others() {
        use states::*;
        for kind in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD] {
            let all = transitions(kind);
            let pairs = (RESET..=ERR).flat_map(|from| (RESET..=7).map(move |to| (from, to)));
            for (from, qp_state) in pairs {
                let attr = ibv_qp_attr { qp_state, cur_qp_state: from, ..ibv_qp_attr::default() };
                let check = |mask| check(kind, false, from, &attr, mask | IBV_QP_STATE);
                let what = format!("type {kind}, {from} to {qp_state}");
                let known = all.iter().find(|it| (it.0, it.1) == (from, qp_state));
                let Some(&(_, _, required, taken)) = known else {
                    assert_eq!(check(0), Err(EINVAL), "{what}");
                    continue;
                };
                assert_eq!(check(required), Ok(qp_state), "{what}");
                // Every attribute of the mask, and one that there is not.
                for flag in (1..26).map(|bit| 1 << bit) {
                    let mask = required ^ flag;
                    let right = required & flag == 0 && taken & flag != 0;
                    assert_eq!(check(mask).is_ok(), right, "{what}, mask {mask:#x}");
                }
            }
        }
    }

    #[test]
    fn the_current_state_of_the_caller_must_be_right() {
        let mut attr = ibv_qp_attr { cur_qp_state: IBV_QPS_RTS, ..ibv_qp_attr::default() };
        let mask = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS;
        let now = IBV_QPS_RTS;
        assert_eq!(check(IBV_QPT_RC, false, now, &attr, mask), Ok(now));
        attr.cur_qp_state = IBV_QPS_RTR;
        assert_eq!(check(IBV_QPT_RC, false, now, &attr, mask), Err(EINVAL));
    }

    #[test]
    fn a_connection_identifier_brings_the_peer() {
        for (now, qp_state) in [(IBV_QPS_INIT, IBV_QPS_RTR), (IBV_QPS_RTR, IBV_QPS_RTS)] {
            let attr = ibv_qp_attr { qp_state, ..ibv_qp_attr::default() };
            assert_eq!(check(IBV_QPT_RC, true, now, &attr, IBV_QP_STATE), Ok(qp_state));
            assert_eq!(check(IBV_QPT_RC, false, now, &attr, IBV_QP_STATE), Err(EINVAL));
        }
    }
}
