//! The state transitions of a queue pair, with the attributes that each requires and allows
//! (ibv_modify_qp(3); InfiniBand Architecture Specification 1.4, section 11.2.5.2, table 96). Plain
//! values.
//!
//! The attributes that InfiniBand requires for RTR and RTS name the peer, which the rendezvous needs. A
//! queue pair of a connection identifier gets its peer from that, and a change to INIT may leave out
//! port and P_Key, as on iWARP devices.

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
    rule(IBV_QPS_RESET, IBV_QPS_INIT, 0, INIT_TAKES),
    rule(IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT_TAKES),
    rule(IBV_QPS_INIT, IBV_QPS_RTR, RC_PEER, RTR_TAKES),
    rule(IBV_QPS_RTR, IBV_QPS_RTS, RC_SEND, RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    rule(IBV_QPS_SQD, IBV_QPS_SQD, 0, RC_SQD_TAKES),
    rule(IBV_QPS_SQD, IBV_QPS_RTS, 0, RTS_TAKES),
];

const UC: &[Rule] = &[
    rule(IBV_QPS_RESET, IBV_QPS_RESET, 0, 0),
    rule(IBV_QPS_RESET, IBV_QPS_INIT, 0, INIT_TAKES),
    rule(IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT_TAKES),
    rule(IBV_QPS_INIT, IBV_QPS_RTR, PEER, RTR_TAKES),
    rule(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_TAKES),
    rule(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    rule(IBV_QPS_SQD, IBV_QPS_SQD, 0, SQD_TAKES),
    rule(IBV_QPS_SQD, IBV_QPS_RTS, 0, RTS_TAKES),
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
    let rest = mask & !(IBV_QP_STATE | IBV_QP_CUR_STATE);
    match to {
        IBV_QPS_RESET | IBV_QPS_ERR if has(IBV_QP_STATE) => {
            return if rest == 0 { Ok(to) } else { Err(EINVAL) };
        }
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
    }

    /// Every attribute of the mask.
    fn attributes() -> impl Iterator<Item = i32> {
        (0..26).map(|bit| 1 << bit).filter(|flag| flag & (IBV_QP_STATE | IBV_QP_CUR_STATE) == 0)
    }

    /// Transitions of a kind, as ibv_modify_qp(3) and the specification have them: what each requires.
    fn transitions(kind: u32) -> Vec<(u32, u32, i32)> {
        use states::*;
        let peer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        let reads = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        let timers = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        let is_rc = kind == IBV_QPT_RC;
        let mut all = vec![
            (RESET, INIT, 0),
            (INIT, INIT, 0),
            (INIT, RTR, if is_rc { peer | reads } else { peer }),
            (RTR, RTS, if is_rc { IBV_QP_SQ_PSN | timers } else { IBV_QP_SQ_PSN }),
            (RTS, RTS, 0),
            (RTS, SQD, 0),
            (SQD, SQD, 0),
            (SQD, RTS, 0),
        ];
        for from in RESET..=ERR {
            all.extend([(from, RESET, 0), (from, ERR, 0)]);
        }
        all
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
        // SQE is the state of datagrams alone, as a Q_Key is an attribute of theirs.
        let never = IBV_QP_QKEY | IBV_QP_CAP | 1 << 25;
        for kind in [IBV_QPT_RC, IBV_QPT_UC] {
            let all = transitions(kind);
            for (from, qp_state) in
                (RESET..=ERR).flat_map(|from| (RESET..=7).map(move |to| (from, to)))
            {
                let attr = ibv_qp_attr { qp_state, ..ibv_qp_attr::default() };
                let check = |mask| check(kind, false, from, &attr, mask | IBV_QP_STATE);
                let what = format!("type {kind}, {from} to {qp_state}");
                let Some(&(.., required)) = all.iter().find(|it| (it.0, it.1) == (from, qp_state))
                else {
                    assert_eq!(check(0), Err(EINVAL), "{what}");
                    continue;
                };
                assert_eq!(check(required), Ok(qp_state), "{what}");
                for flag in attributes() {
                    if required & flag != 0 {
                        assert_eq!(
                            check(required & !flag),
                            Err(EINVAL),
                            "{what} without {flag:#x}"
                        );
                    } else if never & flag != 0 || [RESET, ERR].contains(&qp_state) {
                        assert_eq!(check(required | flag), Err(EINVAL), "{what} with {flag:#x}");
                    }
                }
            }
        }
        // Attributes that one transition takes and the others do not.
        for (flag, takers) in [
            (IBV_QP_EN_SQD_ASYNC_NOTIFY, &[(RTS, SQD)][..]),
            (IBV_QP_PORT, &[(RESET, INIT), (INIT, INIT), (SQD, SQD)]),
            (IBV_QP_TIMEOUT, &[(RTR, RTS), (SQD, SQD)]),
            (IBV_QP_DEST_QPN, &[(INIT, RTR)]),
        ] {
            for (from, qp_state, required) in transitions(IBV_QPT_RC) {
                let attr = ibv_qp_attr { qp_state, ..ibv_qp_attr::default() };
                let mask = required | flag | IBV_QP_STATE;
                let taken = check(IBV_QPT_RC, false, from, &attr, mask).is_ok();
                assert_eq!(
                    taken,
                    takers.contains(&(from, qp_state)),
                    "{from} to {qp_state}: {flag:#x}"
                );
            }
        }
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
