//! Tests of registered memory: bounds, and lifetime beyond everything that may write to it.

use std::time::Duration;

use itapi::{Ep, Evd, Lmr, Pz, Work};

use crate::pair::{HANG, pair};

#[test]
fn bounds_are_checked() {
    let (side, _peer) = pair();
    let mut buffer = side.pz.buffer(4).unwrap();
    assert!(buffer.fill(b"12345").is_err());
    buffer.fill(b"12").unwrap();
    let mut out = [0; 3];
    assert!(buffer.read_at(0, &mut out).is_err());
    buffer.read_at(1, &mut out[..1]).unwrap();
    assert_eq!((out[0], &buffer[..]), (b'2', &b"12"[..]));
    assert!(buffer.get(..3).is_none() && buffer.resize(5).is_err());

    let lmr = side.pz.lmr(10).register().unwrap();
    let range = lmr.range(2..6).unwrap();
    assert!(range.write_at(3, b"12").is_err());
    assert!(range.read_at(usize::MAX, &mut out).is_err());
    assert!(lmr.range(6..11).is_err());
    #[allow(clippy::reversed_empty_ranges)] // the point of the test
    let reversed = lmr.range(6..2);
    assert!(reversed.is_err());
    range.write_at(0, b"1234").unwrap();
    let mut all = [0; 10];
    lmr.read_at(0, &mut all).unwrap();
    assert_eq!(&all, b"\0\x001234\0\0\0\0");
}

#[test]
fn impossible_sizes_are_errors() {
    let (side, _peer) = pair();
    assert!(side.pz.buffers(usize::MAX, 2).is_err());
    let error = side.pz.lmr(usize::MAX / 2).register().unwrap_err();
    assert!(error.to_string().contains("no memory"), "{error}");
    assert!(side.pz.lmr(0).register().unwrap().is_empty());
    // Buffers of 0 octets, but more than a list can hold.
    let error = side.pz.buffers(1 << 40, 0).unwrap_err().to_string();
    assert!(error.contains("no memory for") && error.contains("1099511627776 buffers"), "{error}");
}

// [it_lmr_create21] [it_lmr_free]
#[test]
fn a_dropped_region_revokes_the_right_and_spares_other_memory() {
    let (client, server) = pair();
    let board = server.pz.lmr(4096).remote_write().register().unwrap();
    let remote = board.remote();
    client.ep.post(Work::write(b"1", remote.slice(0..1).unwrap())).unwrap();
    client.success();
    drop(board);
    client.ep.post(Work::write(b"2", remote.slice(0..1).unwrap())).unwrap();
    assert!(client.ep.ended(HANG).unwrap().unwrap().to_string().contains("terminated"));
}

// [it_ep_free]
#[test]
fn dropping_an_endpoint_does_not_wait_for_a_peer_that_writes() {
    for _ in 0..20 {
        let (client, server) = pair();
        let board = server.pz.lmr(1 << 20).remote_write().register().unwrap();
        let source = client.pz.lmr(1 << 20).register().unwrap();
        for buffer in server.pz.buffers(8, 64).unwrap() {
            server.ep.post_recv(buffer).unwrap();
        }
        for _ in 0..8 {
            // The peer may have ended already.
            let _ = client.ep.post(Work::write(&source, board.remote()));
        }
        drop(server);
        drop(board);
        assert!(client.ep.ended(HANG).unwrap().is_some());
    }
}

// [it_pz_create] [it_pz_free] [it_ia_free] [it_evd_free]
#[test]
fn parents_live_as_long_as_their_children() {
    let (client, server) = pair();
    let Parts { ep, evd, lmr } = children(client.pz, client.ep, client.evd);
    server.ep.post_recv(server.pz.buffer(8).unwrap()).unwrap();
    ep.post(Work::send(&lmr)).unwrap();
    assert!(evd.wait(HANG).unwrap().is_some());
    assert_eq!(server.evd.wait_success(HANG).unwrap().octets, 8);
    assert!(server.evd.wait(Duration::ZERO).unwrap().is_none());
}

struct Parts {
    ep: Ep,
    evd: Evd,
    lmr: Lmr,
}

/// Keeps the children and drops the zone's handle.
fn children(pz: Pz, ep: Ep, evd: Evd) -> Parts {
    Parts { ep, evd, lmr: pz.lmr(8).register().unwrap() }
}
