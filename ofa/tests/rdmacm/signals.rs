//! Signals while a call waits for a connection event.

use std::ptr::{null_mut, with_exposed_provenance_mut};

use crate::common::*;
use crate::interrupt;

#[test]
fn a_handler_ends_a_wait_unless_calls_restart() {
    let channel = channel();
    let address = channel.expose_provenance();
    let wait = move || {
        let mut event = null_mut();
        let channel = with_exposed_provenance_mut(address);
        match call!(warpline_rdma_get_cm_event(channel, &raw mut event)) {
            0 => {
                done!(warpline_rdma_ack_cm_event(event));
                0
            }
            _ => std::io::Error::last_os_error().raw_os_error().unwrap(),
        }
    };
    let id = id_on(channel);
    interrupt::ends_unless_restarted(wait, || {
        done!(warpline_rdma_resolve_addr(id, null_mut(), c_address("127.0.0.1:9"), 1000));
    });
    done!(warpline_rdma_destroy_id(id));
    call!(warpline_rdma_destroy_event_channel(channel));
}
