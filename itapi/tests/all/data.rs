//! Tests of work requests and their completions.

use itapi::{Access, Error, LmrRange, MwKind, Operation, VpStatus, WcStatus, Work};

use crate::pair::{HANG, Side, connect, open, pair};

// [it_post_send] [it_post_recv] [it_evd_dequeue]
#[test]
fn a_buffer_is_sent_and_returned() {
    let (client, server) = pair();
    server.ep.post_recv(server.pz.buffer(16).unwrap()).unwrap();
    let mut buffer = client.pz.buffer(16).unwrap();
    buffer.fill(b"eleven octs").unwrap();
    let id = client.ep.post(Work::send(buffer)).unwrap();

    let received = server.success();
    assert_eq!((received.operation, received.octets), (Operation::Recv, 11));
    assert_eq!(received.ep, server.ep.id());
    assert_eq!(received.into_buffer().unwrap().to_vec(), b"eleven octs");
    let sent = client.success();
    assert_eq!((sent.id, sent.operation), (id, Operation::Send));
    assert_eq!(sent.into_buffer().unwrap().to_vec(), b"eleven octs");
}

#[test]
fn pieces_are_gathered_and_scattered() {
    let (client, server) = pair();
    server.ep.post_recv(server.pz.buffers(3, 4).unwrap()).unwrap();
    let region = client.pz.lmr(10).register().unwrap();
    region.write_at(0, b"0123456789").unwrap();
    let pieces: Vec<LmrRange> = [8..10, 0..3, 5..6].map(|r| region.range(r).unwrap()).into();
    client.ep.post(Work::send(pieces)).unwrap();
    let buffers: Vec<_> = server.success().local.into_buffers().map(|b| b.to_vec()).collect();
    assert_eq!(buffers, [&b"8901"[..], b"25", b""]);
}

// [it_post_rdma_write] [it_post_rdma_read]
#[test]
fn write_read_and_unsignalled_work() {
    let (client, server) = pair();
    let board = server.pz.lmr(8).remote_read().remote_write().register().unwrap();
    let remote = board.remote();
    let mut source = client.pz.buffer(3).unwrap();
    source.fill(b"abc").unwrap();
    client.ep.post(Work::write(source, remote.slice(2..5).unwrap()).unsignalled()).unwrap();
    client.ep.post(Work::write(b"Z", remote.slice(7..8).unwrap()).unsignalled()).unwrap();
    client.ep.post(Work::read(remote, client.pz.buffer(64).unwrap())).unwrap();
    let done = client.success();
    assert_eq!((done.operation, done.octets), (Operation::Read, 8));
    let returned: Vec<_> = done.earlier.into_iter().flat_map(|l| l.into_buffers()).collect();
    assert_eq!(returned.len(), 1);
    assert_eq!(returned[0].to_vec(), b"abc");
    assert_eq!(done.local.into_buffer().unwrap().to_vec(), b"\0\0abc\0\0Z");
}

// [it_make_rdma_addr_relative]
#[test]
fn a_zero_based_region_is_addressed_by_offset() {
    let (client, server) = pair();
    let board = server.pz.lmr(8).remote_write().zero_based().register().unwrap();
    assert_eq!(board.remote().addr, 0);
    client.ep.post(Work::write(b"xy", board.remote().slice(3..5).unwrap())).unwrap();
    client.success();
    server.ep.post_recv(server.pz.buffer(4).unwrap()).unwrap();
    client.ep.post(Work::send(b"done")).unwrap();
    server.success();
    let mut octets = [0; 8];
    board.read_at(0, &mut octets).unwrap();
    assert_eq!(&octets, b"\0\0\0xy\0\0\0");
}

// [it_post_atomic]
#[test]
fn atomics_give_the_original_value() {
    let (client, server) = pair();
    let counter = server.pz.lmr(8).remote_atomic().register().unwrap();
    counter.write_at(0, &40u64.to_ne_bytes()).unwrap();
    let sink = client.pz.buffer(8).unwrap();
    client.ep.post(Work::fetch_add(counter.remote(), 2, sink)).unwrap();
    let sink = client.success().into_buffer().unwrap();
    assert_eq!(sink.to_vec(), 40u64.to_ne_bytes());
    client.ep.post(Work::compare_swap(counter.remote(), 42, 7, sink)).unwrap();
    assert_eq!(client.success().into_buffer().unwrap().to_vec(), 42u64.to_ne_bytes());
    let mut now = [0; 8];
    counter.read_at(0, &mut now).unwrap();
    assert_eq!(u64::from_ne_bytes(now), 7);
}

// [itw_post_immediate] [itw_post_rdma_write_with_immediate] [itw_event_immediate]
#[test]
fn immediate_data_takes_a_receive() {
    let (client, server) = pair();
    for _ in 0..2 {
        server.ep.post_recv(server.pz.buffer(8).unwrap()).unwrap();
    }
    let board = server.pz.lmr(4).remote_write().register().unwrap();
    client.ep.post(Work::immediate(77).solicited()).unwrap();
    client.ep.post(Work::write(b"1234", board.remote()).with_immediate(78)).unwrap();
    let first = server.success();
    assert_eq!((first.operation, first.immediate), (Operation::RecvImmediate, Some(77)));
    assert!(first.solicited);
    let second = server.success();
    // What the Write placed is not counted, as nothing came into the receive.
    assert_eq!((second.immediate, second.octets), (Some(78), 0));
    assert_eq!(second.local.into_buffer().unwrap().len(), 0);
}

// [it_rmr_create20] [it_rmr_link] [it_post_send_and_unlink]
#[test]
fn a_window_grants_part_of_a_region_until_it_is_invalidated() {
    let (client, server) = pair();
    let region = server.pz.lmr(16).remote_write().bindable().register().unwrap();
    let window = server.pz.rmr(MwKind::Narrow).unwrap();
    assert!(window.remote().is_err());
    let part = region.range(4..8).unwrap();
    server.ep.post(Work::link(&window, part, Access::REMOTE_WRITE)).unwrap();
    assert_eq!(server.success().operation, Operation::Link);
    let granted = window.remote().unwrap();
    assert_ne!(granted.context, region.remote().context);

    server.ep.post_recv(server.pz.buffer(4).unwrap()).unwrap();
    client.ep.post(Work::write(b"part", granted).unsignalled()).unwrap();
    client.ep.post(Work::send(b"ok").invalidate(granted.context)).unwrap();
    client.success();
    let received = server.success();
    assert_eq!(received.invalidated, Some(granted.context));
    let mut octets = [0; 16];
    region.read_at(0, &mut octets).unwrap();
    assert_eq!(&octets[..8], b"\0\0\0\0part");

    // The right was invalidated: the next write ends the connection.
    client.ep.post(Work::write(b"late", granted)).unwrap();
    let end = client.ep.ended(HANG).unwrap().unwrap();
    assert!(end.to_string().contains("terminated"), "{end}");
}

// [it_srq_create]
#[test]
fn a_shared_receive_queue_serves_several_endpoints() {
    let ia = open();
    let server = Side::new(&ia, |b| b);
    let srq = server.pz.srq(8, 1).unwrap();
    for buffer in server.pz.buffers(4, 8).unwrap() {
        srq.post_recv(buffer).unwrap();
    }
    let clients: Vec<_> = (0..2).map(|_| Side::new(&ia, |b| b)).collect();
    let ends: Vec<_> =
        (0..2).map(|_| server.pz.ep(&server.evd).srq(&srq).build().unwrap()).collect();
    for (client, ep) in clients.iter().zip(&ends) {
        let side = Side { pz: server.pz.clone(), evd: server.evd.clone(), ep: ep.clone() };
        connect(&ia, client, &side);
        client.ep.post(Work::send(b"from one")).unwrap();
    }
    let mut from: Vec<_> = (0..2).map(|_| server.success().ep).collect();
    from.sort();
    let mut known: Vec<_> = ends.iter().map(|ep| ep.id()).collect();
    known.sort();
    assert_eq!(from, known);
}

#[test]
fn a_refused_post_gives_everything_back() {
    let ia = open();
    let side = Side::new(&ia, |b| b.depth(2, 2));
    let mut buffer = side.pz.buffer(4).unwrap();
    buffer.fill(b"mine").unwrap();
    let refused = side.ep.try_post(Work::send(buffer)).unwrap_err();
    assert!(matches!(refused.error, Error::Post { status: VpStatus::InvalidState, .. }));
    assert!(format!("{:?}", refused.given).contains("Buffer"));

    for buffer in side.pz.buffers(2, 4).unwrap() {
        side.ep.post_recv(buffer).unwrap();
    }
    let third = side.ep.try_post_recv(side.pz.buffer(4).unwrap()).unwrap_err();
    assert!(matches!(third.error, Error::Post { status: VpStatus::TooManyWrs, .. }), "{third:?}");
    assert_eq!(third.given.into_buffer().unwrap().capacity(), 4);
}

#[test]
fn what_does_not_fit_is_refused_before_the_peer_sees_it() {
    let (client, server) = pair();
    let board = server.pz.lmr(4).remote_read().remote_write().register().unwrap();
    assert!(client.ep.post(Work::write(b"12345", board.remote())).is_err());
    let small = client.pz.buffer(3).unwrap();
    let refused = client.ep.post(Work::read(board.remote(), small)).unwrap_err();
    assert!(refused.to_string().contains("4 octets"), "{refused}");
    assert!(board.remote().slice(3..5).is_err());
    client.ep.post(Work::write(b"1234", board.remote())).unwrap();
    client.success();
}

#[test]
fn all_posted_requests_complete_when_the_connection_ends() {
    let (client, server) = pair();
    for buffer in server.pz.buffers(5, 4).unwrap() {
        server.ep.post_recv(buffer).unwrap();
    }
    client.ep.disconnect().unwrap();
    for _ in 0..5 {
        let flushed = server.next();
        assert_eq!(flushed.status, WcStatus::Flushed);
        assert!(flushed.check().is_err());
        let buffer = flushed.into_buffer().unwrap();
        assert!(buffer.is_empty());
    }
    assert!(server.evd.poll().unwrap().is_none());
    // A request posted afterwards is flushed, too.
    server.ep.post(Work::send(server.pz.buffer(4).unwrap())).unwrap();
    let late = server.next();
    assert_eq!(late.status, WcStatus::Flushed);
    assert!(late.into_buffer().is_some());
}
