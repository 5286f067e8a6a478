//! Tests of message buffers as slices, and of existing memory: moved in, or borrowed for a call.

use std::io::{Cursor, Read, Write};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use itapi::{Access, Addressing, Buffer, ConnEvent, MwKind, WcStatus, Work};

use crate::pair::{HANG, Side, arrived, pair, pair_of};

/// Sends a buffer to the peer, reverses it there, and sends it back.
fn there_and_back(client: &Side, server: &Side, buffer: Buffer) -> Buffer {
    server.ep.post_recv(server.pz.buffer(64).unwrap()).unwrap();
    client.ep.post_recv(client.pz.buffer(64).unwrap()).unwrap();
    client.ep.post(Work::send(buffer).unsignalled()).unwrap();
    let mut taken = server.success().into_buffer().unwrap();
    taken.reverse(); // in place
    server.ep.post(Work::send(taken)).unwrap();
    server.success();
    client.success().into_buffer().unwrap()
}

#[test]
fn buffers_are_slices_writers_and_readers() {
    let (client, server) = pair();
    let mut buffer = client.pz.buffer(8).unwrap();
    assert_eq!(buffer.write(b"a long line").unwrap(), 8);
    assert!(buffer.write_all(b"more").is_err());
    buffer[0] = b'A';
    buffer.resize(6).unwrap();
    let back = there_and_back(&client, &server, buffer);
    assert_eq!(&back[..], b"gnol A");
    let mut cursor = Cursor::new(back);
    let mut word = [0; 4];
    cursor.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"gnol");
    let mut again = cursor.into_inner();
    again.clear();
    let mut source = &b"0123456789abcdef"[..];
    assert_eq!(again.read_from(&mut source.by_ref().take(10)).unwrap(), 10);
    assert_eq!(again.read_from(&mut source).unwrap(), 6);
    assert_eq!(&again[..], b"0123456789abcdef");
}

#[test]
fn buffers_of_one_registration_do_not_overlap() {
    let (client, server) = pair();
    let mut buffers = client.pz.buffers(3, 4).unwrap();
    for (buffer, word) in buffers.iter_mut().zip([b"aaaa", b"bbbb", b"cccc"]) {
        buffer.fill(word).unwrap();
    }
    let middle = buffers.remove(1);
    client.ep.post_recv(middle).unwrap();
    server.ep.post(Work::send(b"xxxx")).unwrap();
    assert_eq!(&client.success().into_buffer().unwrap()[..], b"xxxx");
    assert_eq!((&buffers[0][..], &buffers[1][..]), (&b"aaaa"[..], &b"cccc"[..]));
}

// [it_lmr_create] [it_lmr_free]
#[test]
fn the_peer_writes_to_an_adopted_vector() {
    let (client, server) = pair();
    let region = server.pz.adopt(vec![0u8; 32]).remote_write().register().unwrap();
    let place = region.remote().slice(4..9).unwrap();
    client.ep.post(Work::write(b"hello", place)).unwrap();
    client.success();
    arrived(&client, &server);
    let octets: Vec<u8> = region.deregister().unwrap();
    assert_eq!(&octets[..10], b"\0\0\0\0hello\0");
    // The peer's right ended with the region.
    client.ep.post(Work::write(b"again", place)).unwrap();
    let end = client.ep.ended(HANG).unwrap().unwrap();
    assert!(!matches!(end, ConnEvent::Established(_)), "{end}");
    assert_eq!(&octets[4..9], b"hello");
}

#[test]
fn an_adopted_value_stays_while_its_region_is_used() {
    let (client, _server) = pair();
    let region = client.pz.adopt(Box::<[u8]>::from([7; 16])).register().unwrap();
    client.ep.post_recv(region.range(0..8).unwrap()).unwrap();
    let refused = region.deregister().unwrap_err();
    assert!(refused.to_string().contains("1 handles, ranges"), "{refused}");
    let region = refused.given;
    client.ep.disconnect().unwrap();
    assert_eq!(client.next().status, WcStatus::Flushed);
    let shared = region.share(&client.pz, Access::LOCAL, Addressing::Absolute).unwrap();
    let refused = region.deregister().unwrap_err();
    assert!(refused.to_string().contains("shares the memory"), "{refused}");
    drop(shared);
    assert_eq!(*refused.given.deregister().unwrap(), [7; 16]);
}

#[test]
fn borrowed_memory_is_not_accessed_after_the_call_returns() {
    let (client, server) = pair();
    let mut board = [0u8; 16];
    let (place, kept) = server
        .pz
        .lend(&mut board, Access::REMOTE_WRITE, |region| {
            let place = region.remote().slice(0..5).unwrap();
            client.ep.post(Work::write(b"hello", place)).unwrap();
            client.success();
            arrived(&client, &server);
            // Still posted when the borrow ends.
            server.ep.post_recv(region.range(8..16).unwrap()).unwrap();
            (place, region.whole())
        })
        .unwrap();
    assert_eq!(&board, b"hello\0\0\0\0\0\0\0\0\0\0\0");
    assert!(kept.write_at(0, b"x").is_err() && kept.read_at(0, &mut [0]).is_err());
    // Neither the receive nor the peer can write it.
    let _ = client.ep.post(Work::send(b"12345678"));
    let _ = client.ep.post(Work::write(b"again", place));
    let end = client.ep.ended(HANG).unwrap().unwrap();
    assert!(!matches!(end, ConnEvent::Established(_)), "{end}");
    assert_eq!(&board, b"hello\0\0\0\0\0\0\0\0\0\0\0");
}

#[test]
fn a_loan_ends_with_a_panic_while_the_peer_still_writes() {
    let (client, server) = pair();
    let (mut board, source) = (vec![0u8; 1 << 20], client.pz.lmr(1 << 20).register().unwrap());
    let mut place = None;
    let lent = AssertUnwindSafe(|| {
        server.pz.lend(&mut board, Access::REMOTE_WRITE, |region| {
            place = Some(region.remote());
            for _ in 0..8 {
                client.ep.post(Work::write(&source, region.remote())).unwrap();
            }
            panic!("on purpose");
        })
    });
    assert!(std::panic::catch_unwind(lent).is_err());
    board.fill(9); // no late write of the peer changes it
    let _ = client.ep.post(Work::write(&source, place.unwrap()));
    assert!(client.ep.ended(HANG).unwrap().is_some());
    assert!(board.iter().all(|octet| *octet == 9));
}

#[test]
fn borrowed_memory_has_one_registration() {
    let (client, _server) = pair_of(|ep| ep.privileged());
    let mut octets = [0u8; 8];
    let refusals = client.pz.lend(&mut octets, Access::REMOTE_READ, |region| {
        let share = region.share(&client.pz, Access::LOCAL, Addressing::Absolute).unwrap_err();
        let modify = region.modify(&client.pz, Access::LOCAL, Addressing::Absolute).unwrap_err();
        let link = client.ep.post(Work::link_lmr(region)).unwrap_err();
        let window = client.pz.rmr(MwKind::Wide).unwrap();
        let all = Access::REMOTE_READ;
        let bound = client.ep.post(Work::link(&window, region.whole(), all));
        assert!(bound.is_err() || client.next().status != WcStatus::Success);
        [share, modify, link].map(|error| error.to_string())
    });
    for refusal in refusals.unwrap() {
        assert!(refusal.contains("memory that is lent"), "{refusal}");
    }
    let windows = client.pz.lend(&mut octets, Access::BIND, |_| ());
    assert!(windows.unwrap_err().to_string().contains("windows"));
}

#[test]
fn any_type_that_owns_octets_can_be_adopted() {
    /// Octets outside the value itself, as in a memory map.
    #[derive(Debug)]
    struct Elsewhere(#[expect(dead_code, reason = "it counts")] Arc<()>, Vec<u8>);
    impl AsMut<[u8]> for Elsewhere {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.1[2..]
        }
    }
    let (client, _server) = pair();
    let alive = Arc::new(());
    let region = client.pz.adopt(Elsewhere(alive.clone(), vec![1; 10])).register().unwrap();
    assert_eq!(region.len(), 8);
    let range = region.whole();
    drop(region);
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(range);
    assert_eq!(Arc::strong_count(&alive), 1);
}
