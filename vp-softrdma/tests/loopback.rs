//! Every operation between two QPs over a real TCP connection, with and without CRC and markers.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use common::*;
use vp_api::*;

fn every_setup() -> Vec<Setup> {
    let mut setups = Vec::new();
    for crc in [true, false] {
        for markers in [true, false] {
            for fpdu in [FpduSize::Emss, FpduSize::Octets(1400), FpduSize::Octets(64_000)] {
                setups.push(Setup { crc, markers, fpdu, ..Setup::default() });
            }
        }
    }
    setups
}

#[test]
fn sends_arrive_in_order() {
    for setup in every_setup() {
        let (near, far) = pair(&setup);
        let source = near.region(Buffer::pattern(100_000, 1));
        let sink = far.region(Buffer::new(400_000));
        let lens = [0usize, 1, 7, 64, 1400, 65_536, 100_000];
        let mut at = 0;
        for (i, len) in lens.iter().enumerate() {
            far.recv(i as u64, &[sink.sge(at, *len)]);
            at += len;
        }
        for (i, len) in lens.iter().enumerate() {
            near.post(100 + i as u64, SEND, &[source.sge(0, *len)]);
        }
        let mut at = 0;
        for (i, len) in lens.iter().enumerate() {
            let completion = far.done(i as u64);
            assert_eq!((completion.opcode, completion.octets), (WcOpcode::Recv, *len as u32));
            assert!(sink.buffer.read(at, *len) == source.buffer.read(0, *len));
            at += len;
            near.done(100 + i as u64);
        }
    }
}

// Posts are deferred for one another, but do not wait for a poll that never comes.
#[test]
fn posts_are_served_without_a_poll() {
    let (near, far) = pair(&Setup::default());
    let source = near.region(Buffer::pattern(64, 1));
    let sink = far.region(Buffer::new(64));
    for flags in [SendFlags::SIGNALED, SendFlags::empty(), SendFlags::COALESCE] {
        for i in 0..8 {
            far.recv(i, &[sink.all()]);
        }
        for i in 0..8 {
            near.post_flags(i, SEND, &[source.all()], flags);
        }
        for i in 0..8 {
            far.done(i);
        }
    }
}

#[test]
fn write_then_send_shows_the_write() {
    for setup in every_setup() {
        let (near, far) = pair(&setup);
        let source = near.region(Buffer::pattern(1 << 20, 2));
        let sink = far.region(Buffer::new(1 << 20));
        far.recv(1, &[]);
        near.post(2, SendOp::Write { remote: sink.remote(0) }, &[source.all()]);
        near.post(3, SEND, &[]);
        far.done(1);
        assert!(sink.buffer.read(0, 1 << 20) == source.buffer.read(0, 1 << 20));
        near.done(2);
        near.done(3);
    }
}

// [RDMAP-17] [RDMAP-09]
#[test]
fn reads_complete_in_order() {
    for setup in every_setup() {
        let (near, far) = pair(&setup);
        let source = far.region(Buffer::pattern(300_000, 3));
        let sink = near.region(Buffer::new(300_000));
        let lens = [8usize, 0, 100_000, 1, 65_536, 4096];
        let mut at = 0;
        for (i, len) in lens.iter().enumerate() {
            let op = SendOp::Read { remote: source.remote(at), invalidate_sink: false };
            near.post(i as u64, op, &[sink.sge(at, *len)]);
            at += len;
        }
        // No call at the far end: its engine responds.
        for (i, len) in lens.iter().enumerate() {
            let completion = near.done(i as u64);
            assert_eq!((completion.opcode, completion.octets), (WcOpcode::Read, *len as u32));
        }
        assert!(sink.buffer.read(0, at) == source.buffer.read(0, at));
    }
}

// [VERBS-15]: reads beyond ORD wait until earlier ones complete.
#[test]
fn reads_beyond_ord_wait() {
    let setup = Setup { init: |init| (init.ord, init.ird) = (2, 2), ..Setup::default() };
    let (near, far) = pair(&setup);
    let source = far.region(Buffer::pattern(64 * 1000, 4));
    let sink = near.region(Buffer::new(64 * 1000));
    for i in 0..64 {
        let op = SendOp::Read { remote: source.remote(i * 1000), invalidate_sink: false };
        near.post(i as u64, op, &[sink.sge(i * 1000, 1000)]);
    }
    for i in 0..64 {
        near.done(i);
    }
    assert!(sink.buffer.read(0, 64_000) == source.buffer.read(0, 64_000));
    assert!(near.qp.query().unwrap().counters.ord_stalls > 0);
}

// [VERBS-19]: an RDMA Read or atomic without ORD fails by itself.
#[test]
fn read_without_ord_fails() {
    let (near, far) = pair(&Setup { init: |init| init.ord = 0, ..Setup::default() });
    let sink = near.region(Buffer::new(8));
    let op = SendOp::Read { remote: Remote { stag: sink.stag, to: 0 }, invalidate_sink: false };
    near.post(1, op, &[sink.all()]);
    assert_eq!(near.complete().status, WcStatus::ZeroReadResources);
    assert!(matches!(near.event(), AsyncEvent::TerminateSent(_)));
    assert!(matches!(far.event(), AsyncEvent::TerminateReceived(_)));
}

// [EXT-09] [EXT-12]
#[test]
fn atomics_return_the_value_before() {
    let (near, far) = pair(&Setup::default());
    let target = far.region(Buffer::new(16));
    let result = near.region(Buffer::new(8));
    let value = |buffer: &Buffer, at| u64::from_ne_bytes(buffer.read(at, 8).try_into().unwrap());
    target.buffer.write(8, &40u64.to_ne_bytes());
    let remote = target.remote(8);
    let add = |add| SendOp::Atomic { remote, op: AtomicOp::FetchAdd { add, mask: 0 } };
    near.post(1, add(2), &[result.all()]);
    assert_eq!(near.done(1).opcode, WcOpcode::Atomic);
    assert_eq!((value(&result.buffer, 0), value(&target.buffer, 8)), (40, 42));
    let swap = |compare| SendOp::Atomic {
        remote,
        op: AtomicOp::CmpSwap { compare, compare_mask: !0, swap: 7, swap_mask: !0 },
    };
    near.post(2, swap(41), &[result.all()]);
    near.done(2);
    assert_eq!((value(&result.buffer, 0), value(&target.buffer, 8)), (42, 42));
    near.post(3, swap(42), &[result.all()]);
    near.done(3);
    assert_eq!((value(&result.buffer, 0), value(&target.buffer, 8)), (42, 7));
}

// [EXT-12]: atomics of several QPs on one word are never lost.
#[test]
fn atomics_of_several_peers_add_up() {
    let rnic = open();
    let target_end = End::on(rnic.clone(), CqInit { depth: 64, handler: None }, |_| {});
    let target = target_end.region(Buffer::new(8));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let far = {
                let mut init = QpInit::new(target_end.pd, target_end.cq.id(), target_end.cq.id());
                init.send_depth = 4;
                target_end.rnic.create_qp(&init).unwrap()
            };
            let remote = target.remote(0);
            scope.spawn(move || {
                let near = End::new(|_| {});
                let (a, b) = sockets();
                let llp = |socket: std::net::TcpStream, role| {
                    let mut params = StreamParams::new(role);
                    params.rtr = Some(Rtr::Write);
                    let (received, last_message) = (Vec::new(), Vec::new());
                    LlpStream { socket: socket.into(), received, last_message, params, local: None }
                };
                far.modify(QpChange::Rts(Box::new(llp(b, Role::Responder)))).unwrap();
                near.qp.modify(QpChange::Rts(Box::new(llp(a, Role::Initiator)))).unwrap();
                let result = near.region(Buffer::new(8));
                for i in 0..500 {
                    let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
                    near.post(i, SendOp::Atomic { remote, op }, &[result.all()]);
                    near.done(i);
                }
            });
        }
    });
    assert_eq!(target.buffer.read(0, 8), 1500u64.to_ne_bytes());
}

// [EXT-01]
#[test]
fn immediate_data_takes_a_receive() {
    let (near, far) = pair(&Setup::default());
    let source = near.region(Buffer::pattern(5000, 5));
    let sink = far.region(Buffer::new(5000));
    far.recv(1, &[]);
    far.recv(2, &[]);
    near.post(3, SendOp::Immediate { data: 0x1122_3344_5566_7788, solicited: false }, &[]);
    let write = SendOp::WriteImmediate { remote: sink.remote(0), data: 9, solicited: true };
    near.post(4, write, &[source.all()]);
    let alone = far.done(1);
    assert_eq!(alone.opcode, WcOpcode::RecvImmediate);
    assert_eq!((alone.immediate, alone.solicited), (Some(0x1122_3344_5566_7788), false));
    let behind = far.done(2);
    assert_eq!((behind.immediate, behind.solicited), (Some(9), true));
    assert_eq!((alone.octets, behind.octets), (0, 5000));
    assert!(sink.buffer.read(0, 5000) == source.buffer.read(0, 5000));
    assert_eq!(near.done(3).opcode, WcOpcode::Immediate);
    assert_eq!(near.done(4).opcode, WcOpcode::WriteImmediate);
}

// [RDMAP-13] [VERBS-27]
#[test]
fn send_with_invalidate_revokes_before_it_completes() {
    let (near, far) = pair(&Setup::default());
    let region = far.region(Buffer::new(64));
    let source = near.region(Buffer::pattern(64, 6));
    far.recv(1, &[]);
    let op = SendOp::Send { solicited: true, invalidate: Some(region.stag) };
    near.post(2, op, &[]);
    let completion = far.done(1);
    assert_eq!((completion.invalidated, completion.solicited), (Some(region.stag), true));
    assert!(!far.rnic.query_mr(region.stag).unwrap().valid);
    near.done(2);
    near.post(3, SendOp::Write { remote: region.remote(0) }, &[source.all()]);
    let terminate = match near.event() {
        AsyncEvent::TerminateReceived(terminate) => terminate,
        other => panic!("{other:?}"),
    };
    assert_eq!((terminate.layer, terminate.etype, terminate.code), (1, 1, 0));
    assert_eq!(region.buffer.read(0, 64), [0; 64]);
}

// [VERBS-17] [VERBS-29]: a fenced Write does not overtake the Read before it.
#[test]
fn fences_delay_requests() {
    let (near, far) = pair(&Setup::default());
    let remote = far.region(Buffer::pattern(100_000, 7));
    let before = remote.buffer.read(0, 100_000);
    let sink = near.region(Buffer::new(100_000));
    let source = near.region(Buffer::pattern(100_000, 8));
    for _ in 0..20 {
        remote.buffer.write(0, &before);
        let read = SendOp::Read { remote: remote.remote(0), invalidate_sink: false };
        near.post(1, read, &[sink.all()]);
        let write = SendOp::Write { remote: remote.remote(0) };
        let flags = SendFlags::SIGNALED | SendFlags::READ_FENCE;
        near.post_flags(2, write, &[source.all()], flags);
        near.done(1);
        near.done(2);
        assert!(sink.buffer.read(0, 100_000) == before);
        // A completed Read proves that the Write before it is there. [VERBS-29]
        let read = SendOp::Read { remote: remote.remote(0), invalidate_sink: false };
        near.post(3, read, &[sink.all()]);
        near.done(3);
        assert!(sink.buffer.read(0, 100_000) == source.buffer.read(0, 100_000));
    }
}

#[test]
fn read_may_invalidate_its_sink() {
    let (near, far) = pair(&Setup::default());
    let source = far.region(Buffer::pattern(1000, 9));
    let sink = near.region(Buffer::new(1000));
    let op = SendOp::Read { remote: source.remote(0), invalidate_sink: true };
    near.post(1, op, &[sink.all()]);
    near.done(1);
    assert!(sink.buffer.read(0, 1000) == source.buffer.read(0, 1000));
    assert!(!near.rnic.query_mr(sink.stag).unwrap().valid);
}

// [VERBS-18]
#[test]
fn unsignalled_successes_have_no_completion() {
    let (near, far) = pair(&Setup::default());
    let source = near.region(Buffer::pattern(10, 10));
    for i in 0..200u64 {
        far.recv(i, &[]);
        let flags = if i % 50 == 49 { SendFlags::SIGNALED } else { SendFlags::empty() };
        near.post_flags(i, SEND, &[source.sge(0, 0)], flags);
        far.done(i);
        if i % 50 == 49 {
            near.done(i);
        }
    }
    assert_eq!(near.cq.poll(&mut [WorkCompletion::BLANK]).unwrap(), 0);
}

// [VERBS-19]: scatter and gather; elements of no octets are not checked.
#[test]
fn lists_gather_and_scatter() {
    for crc in [true, false] {
        let (near, far) = pair(&Setup { crc, ..Setup::default() });
        let source = near.region(Buffer::pattern(60_000, 11));
        let sink = far.region(Buffer::new(60_000));
        let nothing = Sge { stag: Stag(0xdead_beef), len: 0, to: 1 };
        far.recv(1, &[sink.sge(0, 1), nothing, sink.sge(1, 30_000), sink.sge(30_001, 20_000)]);
        let list =
            [source.sge(0, 20_000), nothing, source.sge(20_000, 3), source.sge(20_003, 29_998)];
        near.post(2, SEND, &list);
        assert_eq!(far.done(1).octets, 50_001);
        near.done(2);
        assert!(sink.buffer.read(0, 50_001) == source.buffer.read(0, 50_001));
        near.post(3, SendOp::Write { remote: sink.remote(100) }, &list);
        near.done(3);
        far.recv(4, &[]);
        near.post(5, SEND, &[]);
        far.done(4);
        assert!(sink.buffer.read(100, 50_001) == source.buffer.read(0, 50_001));
    }
}

// More segments than one system call takes.
#[test]
fn long_lists_gather_and_scatter_in_one_post() {
    const ELEMENTS: usize = 16;
    const PIECE: usize = 1000;
    const MESSAGES: usize = 24;
    let init = |init: &mut QpInit| (init.max_send_sge, init.max_recv_sge) = (16, 16);
    for crc in [true, false] {
        let (near, far) = pair(&Setup { crc, init, ..Setup::default() });
        let len = ELEMENTS * PIECE;
        let source = near.region(Buffer::pattern(MESSAGES * len, 15));
        let sink = far.region(Buffer::new(MESSAGES * len));
        let lists = |region: &Region| -> Vec<Vec<Sge>> {
            let list = |n| (0..ELEMENTS).map(|i| region.sge(n * len + i * PIECE, PIECE)).collect();
            (0..MESSAGES).map(list).collect()
        };
        let (from, to) = (lists(&source), lists(&sink));
        (0..).zip(&to).for_each(|(wr_id, sgl)| far.recv(wr_id, sgl));
        let (op, flags) = (|| SEND, SendFlags::SIGNALED);
        let wr = |(wr_id, sgl)| SendWr { wr_id, op: op(), data: Data::Sgl(sgl), flags };
        let wrs: Vec<_> = (0..).zip(from.iter().map(|list| &list[..])).map(wr).collect();
        near.qp.post_send(&wrs).unwrap();
        (0..MESSAGES as u64).for_each(|wr_id| _ = (far.done(wr_id), near.done(wr_id)));
        let all = MESSAGES * len;
        assert!(sink.buffer.read(0, all) == source.buffer.read(0, all), "crc: {crc}");
    }
}

#[test]
fn inline_data_is_free_after_the_post() {
    let setup = Setup { init: |init| init.max_inline = 512, ..Setup::default() };
    let (near, far) = pair(&setup);
    let sink = far.region(Buffer::new(1024));
    far.recv(1, &[sink.sge(0, 512)]);
    let mut octets = pattern(512, 12);
    let send = |wr_id, op, data| {
        near.qp.post_send(&[SendWr { wr_id, op, data, flags: SendFlags::SIGNALED }]).unwrap();
    };
    send(2, SEND, Data::Inline(&octets));
    send(3, SendOp::Write { remote: sink.remote(512) }, Data::Inline(&octets));
    octets.fill(0);
    far.done(1);
    near.done(2);
    near.done(3);
    far.recv(4, &[]);
    near.post(5, SEND, &[]);
    far.done(4);
    assert_eq!(sink.buffer.read(0, 512), pattern(512, 12));
    assert_eq!(sink.buffer.read(512, 512), pattern(512, 12));
}

#[test]
fn large_messages_pass_through_small_buffers() {
    for crc in [true, false] {
        let setup = Setup { crc, send_buffer: Some(8 << 10), ..Setup::default() };
        let (near, far) = pair(&setup);
        let len = 1 << 20;
        let source = near.region(Buffer::pattern(len, 13));
        let sink = far.region(Buffer::new(len));
        far.recv(1, &[sink.all()]);
        near.post(2, SEND, &[source.all()]);
        assert_eq!(far.done(1).octets as usize, len);
        near.done(2);
        assert!(sink.buffer.read(0, len) == source.buffer.read(0, len));
        let back = near.region(Buffer::new(len));
        let op = SendOp::Read { remote: sink.remote(0), invalidate_sink: false };
        near.post(3, op, &[back.all()]);
        near.done(3);
        assert!(back.buffer.read(0, len) == source.buffer.read(0, len));
    }
}

#[test]
fn very_large_messages() {
    for (crc, fpdu) in [(true, FpduSize::Emss), (false, FpduSize::Octets(64_000))] {
        let (near, far) = pair(&Setup { crc, fpdu, ..Setup::default() });
        let len = (32 << 20) + 5;
        let source = near.region(Buffer::pattern(len, 14));
        let sink = far.region(Buffer::new(len));
        far.recv(1, &[]);
        near.post(2, SendOp::Write { remote: sink.remote(0) }, &[source.all()]);
        near.post(3, SEND, &[]);
        far.done(1);
        assert!(sink.buffer.read(0, len) == source.buffer.read(0, len));
        near.done(2);
        near.done(3);
        let back = near.region(Buffer::new(len));
        let op = SendOp::Read { remote: sink.remote(0), invalidate_sink: false };
        near.post(4, op, &[back.all()]);
        near.done(4);
        assert!(back.buffer.read(0, len) == source.buffer.read(0, len));
    }
}

// The size that a receiver predicts from the last payload is wrong at every change.
#[test]
fn sizes_that_change_arrive_whole() {
    const SIZES: [usize; 14] = [
        70_000, 65_536, 3, 64_754, 64_755, 64_756, 9_000, 9_000, 0, 200_000, 2_000, 40_000, 1,
        33_000,
    ];
    let total: usize = SIZES.iter().sum();
    for crc in [true, false] {
        let (near, far) = pair(&Setup { crc, ..Setup::default() });
        let source = near.region(Buffer::pattern(total, 15));
        let (sent, written) = (far.region(Buffer::new(total)), far.region(Buffer::new(total)));
        for _ in 0..4 {
            sent.buffer.write(0, &vec![0; total]);
            written.buffer.write(0, &vec![0; total]);
            let mut at = 0;
            for (id, len) in SIZES.into_iter().enumerate() {
                far.recv(id as u64, &[sent.sge(at, len)]);
                let piece = [source.sge(at, len)];
                near.post_flags(0, SEND, &piece, SendFlags::empty());
                let write = SendOp::Write { remote: written.remote(at) };
                near.post_flags(0, write, &piece, SendFlags::empty());
                at += len;
            }
            far.recv(99, &[]);
            near.post(99, SEND, &[]);
            for (id, len) in SIZES.into_iter().enumerate() {
                assert_eq!(far.done(id as u64).octets as usize, len);
            }
            far.done(99);
            near.done(99);
            assert!(sent.buffer.read(0, total) == source.buffer.read(0, total));
            assert!(written.buffer.read(0, total) == source.buffer.read(0, total));
        }
    }
}

// [CONN-29]: each kind of RTR, from an initiator that has nothing else to send.
#[test]
fn every_rtr_opens_the_responder() {
    for rtr in [Rtr::Send, Rtr::Write, Rtr::Read] {
        let (near, far) = pair(&Setup { rtr: Some(rtr), ..Setup::default() });
        let source = far.region(Buffer::pattern(100, 15));
        let sink = near.region(Buffer::new(100));
        near.recv(1, &[sink.all()]);
        far.post(2, SEND, &[source.all()]);
        near.done(1);
        far.done(2);
        assert!(sink.buffer.read(0, 100) == source.buffer.read(0, 100));
    }
}

// [VERBS-02]: what is posted in Idle runs once the QP is connected, in order.
#[test]
fn posts_in_idle_wait_for_the_stream() {
    let (near, far) = (End::new(|_| {}), End::new(|_| {}));
    let source = near.region(Buffer::pattern(100, 16));
    let sink = far.region(Buffer::new(100));
    for i in 0..10u64 {
        far.recv(i, &[sink.sge(i as usize * 10, 10)]);
        near.post(i, SEND, &[source.sge(i as usize * 10, 10)]);
    }
    assert_eq!(near.cq.poll(&mut [WorkCompletion::BLANK]).unwrap(), 0);
    connect((&near, &far), &Setup { rtr: None, ..Setup::default() });
    for i in 0..10 {
        near.done(i);
        far.done(i);
    }
    assert!(sink.buffer.read(0, 100) == source.buffer.read(0, 100));
}

// [VERBS-03]: octets that came after the start-up frame, and the last streaming-mode message.
#[test]
fn early_octets_and_the_last_message_are_not_lost() {
    use std::io::Read;
    let (near, far) = (End::new(|_| {}), End::new(|_| {}));
    let (near_socket, mut far_socket) = sockets();
    let source = near.region(Buffer::pattern(100, 17));
    let sink = far.region(Buffer::new(100));
    far.recv(1, &[sink.all()]);
    near.post(2, SEND, &[source.all()]);
    let llp = |socket: std::net::TcpStream, role, received: Vec<u8>, last_message: Vec<u8>| {
        let params = StreamParams::new(role);
        QpChange::Rts(Box::new(LlpStream {
            socket: socket.into(),
            received,
            last_message,
            params,
            local: None,
        }))
    };
    near.qp.modify(llp(near_socket, Role::Initiator, Vec::new(), b"hello".to_vec())).unwrap();
    near.done(2);
    let mut hello = [0; 5];
    far_socket.read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"hello");
    let mut early = [0; 37];
    far_socket.read_exact(&mut early).unwrap();
    far.qp.modify(llp(far_socket, Role::Responder, early.to_vec(), Vec::new())).unwrap();
    far.done(1);
    assert!(sink.buffer.read(0, 100) == source.buffer.read(0, 100));
}

// [VERBS-26]: one SRQ for several QPs, its limit event, and a QP that fails.
#[test]
fn shared_receive_queue() {
    let server = open();
    let events = std::sync::Arc::new(Events::default());
    server.set_async_handler(Some(events.clone()));
    let pd = server.alloc_pd().unwrap();
    let cq = server.create_cq(&CqInit { depth: 256, handler: None }).unwrap();
    let srq = server.create_srq(&SrqInit { pd, depth: 64, max_sge: 2, limit: 10 }).unwrap();
    let sink = Buffer::new(64 * 8);
    let init = MrInit {
        pd,
        range: sink.range(),
        addressing: Addressing::ZeroBased,
        access: Access::LOCAL,
        key: 1,
        pin: false,
    };
    let stag = server.register_mr(&init).unwrap();
    for i in 0..24u64 {
        let sge = Sge { stag, len: 8, to: i * 8 };
        srq.post_recv(&[RecvWr { wr_id: i, sgl: &[sge] }]).unwrap();
    }
    let mut nears = Vec::new();
    for _ in 0..4 {
        let mut init = QpInit::new(pd, cq.id(), cq.id());
        init.srq = Some(srq.id());
        let far = server.create_qp(&init).unwrap();
        let refused = far.post_recv(&[RecvWr { wr_id: 0, sgl: &[] }]).unwrap_err();
        assert_eq!(refused.status, VpStatus::InvalidWr);
        let near = End::new(|_| {});
        let (a, b) = sockets();
        let llp = |socket: std::net::TcpStream, role| LlpStream {
            socket: socket.into(),
            received: Vec::new(),
            last_message: Vec::new(),
            params: StreamParams::new(role),
            local: None,
        };
        far.modify(QpChange::Rts(Box::new(llp(b, Role::Responder)))).unwrap();
        near.qp.modify(QpChange::Rts(Box::new(llp(a, Role::Initiator)))).unwrap();
        nears.push((near, far));
    }
    for round in 0..5 {
        for (near, _) in &nears {
            let source = near.region(Buffer::pattern(8, round));
            near.post(1, SEND, &[source.all()]);
            near.done(1);
            let completion = next(&*cq);
            let at = completion.wr_id as usize * 8;
            assert_eq!((completion.status, completion.octets), (WcStatus::Success, 8));
            assert_eq!(sink.read(at, 8), pattern(8, round));
        }
    }
    assert_eq!(events.next(EventSource::Srq(srq.id())), AsyncEvent::SrqLimit);
    assert_eq!(srq.query().unwrap().posted, 4);
    // The end of a QP does not change the shared queue.
    nears[0].1.modify(QpChange::Error).unwrap();
    assert_eq!(srq.query().unwrap().posted, 4);
    for (_, far) in &nears {
        server.destroy_qp(far.id()).unwrap();
    }
    server.destroy_srq(srq.id()).unwrap();
}
