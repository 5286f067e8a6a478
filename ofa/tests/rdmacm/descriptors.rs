//! Tests of the descriptor of an event channel, as programs watch it, and of queued events when their
//! identifier or their channel is destroyed.

use std::ptr::null_mut;

use ibv_sys::*;

use crate::common::*;
use crate::watch;

/// Identifiers on a channel, each of which causes its events by calls.
struct Source {
    channel: *mut rdma_event_channel,
    ids: Vec<*mut rdma_cm_id>,
}

impl Source {
    fn new() -> Self {
        Self { channel: channel(), ids: Vec::new() }
    }

    /// One more event.
    fn cause(&mut self) {
        let id = id_on(self.channel);
        done!(warpline_rdma_resolve_addr(id, null_mut(), c_address("127.0.0.1:9"), 1000));
        self.ids.push(id);
    }

    fn take(&self) -> Result<(), i32> {
        let mut event = null_mut();
        match call!(warpline_rdma_get_cm_event(self.channel, &raw mut event)) {
            0 => {
                done!(warpline_rdma_ack_cm_event(event));
                Ok(())
            }
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        }
    }

    fn end(self) {
        for id in self.ids {
            done!(warpline_rdma_destroy_id(id));
        }
        call!(warpline_rdma_destroy_event_channel(self.channel));
    }
}

macro_rules! watched {
    ($($name:ident: $how:ident;)*) => {$(
        #[test]
        fn $name() {
            let source = std::cell::RefCell::new(Source::new());
            let fd = descriptor(source.borrow().channel);
            watch::$how(fd, || source.borrow_mut().cause(), || source.borrow().take());
            source.into_inner().end();
        }
    )*};
}

watched! {
    a_channel_is_watched_by_level: by_level;
    a_channel_is_watched_by_edge: by_edge;
    a_channel_is_watched_by_a_duplicate: duplicated;
    a_channel_need_not_block: nonblocking;
}

#[test]
fn events_go_with_their_identifier() {
    let mut source = Source::new();
    (0..2).for_each(|_| source.cause());
    let fd = descriptor(source.channel);
    for id in std::mem::take(&mut source.ids) {
        assert!(watch::readable(fd));
        done!(warpline_rdma_destroy_id(id));
    }
    assert!(!watch::readable(fd));
    source.end();
}

/// A channel is destroyed while events are queued and before their identifiers; a duplicate of its descriptor
/// stays open.
#[test]
fn a_channel_is_destroyed_with_its_events() {
    let mut source = Source::new();
    (0..2).for_each(|_| source.cause());
    let copy = rustix::io::dup(descriptor(source.channel)).unwrap();
    call!(warpline_rdma_destroy_event_channel(source.channel));
    assert!(watch::readable(&copy));
    for id in source.ids {
        done!(warpline_rdma_destroy_id(id));
    }
    assert!(!watch::readable(&copy));
}
