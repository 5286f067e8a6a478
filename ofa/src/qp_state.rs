//! The state transitions of a queue pair, with the attributes that each requires and allows
//! (ibv_modify_qp(3); InfiniBand Architecture Specification 1.4, section 11.2.5.2, table 96). Plain
//! values.
//!
//! The attributes that InfiniBand requires for RTR and RTS name the peer, which the rendezvous needs. A
//! queue pair of a connection identifier gets its peer from that, and a change to INIT may leave out
//! port and P_Key, as on iWARP devices.

use ibv_sys::*;

use crate::errno::{EINVAL, EOPNOTSUPP, Errno};

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

const INIT_TAKES: i32 = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const RTS_TAKES: i32 = IBV_QP_ACCESS_FLAGS
    | IBV_QP_ALT_PATH
    | IBV_QP_PATH_MIG_STATE
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_MAX_DEST_RD_ATOMIC;
const PEER: i32 = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
const RC_PEER: i32 = PEER | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
const RC_SEND: i32 =
    IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
const RTR_TAKES: i32 = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;

const RC: &[Rule] = &[
    rule(IBV_QPS_RESET, IBV_QPS_RESET, 0, 0),
    rule(IBV_QPS_RESET, IBV_QPS_INIT, 0, INIT_TAKES),
    rule(IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT_TAKES),
    rule(IBV_QPS_INIT, IBV_QPS_RTR, RC_PEER, RTR_TAKES),
    rule(IBV_QPS_RTR, IBV_QPS_RTS, RC_SEND, RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_TAKES),
];

const UC: &[Rule] = &[
    rule(IBV_QPS_RESET, IBV_QPS_RESET, 0, 0),
    rule(IBV_QPS_RESET, IBV_QPS_INIT, 0, INIT_TAKES),
    rule(IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT_TAKES),
    rule(IBV_QPS_INIT, IBV_QPS_RTR, PEER, RTR_TAKES),
    rule(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_TAKES),
];

/// The state that a change leads to, if it is allowed. `connected_by_id`: the queue pair belongs to a
/// connection identifier.
///
/// # Errors
/// EINVAL: there is no such transition, or an attribute is missing or not allowed. EOPNOTSUPP: SQD.
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
    let rest = mask & !(IBV_QP_STATE | IBV_QP_CUR_STATE);
    match to {
        IBV_QPS_RESET | IBV_QPS_ERR if has(IBV_QP_STATE) => {
            return if rest == 0 { Ok(to) } else { Err(EINVAL) };
        }
        IBV_QPS_SQD => return Err(EOPNOTSUPP),
        _ => {}
    }
    let rules = if kind == IBV_QPT_UC { UC } else { RC };
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
        let init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        for (from, state, mask) in [
            (IBV_QPS_RESET, IBV_QPS_INIT, init),
            (IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS),
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
        assert_eq!(to(IBV_QPS_SQD, IBV_QPS_RTS, 0), Err(EOPNOTSUPP));
    }

    #[test]
    fn the_state_that_the_caller_believes_in_must_be_true() {
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
