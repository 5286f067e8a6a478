//! Tests of streams that break: the Terminate before a reset is still read.

use std::io::Write;
use std::time::Duration;

use vp_api::{Data, Qp, QpState, SendFlags, SendOp, SendWr};

use crate::testing::end::End;

/// Terminate 0/0/0 without CRC, as an FPDU.
fn terminate() -> Vec<u8> {
    let mut octets = vec![0, 22, 0x41, 0x47, 0, 0, 0, 0];
    octets.extend([0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
    octets.extend([0; 8]);
    octets
}

/// The peer terminates and resets, and the thread that posts sees the reset first.
/// [RDMAP-26] [VERBS-08]
#[test]
fn a_reset_does_not_hide_the_terminate_before_it() {
    let (end, mut peer) = End::against_a_socket(64);
    peer.write_all(&terminate()).expect("room");
    rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).expect("a socket");
    drop(peer);
    let (op, flags) = (SendOp::Send { solicited: false, invalidate: None }, SendFlags::SIGNALED);
    let send = SendWr { wr_id: 1, op, data: Data::Inline(&[]), flags };
    end.qp.post_send(&[send]).expect("room");
    let info = end.qp.query().expect("it is there");
    assert_eq!(info.state, QpState::Error);
    let received = info.terminate.expect("a Terminate");
    assert_eq!((received.sent, received.layer, received.code), (false, 0, 0));
    assert_eq!(info.sends_lost, 1);
}
