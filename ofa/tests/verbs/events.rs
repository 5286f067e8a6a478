//! Tests of events through descriptors: completion events and asynchronous ones, with their acknowledgement.

use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::mpsc::channel;

use ibv_sys::*;
use ofa::verbs::async_event::*;
use ofa::verbs::channel::*;

use crate::lab::*;
use crate::watch;

pub(crate) fn readable(fd: i32) -> bool {
    watch::readable(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The next asynchronous event.
pub(crate) fn next(context: *mut ibv_context) -> ibv_async_event {
    let element = event_element { port_num: 0 };
    let mut event = ibv_async_event { element, event_type: u32::MAX };
    warpline_patience::until("an asynchronous event", || readable(unsafe { (*context).async_fd }));
    assert_eq!(unsafe { warpline_ibv_get_async_event(context, &mut event) }, 0);
    event
}

pub(crate) fn acknowledge(event: &mut ibv_async_event) {
    unsafe { warpline_ibv_ack_async_event(event) }
}

fn get(lab: &Lab) -> *mut ibv_cq {
    let (mut cq, mut context) = (null_mut(), null_mut());
    assert_eq!(unsafe { warpline_ibv_get_cq_event(lab.channel, &mut cq, &mut context) }, 0);
    cq
}

fn arm(lab: &Lab) {
    assert_eq!(unsafe { lab.ops().req_notify_cq.unwrap()(lab.cq, 0) }, 0);
}

#[test]
fn a_channel_notifies_once_per_arming() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    let fd = unsafe { (*far.channel).fd };
    arm(&far);
    for n in 0..3 {
        assert!(!readable(fd));
        assert_eq!(far.recv(b, n, &mut far.sge(0, 64)), 0);
        assert_eq!(near.send(a, &mut wr(n, IBV_WR_SEND, &mut near.sge(0, 8))), 0);
        // Blocks, and serves the connection meanwhile.
        assert_eq!(get(&far), far.cq);
        unsafe { warpline_ibv_ack_cq_events(far.cq, 1) };
        arm(&far);
        far.success(n);
        near.success(n);
    }
    destroy(a);
    destroy(b);
}

#[test]
fn a_queue_is_destroyed_when_its_events_are_acknowledged() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    arm(&far);
    assert_eq!(far.recv(b, 1, &mut far.sge(0, 64)), 0);
    assert_eq!(near.send(a, &mut wr(1, IBV_WR_SEND, &mut near.sge(0, 8))), 0);
    assert_eq!(get(&far), far.cq);
    destroy(a);
    destroy(b);
    let (sender, receiver) = channel();
    let cq = far.cq.expose_provenance();
    let acknowledger = std::thread::spawn(move || {
        receiver.recv().unwrap();
        unsafe { warpline_ibv_ack_cq_events(handle(cq), 1) };
    });
    sender.send(()).unwrap();
    // Waits for the other thread.
    drop(far);
    acknowledger.join().unwrap();
}

#[test]
fn a_peer_that_went_is_noticed_by_the_first_send() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    assert_eq!(near.recv(a, 50, &mut near.sge(0, 64)), 0);
    assert_eq!(near.send(a, &mut wr(1, IBV_WR_RDMA_WRITE, &mut near.sge(0, 0))), 0);
    near.success(1);
    destroy(b);
    // Until the application takes the event its receives stay posted.
    let mut lost = None;
    warpline_patience::until("a send that is lost", || {
        if near.send(a, &mut wr(2, IBV_WR_SEND, &mut near.sge(0, 8))) != 0 {
            return false;
        }
        let wc = near.completion();
        assert_ne!(wc.wr_id, 50, "a receive was flushed before the application took the event");
        lost = Some(wc);
        wc.status != IBV_WC_SUCCESS
    });
    assert_eq!(lost.unwrap().status, IBV_WC_RETRY_EXC_ERR);
    let mut event = next(near.context);
    assert_eq!(event.event_type, IBV_EVENT_QP_FATAL);
    assert_eq!(unsafe { event.element.qp }, a);
    assert_eq!(state(a), IBV_QPS_ERR);
    let wc = near.completion();
    assert_eq!((wc.wr_id, wc.status), (50, IBV_WC_WR_FLUSH_ERR));
    acknowledge(&mut event);
    destroy(a);
}
