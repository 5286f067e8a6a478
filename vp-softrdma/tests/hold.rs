//! Sends that arrive before their receive is posted, over real sockets: none is lost, all are in order, and the
//! messages behind them are served.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use vp_api::*;

const LONG: Duration = Duration::from_secs(600);

fn hold(init: &mut QpInit) {
    init.unready = Unready::Hold { octets: 256 << 10, time: LONG };
}

fn setup() -> Setup {
    Setup { init: hold, ..Setup::default() }
}

/// A Send of `octets` is followed by a word of the sender's: the receiver has both asked for something
/// and got it before it has a receive.
#[test]
fn a_read_behind_a_send_does_not_wait_for_its_receive() {
    for (crc, len) in [(true, 0), (true, 100), (true, 60_000), (false, 100), (false, 200_000)] {
        let (near, far) = pair(&Setup { crc, ..setup() });
        let (source, sink) = (near.region(Buffer::pattern(len, 3)), far.region(Buffer::new(len)));
        let word = far.region(Buffer::new(8));
        near.post(1, SEND, &[source.all()]);
        near.done(1);
        far.post(
            2,
            SendOp::Read { remote: source.remote(0), invalidate_sink: false },
            &[word.sge(0, len.min(8))],
        );
        far.done(2);
        far.recv(3, &[sink.all()]);
        assert_eq!(far.done(3).octets as usize, len);
        assert_eq!(sink.buffer.read(0, len), pattern(len, 3), "{crc}");
    }
}

/// Each end sends more than the other buffers.
#[test]
fn more_octets_than_are_kept_arrive() {
    const LEN: usize = 1 << 20;
    const COUNT: u64 = 24;
    for crc in [true, false] {
        let (near, far) = pair(&Setup { crc, ..setup() });
        let source = near.region(Buffer::pattern(LEN, 5));
        (0..COUNT).for_each(|n| near.post(n, SEND, &[source.all()]));
        let sink = far.region(Buffer::new(LEN));
        for n in 0..COUNT {
            sink.buffer.write(0, &[0; 64]);
            far.recv(n, &[sink.all()]);
            assert_eq!(far.done(n).octets as usize, LEN);
            assert!(sink.buffer.read(0, LEN) == pattern(LEN, 5), "message {n}, CRC {crc}");
        }
        for n in 0..COUNT {
            near.done(n);
        }
    }
}

/// Posts `count` receives from four threads at once, each with 8 octets of its own; the id of the work request
/// identifies them.
fn post_from_all(post: impl Fn(&[RecvWr<'_>]) -> Result<(), PostFailure> + Sync, sink: &Region) {
    let (next, count) = (AtomicU64::new(0), sink.buffer.len() as u64 / 8);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let wr_id = next.fetch_add(1, Ordering::Relaxed);
                    if wr_id >= count {
                        return;
                    }
                    let sgl = [sink.sge(8 * wr_id as usize, 8)];
                    let posted = || post(&[RecvWr { wr_id, sgl: &sgl }]).is_ok();
                    warpline_patience::until("room for a receive", posted);
                }
            });
        }
    });
}

fn send_numbers(end: &End, count: u64) {
    let words = end.region(Buffer::new(8 * count as usize));
    for n in 0..count {
        words.buffer.write(8 * n as usize, &n.to_be_bytes());
        let sgl = [words.sge(8 * n as usize, 8)];
        let (data, flags) = (Data::Sgl(&sgl), SendFlags::SIGNALED);
        let wr = [SendWr { wr_id: n, op: SEND, data, flags }];
        while end.qp.post_send(&wr).is_err() {
            end.complete();
        }
    }
}

fn number(sink: &Region, completion: &WorkCompletion) -> u64 {
    assert_eq!((completion.status, completion.octets), (WcStatus::Success, 8));
    let octets = sink.buffer.read(8 * completion.wr_id as usize, 8);
    u64::from_be_bytes(octets.try_into().expect("eight octets"))
}

#[test]
fn receives_of_many_threads_take_the_messages_in_order() {
    const COUNT: u64 = 4000;
    let (near, far) = pair(&setup());
    let sink = far.region(Buffer::new(8 * COUNT as usize));
    std::thread::scope(|scope| {
        scope.spawn(|| send_numbers(&near, COUNT));
        scope.spawn(|| post_from_all(|wrs| far.qp.post_recv(wrs), &sink));
        for n in 0..COUNT {
            assert_eq!(number(&sink, &far.complete()), n);
        }
    });
}

/// Several QPs wait on one SRQ, where threads post.
#[test]
fn messages_wait_for_receives_of_an_srq() {
    const COUNT: u64 = 1000;
    const QPS: usize = 4;
    let rnic = open();
    let cq = CqInit { depth: 1024, handler: None };
    let pd = rnic.alloc_pd().unwrap();
    let srq = rnic.create_srq(&SrqInit { pd, depth: 64, max_sge: 1, limit: 0 }).unwrap();
    let shared = rnic.create_cq(&cq).unwrap();
    let ends: Vec<(End, End)> = (0..QPS)
        .map(|_| {
            let far = End::on(rnic.clone(), cq.clone(), |init| {
                hold(init);
                (init.srq, init.recv_cq) = (Some(srq.id()), shared.id());
            });
            let near = End::new(|_| {});
            connect((&near, &far), &Setup::default());
            assert_eq!(near.event(), AsyncEvent::Established);
            (near, far)
        })
        .collect();
    let range = Buffer::new(8 * COUNT as usize * QPS);
    let init = MrInit {
        pd,
        range: range.range(),
        addressing: Addressing::Absolute,
        access: Access::LOCAL,
        key: 0x5a,
        pin: false,
    };
    let sink = Region { stag: rnic.register_mr(&init).unwrap(), buffer: range };
    let mut next = [0; QPS];
    std::thread::scope(|scope| {
        for (near, _) in &ends {
            scope.spawn(|| send_numbers(near, COUNT));
        }
        scope.spawn(|| post_from_all(|wrs| srq.post_recv(wrs), &sink));
        for _ in 0..COUNT * QPS as u64 {
            let completion = common::next(&*shared);
            let at = ends.iter().position(|(_, far)| far.qp.id() == completion.qp).unwrap();
            assert_eq!(number(&sink, &completion), next[at]);
            next[at] += 1;
        }
    });
    assert_eq!(next, [COUNT; QPS]);
}

/// A receive that only a destroyed QP has waited for is not lost.
#[test]
fn a_destroyed_qp_takes_no_receive_of_an_srq() {
    let rnic = open();
    let cq = CqInit { depth: 16, handler: None };
    let pd = rnic.alloc_pd().unwrap();
    let srq = rnic.create_srq(&SrqInit { pd, depth: 4, max_sge: 1, limit: 0 }).unwrap();
    let mut waits = Vec::new();
    for _ in 0..3 {
        let far = End::on(rnic.clone(), cq.clone(), |init| {
            hold(init);
            init.srq = Some(srq.id());
        });
        let near = End::new(|_| {});
        connect((&near, &far), &Setup::default());
        near.post(1, SEND, &[]);
        near.done(1);
        // It follows the Send, so the Send has arrived.
        let word = near.region(Buffer::new(8));
        let (remote, sink) = (word.remote(0), far.region(Buffer::new(8)));
        far.post(2, SendOp::Read { remote, invalidate_sink: false }, &[sink.all()]);
        far.done(2);
        waits.push((near, far, word));
    }
    let (_, gone, _) = &waits[0];
    rnic.destroy_qp(gone.qp.id()).unwrap();
    waits[1].1.qp.modify(QpChange::Error).unwrap();
    srq.post_recv(&[RecvWr { wr_id: 5, sgl: &[] }; 2]).unwrap();
    assert_eq!(waits[2].1.done(5).qp, waits[2].1.qp.id());
    assert_eq!(srq.query().unwrap().posted, 1);
}

#[test]
fn a_message_without_a_receive_ends_the_stream_and_affects_no_later_one() {
    let brief = |init: &mut QpInit| {
        init.unready = Unready::Hold { octets: 1 << 10, time: Duration::from_millis(20) };
    };
    let (near, far) = pair(&Setup { init: brief, ..Setup::default() });
    near.post_flags(1, SEND, &[], SendFlags::empty());
    for (end, sent) in [(&far, true), (&near, false)] {
        let (AsyncEvent::TerminateSent(why) | AsyncEvent::TerminateReceived(why)) = end.event()
        else {
            panic!("a Terminate")
        };
        assert_eq!((why.sent, why.layer, why.etype, why.code), (sent, 1, 2, 2));
        warpline_patience::until("Idle again", || end.qp.modify(QpChange::Idle).is_ok());
    }
    far.recv(7, &[]);
    connect((&near, &far), &Setup::default());
    let word = near.region(Buffer::pattern(8, 1));
    near.post(2, SendOp::Immediate { data: 0x77, solicited: false }, &[]);
    near.done(2);
    assert_eq!(far.done(7).immediate, Some(0x77));
    drop(word);
}

#[test]
fn waiting_messages_are_delivered_before_the_peers_close_and_lost_by_ours() {
    let (near, far) = pair(&setup());
    near.post(1, SEND, &[]);
    near.done(1);
    near.qp.modify(QpChange::Closing).unwrap();
    let sent = || far.qp.query().unwrap().counters.fpdus_received;
    warpline_patience::until("the message", || {
        far.cq.poll(&mut []).unwrap();
        sent() >= 2
    });
    far.recv(2, &[]);
    far.done(2);
    for end in [&near, &far] {
        assert_eq!(end.event(), AsyncEvent::CloseComplete);
    }
    let (near, far) = pair(&setup());
    near.post(1, SEND, &[]);
    near.done(1);
    let word = near.region(Buffer::new(8));
    let (remote, sink) = (word.remote(0), far.region(Buffer::new(8)));
    far.post(2, SendOp::Read { remote, invalidate_sink: false }, &[sink.all()]);
    far.done(2);
    far.qp.modify(QpChange::Drain).unwrap();
    assert_eq!(far.event(), AsyncEvent::BadClose);
}

#[test]
fn holds_have_limits() {
    let rnic = open();
    let pd = rnic.alloc_pd().unwrap();
    let cq = rnic.create_cq(&CqInit { depth: 4, handler: None }).unwrap();
    let create = |octets, time| {
        let unready = Unready::Hold { octets, time };
        rnic.create_qp(&QpInit { unready, ..QpInit::new(pd, cq.id(), cq.id()) })
    };
    let second = Duration::from_secs(1);
    for (octets, time, named) in [
        (0, second, "octets of a hold: 0 requested; 1 to 16777216"),
        (u32::MAX, second, "octets of a hold"),
        ((16 << 20) + 1, second, "octets of a hold"),
        (1, Duration::ZERO, "time of a hold"),
        (1, Duration::from_secs(3601), "at most 3600s"),
        (1, Duration::MAX, "time of a hold"),
    ] {
        let why = create(octets, time).err().unwrap();
        assert_eq!(why.status, VpStatus::InvalidModifier);
        assert!(why.detail.contains(named), "{}", why.detail);
    }
    for (octets, time) in [(1, Duration::from_nanos(1)), (16 << 20, Duration::from_secs(3600))] {
        let qp: Arc<dyn Qp> = create(octets, time).unwrap();
        rnic.destroy_qp(qp.id()).unwrap();
    }
}
