//! A QP that has another stream: nothing of the earlier one reaches it.

use super::*;

/// A consumer whose handler of the end does not return until the QP is in Idle.
struct Slow {
    events: Arc<Events>,
    entered: mpsc::SyncSender<()>,
    idle: Mutex<mpsc::Receiver<()>>,
    early: AtomicBool,
}

impl AsyncHandler for Slow {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        if matches!(event, AsyncEvent::ConnectionReset | AsyncEvent::CloseComplete) {
            self.entered.send(()).unwrap();
            let idle = self.idle.lock().unwrap().recv_timeout(Duration::from_millis(100));
            self.early.store(idle.is_ok(), Ordering::Release);
        }
        self.events.on_event(source, event);
    }
}

/// The state changes before the event is delivered. A QP that starts its next stream in between must not get the
/// event of the earlier stream as one of the next. `near` ends the stream, and `again` lets `far` begin the next.
fn begun_anew_while_told<T>(end: QpChange, again: impl FnOnce(&End) -> T) {
    let (near, far) = pair(&Setup::default());
    let (entered, has_entered) = mpsc::sync_channel(1);
    let (is_idle, idle) = mpsc::channel();
    let (events, idle) = (far.events.clone(), Mutex::new(idle));
    let slow = Arc::new(Slow { events, entered, idle, early: AtomicBool::new(false) });
    far.rnic.set_async_handler(Some(slow.clone()));
    near.qp.modify(end).unwrap();
    has_entered.recv_timeout(HANG).expect("the end of the stream is not told");
    let _peer = again(&far);
    let _ = is_idle.send(());
    far.event();
    assert!(!slow.early.load(Ordering::Acquire), "anew while its end was being told");
    assert_eq!(far.event(), AsyncEvent::Established);
}

/// A next stream, whose peer is the socket.
fn next_stream(far: &End) -> TcpStream {
    let (socket, peer) = sockets();
    far.rts(socket, StreamParams::new(Role::Initiator));
    peer
}

// [VERBS-11]
#[test]
fn idle_comes_after_the_event_of_the_end() {
    begun_anew_while_told(QpChange::Error, |far| {
        let idle = far.qp.modify(QpChange::Idle);
        (idle.unwrap(), next_stream(far))
    });
}

// [VERBS-09]
#[test]
fn the_next_stream_begins_after_the_event_of_the_end() {
    begun_anew_while_told(QpChange::Closing, next_stream);
}

/// A QP can begin its next stream at once, in the handler of the end.
#[test]
fn a_handler_may_begin_a_new_stream() {
    struct Anew(mpsc::SyncSender<(AsyncEvent, VpResult<()>)>, OnceLock<Arc<dyn Qp>>);
    impl AsyncHandler for Anew {
        fn on_event(&self, _: EventSource, event: AsyncEvent) {
            let result = match event {
                AsyncEvent::ConnectionReset => self.1.get().unwrap().modify(QpChange::Idle),
                _ => Ok(()),
            };
            self.0.send((event, result)).unwrap();
        }
    }
    let (near, far) = pair(&Setup::default());
    let (sender, events) = mpsc::sync_channel(2);
    far.rnic.set_async_handler(Some(Arc::new(Anew(sender, OnceLock::from(far.qp.clone())))));
    near.qp.modify(QpChange::Error).unwrap();
    let (event, result) = events.recv_timeout(HANG).expect("the reset is not told");
    assert_eq!(event, AsyncEvent::ConnectionReset);
    result.unwrap();
    assert_eq!(far.state(), QpState::Idle);
}

/// The handler of an event cannot begin the next stream while other events of this one follow.
#[test]
fn a_handler_for_more_events_is_refused() {
    struct Eager(mpsc::SyncSender<(AsyncEvent, VpResult<()>)>, OnceLock<Arc<dyn Qp>>);
    impl AsyncHandler for Eager {
        fn on_event(&self, _: EventSource, event: AsyncEvent) {
            let result = self.1.get().unwrap().modify(QpChange::Idle);
            self.0.send((event, result)).unwrap();
        }
    }
    let _guard = warpline_patience::Guard::new("a handler to be refused");
    let far = End::new(|_| {});
    let (sender, events) = mpsc::sync_channel(4);
    far.rnic.set_async_handler(Some(Arc::new(Eager(sender, OnceLock::from(far.qp.clone())))));
    far.recv(1, &[]);
    let (socket, _peer) = sockets();
    let mut params = StreamParams::new(Role::Responder);
    params.crc = false;
    // A Send and a Terminate that arrived before the QP took the stream over.
    let mut received = vec![0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    received.extend([0; 4]);
    received.extend([0, 22, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
    received.extend([0; 8]);
    let llp = LlpStream {
        socket: socket.into(),
        received,
        last_message: Vec::new(),
        params,
        local: None,
    };
    far.qp.modify(QpChange::Rts(Box::new(llp))).unwrap();
    let next = || events.recv_timeout(HANG).expect("an event");
    let (event, result) = next();
    assert_eq!(event, AsyncEvent::Established);
    assert_eq!(result.unwrap_err().status, VpStatus::StillFlushing);
    assert!(matches!(next(), (AsyncEvent::TerminateReceived(_), Ok(()))));
}

/// A QP whose first stream, with the first parameters, came to an orderly end, and whose second stream, with the
/// second parameters, has a socket as its peer.
fn on_its_second_stream(
    first: impl Fn(&mut StreamParams),
    second: impl FnOnce(&mut StreamParams),
) -> (End, TcpStream) {
    let near = loop {
        let (near, socket) = against_a_socket(&first);
        near.post(1, SEND, &[]);
        near.done(1);
        near.qp.modify(QpChange::Closing).unwrap();
        // A busy machine may take longer than the time limit of this close: then try again.
        let closed = read_to_its_end(&socket);
        drop(socket);
        if closed.is_ok() && near.event() == AsyncEvent::CloseComplete {
            break near;
        }
    };
    let (a, b) = sockets();
    let mut params = StreamParams::new(Role::Initiator);
    params.kick_after = None;
    second(&mut params);
    near.rts(a, params);
    assert_eq!(near.event(), AsyncEvent::Established);
    (near, b)
}

/// The time limit of an earlier stream's close does not apply to a later stream.
#[test]
fn a_later_stream_has_its_own_bound_on_its_close() {
    let (near, socket) =
        on_its_second_stream(|p| p.close_timeout = SHORT, |p| p.close_timeout = HANG);
    near.qp.modify(QpChange::Closing).unwrap();
    pass(&near, SHORT);
    assert_eq!(near.state(), QpState::Closing);
    drop(socket_to_its_end(socket));
    assert_eq!(near.event(), AsyncEvent::CloseComplete);
}

/// The same if the QP was destroyed meanwhile, and only its stream is left.
#[test]
fn a_later_stream_lingers_within_its_own_bound() {
    let (near, socket) =
        on_its_second_stream(|p| p.close_timeout = SHORT, |p| p.close_timeout = HANG);
    near.qp.modify(QpChange::Closing).unwrap();
    near.rnic.destroy_qp(near.qp.id()).unwrap();
    pass(&near, SHORT);
    let mut socket = socket_to_its_end(socket);
    // Octets to a closed socket: the first of them causes a reset.
    for _ in 0..3 {
        socket.write_all(&[0]).unwrap();
    }
    assert!(socket.take_error().unwrap().is_none());
}

/// Peers that never close occupy a bounded number of descriptors, whatever the time limit of a close is.
#[test]
fn lingering_streams_are_bounded_in_number() {
    const MANY: usize = 300;
    const AT_ONCE: usize = 256;
    let rnic = open();
    let mut peers = Vec::new();
    for _ in 0..MANY {
        let end = End::on(rnic.clone(), CqInit { depth: 4, handler: None }, |qp| {
            (qp.send_depth, qp.recv_depth) = (2, 2);
        });
        let (a, b) = sockets();
        let mut params = StreamParams::new(Role::Initiator);
        params.close_timeout = HANG;
        end.rts(a, params);
        end.rnic.destroy_qp(end.qp.id()).unwrap();
        peers.push(socket_to_its_end(b));
    }
    // Octets to a closed socket cause a reset.
    let is_over = |mut peer: &TcpStream| (0..3).any(|_| peer.write_all(&[0]).is_err());
    let over: Vec<bool> = peers.iter().map(is_over).collect();
    let expected: Vec<bool> = (0..MANY).map(|at| at < MANY - AT_ONCE).collect();
    assert_eq!(over, expected);
}

/// A peer that responds gets no kicks because of an earlier stream whose peer did not.
#[test]
fn a_later_stream_is_not_kicked_for_an_earlier_one() {
    let (near, mut socket) = on_its_second_stream(|p| p.kick_after = Some(SHORT), |_| {});
    pass(&near, SHORT);
    near.post(1, SEND, &[]);
    let mut first = [0; 2];
    socket.read_exact(&mut first).unwrap();
    // A Send of no octets, not a Write.
    assert_eq!(first, 18u16.to_be_bytes());
}
