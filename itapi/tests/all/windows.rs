//! Tests of memory windows: both kinds, and their lifetimes.

use itapi::{Access, AccessError, Error, MwKind, Operation, WcStatus, Work};

use crate::pair::{HANG, Side, arrived, connect, open, pair};

// [it_rmr_query] [it_rmr_unlink] [it_rmr_create10] [it_rmr_bind10]
#[test]
fn a_wide_window_moves_from_part_to_part() {
    let (client, server) = pair();
    let region = server.pz.lmr(16).remote_write().bindable().register().unwrap();
    let window = server.pz.rmr(MwKind::Wide).unwrap();
    assert_eq!(window.info().unwrap().region, None);
    let mut address = Vec::new();
    for start in [0, 8] {
        let part = region.range(start..start + 4).unwrap();
        server.ep.post(Work::link(&window, part, Access::REMOTE_WRITE)).unwrap();
        server.success();
        let info = window.info().unwrap();
        assert_eq!((info.len, info.access), (4, Access::REMOTE_WRITE));
        address.push(window.remote().unwrap());
        client.ep.post(Work::write(b"here", address[address.len() - 1])).unwrap();
        client.success();
        arrived(&client, &server);
    }
    assert_ne!(address[0].context, address[1].context);
    server.ep.post(Work::unlink(&window)).unwrap();
    assert_eq!(server.success().operation, Operation::Unlink);
    assert!(window.remote().is_err());
    client.ep.post(Work::write(b"gone", address[1])).unwrap();
    assert!(client.ep.ended(HANG).unwrap().unwrap().to_string().contains("terminated"));
    let mut octets = [0; 16];
    region.read_at(0, &mut octets).unwrap();
    assert_eq!(&octets, b"here\0\0\0\0here\0\0\0\0");
}

#[test]
fn a_window_can_be_addressed_by_offset() {
    let (client, server) = pair();
    let region = server.pz.lmr(16).remote_write().bindable().register().unwrap();
    let window = server.pz.rmr(MwKind::Narrow).unwrap();
    let part = region.range(4..12).unwrap();
    server.ep.post(Work::link(&window, part, Access::REMOTE_WRITE).zero_based()).unwrap();
    server.success();
    let address = window.remote().unwrap();
    assert_eq!((address.addr, address.len), (0, 8));
    client.ep.post(Work::write(b"xy", address.slice(6..8).unwrap())).unwrap();
    client.success();
    arrived(&client, &server);
    server.ep.post(Work::unlink(&window)).unwrap();
    server.success();
    let mut octets = [0; 16];
    region.read_at(0, &mut octets).unwrap();
    assert_eq!(&octets[10..12], b"xy");
}

// [it_post_rdma_read_to_rmr]
#[test]
fn a_read_fills_a_window() {
    let (client, server) = pair();
    let source = server.pz.lmr(8).remote_read().register().unwrap();
    source.write_at(0, b"download").unwrap();
    let region = client.pz.lmr(16).remote_write().bindable().register().unwrap();
    let window = client.pz.rmr(MwKind::Narrow).unwrap();
    let unlinked = client.ep.post(Work::read_to_window(source.remote(), &window, 0)).unwrap_err();
    assert!(matches!(unlinked, Error::Argument(_)), "{unlinked}");
    let part = region.range(2..14).unwrap();
    client.ep.post(Work::link(&window, part, Access::REMOTE_WRITE)).unwrap();
    client.success();
    let outside = client.ep.post(Work::read_to_window(source.remote(), &window, 5)).unwrap_err();
    assert!(matches!(outside, Error::Range { .. }), "{outside}");
    let read = Work::read_to_window(source.remote(), &window, 4);
    client.ep.post(read.unlink_sink()).unwrap();
    let done = client.success();
    assert_eq!((done.operation, done.octets), (Operation::Read, 8));
    assert!(window.remote().is_err(), "unlinked behind the last octet");
    let mut octets = [0; 16];
    region.read_at(0, &mut octets).unwrap();
    assert_eq!(&octets, b"\0\0\0\0\0\0download\0\0");
}

// [it_rmr_free]
#[test]
fn a_window_keeps_its_region_until_it_is_unlinked() {
    let (client, server) = pair();
    let region = server.pz.lmr(4).remote_write().bindable().register().unwrap();
    let window = server.pz.rmr(MwKind::Narrow).unwrap();
    server.ep.post(Work::link(&window, region.whole(), Access::REMOTE_WRITE)).unwrap();
    server.success();
    // Its last handle is dropped; the region stays while the window is linked to it.
    drop(region);
    let address = window.remote().unwrap();
    client.ep.post(Work::write(b"kept", address)).unwrap();
    client.success();
    arrived(&client, &server);
    server.ep.post(Work::unlink(&window)).unwrap();
    server.success();
    assert_eq!(window.info().unwrap().region, None);
    // The window can be linked to another region.
    let other = server.pz.lmr(4).remote_write().bindable().register().unwrap();
    server.ep.post(Work::link(&window, other.whole(), Access::REMOTE_WRITE)).unwrap();
    server.success();
    drop(window);
    assert_eq!(other.info().unwrap().bound_windows, 0);
}

#[test]
fn a_refused_link_keeps_the_old_one() {
    let (client, server) = pair();
    let [first, second] =
        [4, 8].map(|len| server.pz.lmr(len).remote_write().bindable().register().unwrap());
    let window = server.pz.rmr(MwKind::Narrow).unwrap();
    server.ep.post(Work::link(&window, first.whole(), Access::REMOTE_WRITE)).unwrap();
    server.success();
    server.ep.post(Work::link(&window, second.whole(), Access::REMOTE_WRITE)).unwrap();
    assert_eq!(server.next().status, WcStatus::StagNotInvalid);
    drop((first, second));
    assert_eq!(window.remote().unwrap().len, 4);
    drop(client);
}

#[test]
fn a_linked_narrow_window_ends_with_its_endpoint() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    connect(&ia, &client, &server);
    let region = server.pz.lmr(4).remote_write().bindable().register().unwrap();
    let [linked, unlinked] = [(); 2].map(|()| server.pz.rmr(MwKind::Narrow).unwrap());
    for window in [&linked, &unlinked] {
        server.ep.post(Work::link(window, region.whole(), Access::REMOTE_WRITE)).unwrap();
        server.success();
    }
    server.ep.post(Work::unlink(&unlinked)).unwrap();
    server.success();
    let Side { pz, evd, ep } = server;
    drop(ep);
    // The connection ended with it, although the window has a handle.
    assert!(client.ep.ended(HANG).unwrap().is_some());
    let gone = linked.remote().unwrap_err();
    assert!(matches!(gone, Error::Access(AccessError::Verb { .. })), "{gone}");
    assert_eq!(region.info().unwrap().bound_windows, 0);
    // The other window can be linked through another endpoint.
    let server = Side { ep: pz.ep(&evd).build().unwrap(), pz, evd };
    let client = Side::new(&ia, |b| b);
    connect(&ia, &client, &server);
    server.ep.post(Work::link(&unlinked, region.whole(), Access::REMOTE_WRITE)).unwrap();
    server.success();
    client.ep.post(Work::write(b"next", unlinked.remote().unwrap())).unwrap();
    client.success();
}
