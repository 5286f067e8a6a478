//! Two processes with an address each: every operation, and one that is killed.

use std::net::SocketAddr;

use vp_api::*;

use crate::alone::{alone, other, part};
use crate::end::{End, pattern};

const LEN: usize = 1 << 20;

/// The address of the process that a test starts; the test's own is the one that the kernel chooses, 127.0.0.1.
const THERE: &str = "127.0.0.2:0";

/// The other process of the test below: offers its region, echoes one message, and says what its region holds.
#[test]
fn echoes() {
    if part().as_deref() != Some("echo") {
        return;
    }
    let end = End::new(2 * LEN);
    end.recv(1, end.sge(LEN, LEN));
    println!("listening {}", end.listen(THERE));
    end.accept().unwrap();
    let wc = end.done();
    assert_eq!((wc.wr_id, wc.octets as usize), (1, LEN));
    end.send(2, end.sge(LEN, LEN));
    assert_eq!(end.done().wr_id, 2);
    assert_eq!(end.event(), NativeEvent::Disconnected { qp: end.qp.id() });
    assert_eq!(end.read(0, 5000), pattern(5000, 7));
}

#[test]
fn two_processes_do_all_operations() {
    alone("processes::two_processes_do_all_operations", || {
        let mut peer = other("processes::echoes", "echo");
        let there: SocketAddr = peer.says("listening").parse().unwrap();
        let end = End::new(2 * LEN);
        let remote = end.connect(there);
        // A Write of several packets, and the Read of it.
        end.region.write_at(0, &pattern(5000, 7)).unwrap();
        end.post(1, SendOp::Write { remote }, end.sge(0, 5000));
        end.post(2, SendOp::Read { remote, invalidate_sink: false }, end.sge(LEN, 5000));
        assert_eq!([end.done().wr_id, end.done().wr_id], [1, 2]);
        assert_eq!(end.read(LEN, 5000), pattern(5000, 7));
        // An atomic returns what was there.
        let word = Remote { to: remote.to + 8192, ..remote };
        for (n, before) in [(3, 0), (4, 5)] {
            let op = SendOp::Atomic { remote: word, op: AtomicOp::FetchAdd { add: 5, mask: 0 } };
            end.post(n, op, end.sge(16, 8));
            assert_eq!(end.done().wr_id, n);
            assert_eq!(end.read(16, 8), u64::to_ne_bytes(before));
        }
        // A long message, there and back.
        end.region.write_at(0, &pattern(LEN, 9)).unwrap();
        end.recv(5, end.sge(LEN, LEN));
        end.send(6, end.sge(0, LEN));
        let mut ids = [end.done().wr_id, end.done().wr_id];
        ids.sort_unstable();
        assert_eq!(ids, [5, 6]);
        assert_eq!(end.read(LEN, LEN), pattern(LEN, 9));
        end.cm.disconnect(end.qp.id()).unwrap();
        assert_eq!(end.event(), NativeEvent::Disconnected { qp: end.qp.id() });
        peer.ends();
    });
}

/// The other process of the tests below: connects and does nothing.
#[test]
fn idles() {
    if part().as_deref() != Some("idle") {
        return;
    }
    let end = End::new(4096);
    println!("listening {}", end.listen(THERE));
    end.accept().unwrap();
    println!("accepted");
    std::thread::park();
}

/// Whether requests are under way or only receives wait.
fn killed(end: &End, busy: bool) {
    let mut peer = other("processes::idles", "idle");
    let there: SocketAddr = peer.says("listening").parse().unwrap();
    let remote = end.connect(there);
    peer.says("accepted");
    end.recv(1, end.sge(0, 64));
    peer.kill();
    if busy {
        end.post(2, SendOp::Write { remote }, end.sge(0, 64));
        let wc = end.completion();
        assert_eq!((wc.wr_id, wc.status), (2, WcStatus::LocalCatastrophic));
    }
    let wc = end.completion();
    assert_eq!((wc.wr_id, wc.status), (1, WcStatus::Flushed));
    assert_eq!(end.event(), NativeEvent::Disconnected { qp: end.qp.id() });
    assert_eq!(end.events(), [AsyncEvent::ConnectionLost]);
}

#[test]
fn a_killed_peer_ends_what_is_posted() {
    alone("processes::a_killed_peer_ends_what_is_posted", || killed(&End::new(4096), true));
}

/// It is found by the probe of an idle connection.
#[test]
fn a_killed_peer_ends_receives_that_wait() {
    alone("processes::a_killed_peer_ends_receives_that_wait", || killed(&End::new(4096), false));
}

/// Late packets of an earlier connection of a queue pair find nothing: each has a number of its own.
#[test]
fn a_queue_pair_is_connected_again_and_again() {
    alone("processes::a_queue_pair_is_connected_again_and_again", || {
        let (near, far) = (End::new(4096), End::new(4096));
        let there = far.listen(THERE);
        for round in 0..50 {
            far.recv(1, far.sge(0, 64));
            std::thread::scope(|scope| {
                scope.spawn(|| far.accept().unwrap());
                near.connect(there);
            });
            near.region.write_at(0, &pattern(64, round)).unwrap();
            near.send(2, near.sge(0, 64));
            near.done();
            far.done();
            assert_eq!(far.read(0, 64), pattern(64, round));
            // Unacknowledged work is under way when it ends.
            (0..8).for_each(|n| {
                near.post(n, SendOp::Write { remote: far.remote(0) }, near.sge(0, 64))
            });
            near.qp.modify(QpChange::Error).unwrap();
            for end in [&near, &far] {
                assert_eq!(end.event(), NativeEvent::Disconnected { qp: end.qp.id() });
                end.qp.modify(QpChange::Idle).unwrap();
                while end.cq.poll(&mut [WorkCompletion::BLANK]).unwrap() != 0 {}
            }
        }
    });
}

/// Several threads post to one queue pair: each request completes once.
#[test]
fn several_threads_post_to_one_queue_pair() {
    const THREADS: u64 = 4;
    const EACH: u64 = 500;
    alone("processes::several_threads_post_to_one_queue_pair", || {
        let (near, far) = (End::new(4096), End::new(4096));
        let there = far.listen(THERE);
        std::thread::scope(|scope| {
            scope.spawn(|| far.accept().unwrap());
            near.connect(there);
        });
        let op =
            || SendOp::Atomic { remote: far.remote(0), op: AtomicOp::FetchAdd { add: 1, mask: 0 } };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let near = &near;
                scope.spawn(move || {
                    for n in 0..EACH {
                        let (sge, flags) = (near.sge(64, 8), SendFlags::SIGNALED);
                        let (wr_id, sgl) = (thread * EACH + n, [sge]);
                        warpline_patience::until("a free slot", || {
                            let wr = SendWr { wr_id, op: op(), data: Data::Sgl(&sgl), flags };
                            near.qp.post_send(&[wr]).is_ok()
                        });
                    }
                });
            }
            let mut ids: Vec<u64> = (0..THREADS * EACH).map(|_| near.done().wr_id).collect();
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..THREADS * EACH));
        });
        assert_eq!(far.read(0, 8), u64::to_ne_bytes(THREADS * EACH));
    });
}
