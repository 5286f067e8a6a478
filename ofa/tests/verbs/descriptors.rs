//! Tests of the descriptors of completion channels and of asynchronous events, as programs watch them, and
//! of queued events when their object is destroyed.

use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::async_event::*;
use ofa::verbs::channel::*;
use ofa::verbs::cq::*;

use crate::lab::*;
use crate::watch;

/// Two connected queue pairs.
struct Source {
    near: Lab,
    far: Lab,
    a: *mut ibv_qp,
    b: *mut ibv_qp,
}

fn descriptor(fd: i32) -> BorrowedFd<'static> {
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn result(got: i32) -> Result<(), i32> {
    if got == 0 { Ok(()) } else { Err(errno()) }
}

impl Source {
    fn new() -> Self {
        let (near, far) = (Lab::new(), Lab::new());
        let (a, b) = pair(&near, &far);
        Self { near, far, a, b }
    }

    fn channel(&self) -> BorrowedFd<'static> {
        descriptor(unsafe { (*self.far.channel).fd })
    }

    /// One more completion event of the far queue.
    fn complete(&self) {
        assert_eq!(unsafe { self.far.ops().req_notify_cq.unwrap()(self.far.cq, 0) }, 0);
        assert_eq!(self.far.recv(self.b, 1, &mut self.far.sge(0, 64)), 0);
        assert_eq!(self.near.send(self.a, &mut wr(2, IBV_WR_SEND, &mut self.near.sge(0, 8))), 0);
        self.far.success(1);
        self.near.success(2);
    }

    fn take_completion(&self) -> Result<(), i32> {
        let (mut cq, mut context) = (null_mut(), null_mut());
        result(unsafe { warpline_ibv_get_cq_event(self.far.channel, &mut cq, &mut context) })?;
        assert_eq!(cq, self.far.cq);
        unsafe { warpline_ibv_ack_cq_events(cq, 1) };
        Ok(())
    }

    fn asynchronous(&self) -> BorrowedFd<'static> {
        descriptor(unsafe { (*self.near.context).async_fd })
    }

    /// One more asynchronous event: the near queue drains.
    fn drain(&self) {
        let mut attr = ibv_qp_attr { en_sqd_async_notify: 1, ..ibv_qp_attr::default() };
        for (qp_state, mask) in
            [(IBV_QPS_SQD, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), (IBV_QPS_RTS, IBV_QP_STATE)]
        {
            attr.qp_state = qp_state;
            assert_eq!(modify(self.a, &mut attr, mask), 0);
        }
    }

    fn take_asynchronous(&self) -> Result<(), i32> {
        let element = event_element { port_num: 0 };
        let mut event = ibv_async_event { element, event_type: u32::MAX };
        result(unsafe { warpline_ibv_get_async_event(self.near.context, &mut event) })?;
        assert_eq!(event.event_type, IBV_EVENT_SQ_DRAINED);
        unsafe { warpline_ibv_ack_async_event(&mut event) };
        Ok(())
    }

    fn end(self) {
        destroy(self.a);
        destroy(self.b);
    }
}

macro_rules! watched {
    ($($name:ident: $how:ident($fd:ident, $cause:ident, $take:ident);)*) => {$(
        #[test]
        fn $name() {
            let source = Source::new();
            watch::$how(source.$fd(), || source.$cause(), || source.$take());
            source.end();
        }
    )*};
}

watched! {
    a_channel_is_watched_by_level: by_level(channel, complete, take_completion);
    a_channel_is_watched_by_edge: by_edge(channel, complete, take_completion);
    a_channel_is_watched_by_a_duplicate: duplicated(channel, complete, take_completion);
    a_channel_need_not_block: nonblocking(channel, complete, take_completion);
    asynchronous_events_are_watched_by_level: by_level(asynchronous, drain, take_asynchronous);
    asynchronous_events_are_watched_by_edge: by_edge(asynchronous, drain, take_asynchronous);
    asynchronous_events_are_watched_by_a_duplicate: duplicated(asynchronous, drain, take_asynchronous);
    asynchronous_events_need_not_block: nonblocking(asynchronous, drain, take_asynchronous);
}

#[test]
fn events_go_with_their_object() {
    let source = Source::new();
    let (channel, asynchronous) = (source.channel(), source.asynchronous());
    source.complete();
    source.drain();
    for fd in [channel, asynchronous] {
        warpline_patience::until("an event", || watch::readable(fd));
    }
    let Source { near, mut far, a, b } = source;
    destroy(a);
    destroy(b);
    assert!(!watch::readable(asynchronous) && watch::readable(channel));
    let busy = unsafe { warpline_ibv_destroy_comp_channel(far.channel) };
    assert_eq!(busy, libc::EBUSY, "a completion queue uses it");
    assert_eq!(unsafe { warpline_ibv_destroy_cq(far.cq) }, 0);
    assert!(!watch::readable(channel));
    // Another one on the same channel.
    far.cq = unsafe { warpline_ibv_create_cq(far.context, 4, null_mut(), far.channel, 0) };
    drop((near, far));
}
