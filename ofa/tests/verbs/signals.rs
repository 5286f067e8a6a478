//! Signals while a call waits for a completion event.

use std::ptr::null_mut;

use ofa::verbs::channel::*;

use crate::interrupt;
use crate::lab::*;
use ibv_sys::*;

#[test]
fn a_handler_ends_a_wait_unless_calls_restart() {
    let (lab, other) = (Lab::new(), Lab::new());
    let (a, b) = pair(&other, &lab);
    let channel = lab.channel.expose_provenance();
    let wait = move || {
        let (mut cq, mut context) = (null_mut(), null_mut());
        match unsafe { warpline_ibv_get_cq_event(handle(channel), &mut cq, &mut context) } {
            0 => 0,
            _ => errno(),
        }
    };
    interrupt::ends_unless_restarted(wait, || {
        assert_eq!(unsafe { lab.ops().req_notify_cq.unwrap()(lab.cq, 0) }, 0);
        assert_eq!(lab.recv(b, 1, &mut lab.sge(0, 64)), 0);
        assert_eq!(other.send(a, &mut wr(2, IBV_WR_SEND, &mut other.sge(0, 8))), 0);
    });
    unsafe { warpline_ibv_ack_cq_events(lab.cq, 1) };
    lab.success(1);
    other.success(2);
    destroy(a);
    destroy(b);
}
