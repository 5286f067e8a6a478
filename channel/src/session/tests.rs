//! Tests of the flow control between both ends: what each may send, and what each refuses.

use itapi::RmrContext;

use super::*;

const GREETING: Greeting = Greeting { small: 64, slots: 4, large: 1, longest: 1000, grows: true };

fn session() -> Session {
    Session::new(GREETING, GREETING)
}

fn message(kind: Kind, credits: u16, read: u16, rest: &[u8]) -> Vec<u8> {
    [&Header { kind, room: 0, credits, read, arrived: 0 }.to_octets()[..], rest].concat()
}

fn large(len: u64) -> Vec<u8> {
    let range = RemoteRange { context: RmrContext(7), addr: 8, len };
    message(Kind::Large, 0, 0, &range.to_octets())
}

#[test]
fn credits_are_used_and_returned() {
    let mut ours = session();
    for _ in 0..4 {
        assert!(ours.may_send(false));
        ours.header(Kind::Small);
    }
    assert!(!ours.may_send(false));
    assert_eq!(ours.arrive(&message(Kind::Ack, 5, 0, b"")), Err(Violation::Credits));
    assert_eq!(ours.arrive(&message(Kind::Ack, 4, 0, b"")), Ok((Arrival::Counts, 0)));
    assert!(ours.may_send(false));
}

#[test]
fn a_peer_sends_no_more_than_it_was_granted() {
    let mut ours = session();
    for _ in 0..4 {
        assert_eq!(ours.arrive(&message(Kind::Small, 0, 0, b"x")), Ok((Arrival::Small, 0)));
    }
    assert_eq!(ours.arrive(&message(Kind::Small, 0, 0, b"x")), Err(Violation::Overrun));
    ours.taken();
    assert!(ours.returns_credits() && !ours.must_acknowledge());
    ours.taken();
    assert!(ours.must_acknowledge());
    assert_eq!(ours.header(Kind::Ack).credits, 2);
    assert!(ours.arrive(&message(Kind::Small, 0, 0, b"x")).is_ok());
}

#[test]
fn credits_are_returned_once_the_peer_has_used_half() {
    let mut ours = session();
    let arrive = |ours: &mut Session| {
        assert!(ours.arrive(&message(Kind::Small, 0, 0, b"x")).is_ok());
        ours.taken();
    };
    arrive(&mut ours);
    assert!(!ours.returns_credits());
    assert_eq!(ours.header(Kind::Small).credits, 0);
    arrive(&mut ours);
    assert!(ours.returns_credits());
    assert_eq!(ours.header(Kind::Small).credits, 2);
    // The application keeps two messages: what the peer has left is returned at once.
    for _ in 0..2 {
        assert!(ours.arrive(&message(Kind::Small, 0, 0, b"x")).is_ok());
    }
    arrive(&mut ours);
    assert_eq!(ours.header(Kind::Small).credits, 1);
}

/// Takes messages of `len` octets until the window has followed; returns the most that were granted at once after that.
fn granted(ours: &mut Session, len: usize) -> u16 {
    let message = message(Kind::Small, 0, 0, &vec![0; len]);
    let mut most = 0;
    for n in 0..400 {
        assert!(ours.arrive(&message).is_ok(), "no credit after {n} messages");
        ours.taken();
        if ours.must_acknowledge() {
            assert!(ours.receives() >= u32::from(ours.granted) + ours.ours.reserve());
            assert_ne!(ours.header(Kind::Ack).credits, 0);
        }
        if n > 300 {
            most = most.max(ours.granted);
        }
    }
    most
}

#[test]
fn a_window_narrows_while_messages_are_long() {
    let greeting = Greeting { small: 1000, slots: 64, large: 1, longest: 1000, grows: true };
    let mut ours = Session::new(greeting, greeting);
    assert_eq!(granted(&mut ours, 1000), 64);
    ours.narrow(16_000);
    // The average is rounded down.
    assert_eq!(granted(&mut ours, 1000), 17);
    // This end waits until it may send, and the peer has no credit left: it gets all that it was promised.
    let message = message(Kind::Small, 0, 0, &[0; 1000]);
    let mut kept = 0;
    while ours.granted > 0 {
        assert!(!ours.widen());
        assert!(ours.arrive(&message).is_ok());
        kept += 1;
    }
    assert!(ours.widen());
    assert_eq!(ours.header(Kind::Ack).credits, 64 - kept);
    (0..kept).for_each(|_| ours.taken());
    assert_eq!(granted(&mut ours, 10), 64);
    ours.narrow(2_000);
    assert_eq!(granted(&mut ours, 1000), FEW);
}

/// A session with room for long receives, to which so many large messages of 100,000 octets came.
fn after_large(count: usize, peer: Greeting) -> Session {
    let mut ours = Session::new(LARGE, peer);
    ours.narrow(1 << 20);
    for _ in 0..count {
        assert!(ours.arrive(&large(100_000)).is_ok());
        ours.was_read();
        ours.taken();
        if ours.must_acknowledge() {
            assert_eq!(ours.header(Kind::Ack).room, 0);
        }
    }
    ours
}

const LARGE: Greeting = Greeting { small: 64, slots: 64, large: 8, longest: 1 << 24, grows: true };

/// The header with which this end returns credits next, after messages of `octets`.
fn next_return(ours: &mut Session, octets: usize) -> Header {
    loop {
        assert!(ours.arrive(&message(Kind::Small, 0, 0, &vec![0; octets])).is_ok());
        ours.taken();
        if ours.must_acknowledge() {
            return ours.header(Kind::Ack);
        }
    }
}

#[test]
fn receives_grow_while_long_messages_arrive() {
    assert!(!after_large(0, LARGE).posts_long());
    let mut ours = after_large(20, LARGE);
    assert!(ours.posts_long());
    // Until those that were posted before are used, the peer sends nothing longer.
    assert_eq!(next_return(&mut ours, 64).room, 0);
    let long = message(Kind::Small, 0, 0, &[0; 100_000]);
    assert_eq!(ours.arrive(&long), Err(Violation::Length));
    let mut ours = after_large(20, LARGE);
    ours.all_are_long();
    assert_eq!(next_return(&mut ours, 100_000).room, 18);
    let longer = message(Kind::Small, 0, 0, &vec![0; LONG as usize + 1]);
    assert_eq!(ours.arrive(&longer), Err(Violation::Length));
    // Short ones use more receives in turn: no long ones there, until they come again.
    for _ in 0..20 {
        next_return(&mut ours, 10);
    }
    assert_eq!(next_return(&mut ours, 10).room, 0);
    assert!(ours.arrive(&message(Kind::Small, 0, 0, &[0; 100_000])).is_ok());
    for _ in 0..40 {
        assert!(ours.arrive(&large(100_000)).is_ok());
        ours.was_read();
        ours.taken();
        ours.header(Kind::Ack);
    }
    assert_eq!(ours.header(Kind::Small).room, 18);
}

#[test]
fn receives_stay_small_if_the_peer_or_the_limits_are_small() {
    assert!(!after_large(20, Greeting { grows: false, ..LARGE }).posts_long());
    let mut ours = after_large(20, LARGE);
    ours.stay_small();
    assert!(ours.arrive(&large(100_000)).is_ok());
    assert!(!ours.posts_long());
    assert!(may_grow(&Greeting { slots: 501, ..LARGE }));
    assert!(!may_grow(&Greeting { slots: 502, ..LARGE }));
    assert!(!may_grow(&Greeting { small: LONG, ..LARGE }));
    // The other end is on another machine.
    let mut ours = Session::new(LARGE, LARGE);
    for _ in 0..20 {
        assert!(ours.arrive(&large(100_000)).is_ok());
        ours.was_read();
    }
    assert!(!ours.posts_long());
}

#[test]
fn messages_follow_the_room_of_the_peer() {
    let mut ours = session();
    assert_eq!(ours.most(), 64);
    let mut hear = |room| {
        let header = Header { kind: Kind::Small, room, credits: 0, read: 0, arrived: 0 };
        assert!(ours.arrive(&header.to_octets()).is_ok());
        ours.most()
    };
    // Not longer than the longest.
    assert_eq!((hear(9), hear(18), hear(3), hear(0)), (512, 1000, 64, 64));
    let mut ours = Session::new(LARGE, LARGE);
    let header = Header { kind: Kind::Small, room: 30, credits: 0, read: 0, arrived: 0 };
    assert!(ours.arrive(&header.to_octets()).is_ok());
    assert_eq!(ours.most(), LONG as usize);
}

#[test]
fn a_window_is_narrower_while_each_message_is_replied_to() {
    let greeting = Greeting { small: 1000, slots: 256, large: 1, longest: 1000, grows: true };
    let mut ours = Session::new(greeting, greeting);
    ours.narrow(200_000);
    let exchange = |ours: &mut Session, burst: u16| {
        let mut most = 0;
        for n in 0..800 {
            for _ in 0..burst.min(ours.granted) {
                let credits = ours.peer.slots - ours.credits;
                let message = message(Kind::Small, credits, 0, &[0; 1000]);
                assert!(ours.arrive(&message).is_ok());
                ours.taken();
            }
            ours.header(Kind::Small);
            most = if n < 400 { 0 } else { most.max(ours.granted) };
        }
        most
    };
    // The average is rounded down.
    assert_eq!(exchange(&mut ours, 1), 53);
    assert_eq!(exchange(&mut ours, 8), 213);
    assert_eq!(exchange(&mut ours, FEW), 53);
    // Not fewer than some.
    ours.narrow(50_000);
    assert_eq!(exchange(&mut ours, 1), 24);
    ours.narrow(20_000);
    assert_eq!(exchange(&mut ours, 1), 21);
}

#[test]
fn large_messages_are_bounded_and_acknowledged_when_read() {
    let mut ours = session();
    assert_eq!(ours.arrive(&large(0)), Err(Violation::Large));
    assert_eq!(ours.arrive(&large(1001)), Err(Violation::Large));
    assert!(matches!(ours.arrive(&large(1000)), Ok((Arrival::Large(_), 0))));
    assert_eq!(ours.arrive(&large(1)), Err(Violation::Large));
    ours.was_read();
    assert!(ours.must_acknowledge());
    assert_eq!(ours.header(Kind::Ack).read, 1);
    assert!(ours.arrive(&large(1)).is_ok());

    assert!(ours.may_send(true));
    ours.header(Kind::Large);
    assert!(!ours.may_send(true) && ours.may_send(false));
    assert_eq!(ours.arrive(&message(Kind::Ack, 0, 2, b"")), Err(Violation::Read));
    assert_eq!(ours.arrive(&message(Kind::Ack, 1, 1, b"")), Ok((Arrival::Counts, 1)));
    assert_eq!(ours.unread(), 0);
}

#[test]
fn nothing_follows_an_end() {
    let mut ours = session();
    assert_eq!(ours.arrive(&message(Kind::End, 0, 0, b"")), Ok((Arrival::End, 0)));
    assert!(ours.peer_has_ended());
    assert_eq!(ours.arrive(&message(Kind::Small, 0, 0, b"x")), Err(Violation::AfterEnd));
    assert_eq!(ours.arrive(&message(Kind::End, 0, 0, b"")), Err(Violation::AfterEnd));
    // This end may still be sending.
    ours.header(Kind::Small);
    assert!(ours.arrive(&message(Kind::Ack, 1, 0, b"")).is_ok());
}

#[test]
fn malformed_messages_are_named() {
    let mut ours = session();
    assert_eq!(ours.arrive(b""), Err(Violation::Header));
    assert_eq!(ours.arrive(&[9; 8]), Err(Violation::Header));
    assert_eq!(ours.arrive(&message(Kind::Ack, 0, 0, b"")), Err(Violation::Idle));
    assert_eq!(ours.arrive(&message(Kind::Ack, 0, 0, b"x")), Err(Violation::Length));
    assert_eq!(ours.arrive(&message(Kind::Large, 0, 0, b"x")), Err(Violation::Length));
    assert_eq!(ours.arrive(&message(Kind::Small, 0, 0, &[0; 65])), Err(Violation::Length));
}

/// What confirms arrivals, by a peer that breaks its rules.
#[test]
fn a_peer_confirms_no_more_than_was_sent_and_only_if_agreed() {
    let confirms =
        |arrived| Header { kind: Kind::Ack, room: 0, credits: 0, read: 0, arrived }.to_octets();
    let mut plain = session();
    plain.header(Kind::Small);
    assert_eq!(plain.arrive(&confirms(1)), Err(Violation::Arrived));
    let mut ours = session().confirming();
    ours.header(Kind::Small);
    assert_eq!(ours.arrive(&confirms(2)), Err(Violation::Arrived));
    assert_eq!(ours.arrive(&confirms(0)), Err(Violation::Idle));
    assert_eq!(ours.arrive(&confirms(1)), Ok((Arrival::Counts, 0)));
    assert_eq!((ours.news(), ours.news()), (1, 0));
    assert_eq!(ours.arrive(&confirms(1)), Err(Violation::Arrived));
}

#[test]
fn a_peer_is_done_only_behind_both_ends() {
    let done = message(Kind::Done, 0, 0, b"");
    assert_eq!(session().arrive(&done), Err(Violation::Header));
    let mut ours = session().confirming();
    assert_eq!(ours.arrive(&done), Err(Violation::AfterEnd));
    ours.header(Kind::End);
    assert_eq!(ours.arrive(&done), Err(Violation::AfterEnd));
    ours.arrive(&message(Kind::End, 0, 0, b"")).unwrap();
    assert!(!ours.is_done());
    assert_eq!(ours.arrive(&message(Kind::Done, 0, 0, b"x")), Err(Violation::Length));
    assert_eq!(ours.arrive(&done), Ok((Arrival::Counts, 0)));
    assert!(ours.is_done());
}
