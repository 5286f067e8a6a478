//! Tests of linking, unlinking, sharing and modifying regions.

use itapi::{Access, Addressing, Error, Operation, WcStatus, Work};

use crate::pair::{HANG, Side, arrived, connect, open, pair, pair_of};

// [it_lmr_create_unlinked] [it_lmr_link] [it_lmr_unlink]
#[test]
fn an_unlinked_region_is_linked_again_and_again() {
    let (client, server) = pair_of(|b| b.privileged());
    let region = server.pz.lmr(8).remote_write().unlinked().unwrap();
    assert!(!region.info().unwrap().valid);
    let mut exchanged = Vec::new();
    for round in 0..3u8 {
        server.ep.post(Work::link_lmr(&region)).unwrap();
        assert_eq!(server.success().operation, Operation::LinkLmr);
        assert!(region.info().unwrap().valid);
        let remote = region.remote();
        assert!(!exchanged.contains(&remote.context), "the key changes with each link");
        exchanged.push(remote.context);
        client.ep.post(Work::write(&[round; 8], remote)).unwrap();
        client.success();
        arrived(&client, &server);
        if round == 1 {
            // The peer invalidates the STag.
            server.ep.post_recv(server.pz.buffer(1).unwrap()).unwrap();
            client.ep.post(Work::send(b"").invalidate(remote.context)).unwrap();
            client.success();
            assert_eq!(server.success().invalidated, Some(remote.context));
        } else {
            server.ep.post(Work::unlink_lmr(&region).local_fence()).unwrap();
            assert_eq!(server.success().operation, Operation::UnlinkLmr);
        }
        assert!(!region.info().unwrap().valid);
        let mut octets = [9; 8];
        region.read_at(0, &mut octets).unwrap();
        assert_eq!(octets, [round; 8]);
    }
}

#[test]
fn linking_needs_a_privileged_endpoint() {
    let (client, _server) = pair();
    let region = client.pz.lmr(8).unlinked().unwrap();
    client.ep.post(Work::link_lmr(&region)).unwrap();
    let refused = client.next();
    assert_eq!(refused.status, WcStatus::NotPrivileged);
    assert!(refused.check().is_err());
    assert!(client.pz.lmr(8).pinned().unlinked().is_err());
}

#[test]
fn a_send_behind_a_link_can_carry_the_new_key() {
    let (client, server) = pair_of(|b| b.privileged());
    let board = server.pz.lmr(4).remote_read().unlinked().unwrap();
    board.write_at(0, b"news").unwrap();
    client.ep.post_recv(client.pz.buffer(64).unwrap()).unwrap();
    // One batch: the key is known only once the link is posted.
    server.ep.post(Work::link_lmr(&board).unsignalled()).unwrap();
    server.ep.post(Work::send(&board.remote().to_octets())).unwrap();
    let exchanged = client.success().into_buffer().unwrap();
    let remote = itapi::RemoteRange::from_octets(&exchanged).unwrap();
    client.ep.post(Work::read(remote, exchanged)).unwrap();
    assert_eq!(client.success().into_buffer().unwrap().to_vec(), b"news");
    let linked = server.success();
    assert_eq!((linked.operation, linked.earlier.len()), (Operation::Send, 1));
}

#[test]
fn a_read_unlinks_its_sink() {
    let (client, server) = pair_of(|b| b.privileged());
    let source = server.pz.lmr(4).remote_read().register().unwrap();
    source.write_at(0, b"data").unwrap();
    let sink = client.pz.lmr(4).unlinked().unwrap();
    client.ep.post(Work::link_lmr(&sink).unsignalled()).unwrap();
    client.ep.post(Work::read(source.remote(), &sink).unlink_sink()).unwrap();
    assert_eq!(client.success().operation, Operation::Read);
    assert!(!sink.info().unwrap().valid);
    let mut octets = [0; 4];
    sink.read_at(0, &mut octets).unwrap();
    assert_eq!(&octets, b"data");
    // Other buffers lie in the same region.
    let buffer = client.pz.buffer(4).unwrap();
    let refused = client.ep.post(Work::read(source.remote(), buffer).unlink_sink()).unwrap_err();
    assert!(matches!(refused, Error::Argument(_)), "{refused}");
}

// [it_lmr_query] [it_make_rdma_addr_absolute] [it_lmr_create20] [itx_get_rmr_context_for_ep]
#[test]
fn shared_memory_has_two_stags() {
    let (client, server) = pair();
    let quiet = server.pz.lmr(16).register().unwrap();
    assert!(!quiet.info().unwrap().shared);
    let open = quiet
        .share(&server.pz, Access::LOCAL | Access::REMOTE_WRITE, Addressing::ZeroBased)
        .unwrap();
    assert!(quiet.info().unwrap().shared && open.info().unwrap().shared);
    assert_ne!(open.remote().context, quiet.remote().context);
    assert_eq!(quiet.remote().addr, quiet.info().unwrap().addr);
    assert_eq!(open.remote().addr, 0);
    client.ep.post(Work::write(b"shared", open.remote())).unwrap();
    client.success();
    arrived(&client, &server);
    // The memory outlives each of its registrations.
    drop(open);
    let mut octets = [0; 6];
    quiet.read_at(0, &mut octets).unwrap();
    assert_eq!(&octets, b"shared");
}

// [it_lmr_modify] [it_lmr_create10]
#[test]
fn a_modified_region_has_new_rights_and_a_new_stag() {
    let (client, server) = pair();
    let board = server.pz.lmr(4).register().unwrap();
    let before = board.remote();
    let rights = Access::LOCAL | Access::REMOTE_WRITE;
    board.modify(&server.pz, rights, Addressing::ZeroBased).unwrap();
    let info = board.info().unwrap();
    assert_eq!((info.access, info.addressing), (rights, Addressing::ZeroBased));
    assert_ne!(board.remote(), before);
    client.ep.post(Work::write(b"1234", board.remote())).unwrap();
    client.success();
    // The old STag is invalid.
    client.ep.post(Work::write(b"5678", before)).unwrap();
    assert!(client.ep.ended(HANG).unwrap().unwrap().to_string().contains("terminated"));
}

// [it_lmr_flush_to_mem] [it_lmr_refresh_from_mem]
#[test]
fn coherence_calls_and_pinned_memory() {
    let ia = open();
    let side = Side::new(&ia, |b| b);
    let region = side.pz.lmr(4096).pinned().register().unwrap();
    let range = region.range(8..16).unwrap();
    range.write_at(0, b"12345678").unwrap();
    range.flush();
    range.refresh();
    let mut octets = [0; 8];
    range.read_at(0, &mut octets).unwrap();
    assert_eq!(&octets, b"12345678");
}

// [itx_ep_connect_with_rmr] [itx_ep_accept_with_rmr] [it_hton64] [it_ntoh64]
#[test]
fn private_data_describes_a_region() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    let theirs = client.pz.lmr(8).remote_write().register().unwrap();
    let ours = server.pz.lmr(8).remote_read().register().unwrap();
    ours.write_at(0, b"welcome!").unwrap();
    let listen = ia.listen("127.0.0.1:0").unwrap();
    let address = listen.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = listen.request().unwrap();
            let exchanged = itapi::RemoteRange::from_octets(request.private_data()).unwrap();
            assert_eq!(exchanged, theirs.remote());
            request.accept(&server.ep, &ours.remote().to_octets()).unwrap();
            // Network order, key first.
            assert_eq!(exchanged.to_octets()[..4], exchanged.context.0.to_be_bytes());
            assert_eq!(exchanged.to_octets()[4..12], exchanged.addr.to_be_bytes());
        });
        let established = client.ep.connect(address, &theirs.remote().to_octets()).unwrap();
        let remote = itapi::RemoteRange::from_octets(&established.private_data).unwrap();
        client.ep.post(Work::read(remote, client.pz.buffer(8).unwrap())).unwrap();
        assert_eq!(client.success().into_buffer().unwrap().to_vec(), b"welcome!");
    });
}

#[test]
fn a_dropped_region_keeps_memory_that_a_share_still_exposes() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    connect(&ia, &client, &server);
    let first = server.pz.lmr(1 << 16).register().unwrap();
    let rights = Access::LOCAL | Access::REMOTE_WRITE;
    let second = first.share(&server.pz, rights, Addressing::Absolute).unwrap();
    let source = client.pz.lmr(1 << 16).register().unwrap();
    for _ in 0..16 {
        client.ep.post(Work::write(&source, second.remote())).unwrap();
    }
    drop(first);
    for _ in 0..16 {
        client.success();
    }
    drop(second);
    client.ep.disconnect().unwrap();
}
