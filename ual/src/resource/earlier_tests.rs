//! Tests of events and commands for what no longer exists: a closed object, an earlier one with the same id, an
//! earlier stream of an endpoint.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use ual_cm::Connectee;
use vp_api::{AsyncEvent, EventSource};

use crate::event::{AsyncSource, EvdInit, Event, Stream};
use crate::resource::{Ep, EpInit, EpState, SrqParams};
use crate::{ConnEvent, Disconnect, Evd, FailReason, Ia, Overflow, Ual};

/// Closes an object.
type Close<'a> = &'a dyn Fn() -> crate::Result<()>;

struct Side {
    ia: Arc<Ia>,
    asynchronous: Arc<Evd>,
    connection: Arc<Evd>,
}

fn open() -> Side {
    let ia = Ual::with_config(Default::default()).open_any().unwrap();
    let evd = |stream| ia.create_evd(EvdInit::new(stream, 16)).unwrap();
    let (asynchronous, connection) = (evd(Stream::Affiliated), evd(Stream::Connection));
    Side { ia, asynchronous, connection }
}

impl Side {
    fn ep(&self) -> Arc<Ep> {
        let completions = self.ia.create_evd(EvdInit::new(Stream::Completion, 64)).unwrap();
        let pz = self.ia.create_pz().unwrap();
        pz.create_ep(EpInit::new(&completions, &self.connection)).unwrap()
    }

    /// An endpoint that counts as connected.
    fn live(&self) -> Arc<Ep> {
        let ep = self.ep();
        self.revive(&ep);
        ep
    }

    fn revive(&self, ep: &Ep) {
        let local = crate::Node::local(([127, 0, 0, 1], 1).into());
        let remote = crate::Node::local(([127, 0, 0, 1], 2).into());
        self.ia.cm().testing().revive(ep, crate::Ends { local, remote });
    }

    fn report(&self, source: EventSource, event: AsyncEvent) {
        self.ia.cm().testing().report(source, event);
    }

    /// Waits until all earlier events are handled.
    fn until_handled(&self) {
        let cm = self.ia.cm().testing();
        warpline_patience::until("the commands to be taken and the events delivered", || {
            cm.is_idle()
        });
    }

    /// Reports an event and does `meanwhile` before the connection thread handles it.
    fn on_the_way(&self, source: EventSource, event: AsyncEvent, meanwhile: impl FnOnce()) {
        {
            let _held = self.ia.cm().testing().hold();
            self.report(source, event);
            meanwhile();
        }
        self.until_handled();
    }
}

#[test]
fn events_of_closed_objects_are_not_delivered() {
    let side = open();
    let pz = side.ia.create_pz().unwrap();
    let params = SrqParams { depth: 4, max_sge: 1, low_watermark: 0 };
    // Queued when its object is closed, and on its way to the queue.
    for queued in [true, false] {
        let (ep, other) = (side.ep(), side.ep());
        let srq = pz.create_srq(params).unwrap();
        let evd = side.ia.create_evd(EvdInit::new(Stream::Completion, 64)).unwrap();
        let cq = evd.cq().unwrap().id();
        let cases: [(EventSource, AsyncEvent, Close<'_>); 3] = [
            (EventSource::Qp(ep.id()), AsyncEvent::RecvLimit, &|| ep.close()),
            (EventSource::Srq(srq.id()), AsyncEvent::SrqLimit, &|| srq.close()),
            (EventSource::Cq(cq), AsyncEvent::CqOverrun, &|| evd.close()),
        ];
        for (source, event, close) in cases {
            if queued {
                side.report(source, event);
                side.until_handled();
                assert_eq!(side.asynchronous.queued(), 1, "{source:?}");
                close().unwrap();
            } else {
                side.on_the_way(source, event, || close().unwrap());
            }
            assert_eq!(side.asynchronous.queued(), 0, "{source:?}, queued: {queued}");
        }
        // Events of open objects are delivered.
        side.report(EventSource::Qp(other.id()), AsyncEvent::RecvLimit);
        let event = side.asynchronous.wait(None).unwrap();
        let source = AsyncSource::Ep(other.id());
        assert!(
            matches!(event, Event::Affiliated { source: of, event: AsyncEvent::RecvLimit } if of == source),
            "{event:?}"
        );
    }
}

#[test]
fn events_of_an_earlier_object_are_not_delivered_to_a_later_one() {
    let side = open();
    let (ep, directory) = (side.live(), side.ia.directory());
    let pz = side.ia.create_pz().unwrap();
    let srq = pz.create_srq(SrqParams { depth: 4, max_sge: 1, low_watermark: 0 }).unwrap();
    let evd = side.ia.create_evd(EvdInit::new(Stream::Completion, 64)).unwrap();
    let cq = evd.cq().unwrap().id();
    // The objects count as created since.
    for event in [AsyncEvent::RecvLimit, AsyncEvent::ConnectionReset] {
        side.on_the_way(EventSource::Qp(ep.id()), event, || directory.add_qp(ep.id(), &ep));
    }
    side.on_the_way(EventSource::Srq(srq.id()), AsyncEvent::SrqLimit, || {
        directory.add_srq(srq.id(), &srq)
    });
    side.on_the_way(EventSource::Cq(cq), AsyncEvent::CqOverrun, || directory.add_evd(&evd));
    assert_eq!((side.asynchronous.queued(), side.connection.queued()), (0, 0));
    assert!(!evd.has_overrun());
    side.report(EventSource::Srq(srq.id()), AsyncEvent::SrqLimit);
    assert!(matches!(side.asynchronous.wait(None).unwrap(), Event::Affiliated { .. }));
}

#[test]
fn the_end_of_an_earlier_stream_does_not_end_a_later_one() {
    let side = open();
    let ep = side.live();
    let qp = EventSource::Qp(ep.id());
    for event in [AsyncEvent::ConnectionReset, AsyncEvent::CloseComplete] {
        side.on_the_way(qp, event, || side.revive(&ep));
        assert_eq!((side.asynchronous.queued(), side.connection.queued()), (0, 0), "{event}");
        assert_eq!(ep.state(), EpState::Connected);
    }
    // Its receives are the endpoint's, whatever the stream.
    side.on_the_way(qp, AsyncEvent::RecvLimit, || side.revive(&ep));
    assert!(matches!(side.asynchronous.dequeue().unwrap(), Some(Event::Affiliated { .. })));
    side.report(qp, AsyncEvent::ConnectionReset);
    let Event::Connection { event, .. } = side.connection.wait(None).unwrap() else { panic!() };
    assert!(matches!(*event, ConnEvent::Broken { .. }), "{event}");
}

#[test]
fn a_disconnect_of_an_earlier_stream_does_not_end_a_later_one() {
    let side = open();
    let ep = side.live();
    let cm = side.ia.cm().testing();
    let earlier = cm.stream_of(&*ep);
    side.revive(&ep);
    let party: Arc<dyn Connectee> = ep.clone();
    for how in [Disconnect::Graceful, Disconnect::Abrupt] {
        cm.disconnecting(&party, earlier, how);
    }
    cm.cancel(&*ep, earlier);
    side.until_handled();
    assert_eq!((ep.state(), side.connection.queued()), (EpState::Connected, 0));
    assert_eq!(cm.hold().entries(), (0, 0));
    // A connection to a peer that does not respond.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ep = side.ep();
    ep.connect(crate::ConnectParams::new(silent.local_addr().unwrap())).unwrap();
    cm.cancel(&*ep, earlier);
    side.until_handled();
    assert_eq!(ep.state(), EpState::ActivePending);
    ep.disconnect(Disconnect::Abrupt).unwrap();
    let Event::Connection { event, .. } = side.connection.wait(None).unwrap() else { panic!() };
    assert!(
        matches!(&*event, ConnEvent::Failed(error) if error.reason == FailReason::Cancelled),
        "{event}"
    );
}

// Events lost by a closed dispatcher do not matter.
#[test]
fn an_overflow_of_a_closed_dispatcher_is_not_reported() {
    let side = open();
    let software = |tag| {
        let init = EvdInit {
            overflow: Overflow { notify: true, auto_reset: false },
            ..EvdInit::new(Stream::Software, 1)
        };
        let evd = side.ia.create_evd(init).unwrap();
        evd.tag().set(tag);
        evd.post_software(1).unwrap();
        assert!(!evd.push_bounded(Event::Software(2)));
        evd
    };
    let (first, second) = (software(7), software(8));
    assert_eq!(side.asynchronous.queued(), 2);
    first.close().unwrap();
    let event = side.asynchronous.dequeue().unwrap();
    assert!(
        matches!(event, Some(Event::Affiliated { source: AsyncSource::Queue(8), .. })),
        "{event:?}"
    );
    second.close().unwrap();
    assert_eq!(side.asynchronous.queued(), 0);
    // It is closed at the moment when the event is added.
    side.asynchronous.push_affiliated(AsyncSource::Queue(9), AsyncEvent::CqOverrun, || false);
    assert_eq!(side.asynchronous.queued(), 0);
    // Without tags they cannot be distinguished.
    let (third, _fourth) = (software(0), software(0));
    third.close().unwrap();
    assert_eq!(side.asynchronous.queued(), 2);
}

#[test]
fn a_closed_endpoint_leaves_no_connection_event() {
    let side = open();
    let (ep, other) = (side.live(), side.live());
    for ep in [&ep, &other] {
        side.report(EventSource::Qp(ep.id()), AsyncEvent::ConnectionReset);
    }
    side.until_handled();
    assert_eq!(side.connection.queued(), 2);
    ep.close().unwrap();
    let event = side.connection.dequeue().unwrap();
    assert!(matches!(event, Some(Event::Connection { qp, .. }) if qp == other.id()), "{event:?}");
    assert_eq!(side.connection.queued(), 0);
}

/// A converted socket whose connection failed or was established is not watched any more, and its
/// endpoint has no entry.
#[test]
fn a_conversion_that_is_over_leaves_nothing_in_the_table() {
    let side = open();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ep = side.ep();
    let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let own = listener.accept().unwrap().0;
    ep.convert(own.into(), crate::ConvertParams::new(vp_api::Role::Responder)).unwrap();
    side.until_handled();
    let kept = || side.ia.cm().testing().hold().entries();
    assert_eq!(kept(), (1, 1));
    drop(peer);
    let Event::Connection { event, .. } = side.connection.wait(None).unwrap() else { panic!() };
    assert!(matches!(*event, ConnEvent::Failed(_)), "{event}");
    assert_eq!(kept(), (0, 0));
}

/// A closed adapter may be referenced for long, and a command may own a peer's socket.
#[test]
fn commands_to_a_closed_adapter_are_dropped() {
    let ia = Ual::with_config(Default::default()).open_any().unwrap();
    ia.close().unwrap();
    ia.cm().testing().command();
    assert!(ia.cm().testing().is_idle());
}
