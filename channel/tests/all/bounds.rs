//! Memory is bounded: slow readers slow the sender down, and full queues on both sides do not end the channel.

use std::sync::atomic::{AtomicU64, Ordering};

use warpline_channel::{Error, Options};

use crate::pair::{TIGHT, message, pair};

#[test]
fn a_slow_reader_limits_the_sender() {
    let many = Options { slots: 16, large: 8, ..TIGHT };
    for (options, len) in [(TIGHT, 10), (TIGHT, 3000), (many, 3000)] {
        let (client, server) = pair(options);
        let sent = AtomicU64::new(0);
        // Messages that may be in flight and not taken.
        let most = if len > 256 { options.large } else { options.slots };
        // Credits are returned for half of the slots, two here.
        let owed = u64::from(len <= 256);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..100 {
                    client.send(message(n, len)).unwrap();
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            });
            for n in 0..100 {
                // The sender has sent all that it may, and no more.
                let most = (n + u64::from(most)).min(100);
                warpline_patience::until("the sender to be ahead", || {
                    sent.load(Ordering::SeqCst) + owed >= most
                });
                assert!(sent.load(Ordering::SeqCst) <= most, "message {n}");
                let got = server.recv().unwrap().unwrap();
                assert!(got[..] == message(n, len));
                // The next one is requested only when this one is dropped.
            }
        });
    }
}

#[test]
fn messages_that_are_kept_are_not_granted_again() {
    let (client, server) = pair(TIGHT);
    let kept: Vec<_> = (0..4)
        .map(|n| {
            client.send(message(n, 9)).unwrap();
            server.recv().unwrap().unwrap()
        })
        .collect();
    assert!(matches!(client.try_send(b"one more").unwrap_err(), Error::Full));
    drop(kept);
    client.send(b"one more").unwrap();
    assert_eq!(server.recv().unwrap().as_deref(), Some(&b"one more"[..]));
}

#[test]
fn both_ends_fill_each_other_and_go_on_when_they_read() {
    for options in [TIGHT, Options { slots: 1, large: 1, ..TIGHT }] {
        for len in [10, 3000] {
            let (client, server) = pair(options);
            let ends = [&client, &server];
            std::thread::scope(|scope| {
                for end in ends {
                    scope.spawn(move || {
                        (0..300).for_each(|n| end.send(message(n, len)).unwrap());
                        end.finish().unwrap();
                    });
                }
                // Neither end has read yet, and both are full.
                for end in ends {
                    scope.spawn(move || {
                        for n in 0..300 {
                            assert!(end.recv().unwrap().unwrap()[..] == message(n, len));
                        }
                        assert!(end.recv().unwrap().is_none());
                    });
                }
            });
        }
    }
}

/// While messages are long, an end on the same machine grants less than its slots; not if both ends wait.
#[test]
fn both_ends_may_fill_all_slots_after_long_messages() {
    const LEN: usize = 60_000;
    let options = Options { slots: 64, small: 1 << 16, ..TIGHT };
    let (client, server) = pair(options);
    for n in 0..300 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.send(message(n, LEN)).unwrap();
            assert!(to.recv().unwrap().unwrap()[..] == message(n, LEN));
        }
    }
    // Neither processes what the other sends as long as it has credits itself.
    for end in [&client, &server] {
        (0..10).for_each(|n| end.send(message(n, LEN)).unwrap());
    }
    std::thread::scope(|scope| {
        for end in [&client, &server] {
            scope.spawn(|| {
                (10..60).for_each(|n| end.send(message(n, LEN)).unwrap());
                (0..60).for_each(|n| {
                    assert!(end.recv().unwrap().unwrap()[..] == message(n, LEN));
                });
            });
        }
    });
}
