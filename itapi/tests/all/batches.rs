//! Tests of lists of work requests.

use itapi::{Local, Operation, VpStatus, Work};

use crate::pair::{HANG, Side, arrived, open, pair_of};

#[test]
fn a_batch_goes_out_in_order() {
    let (client, server) = pair_of(|b| b.depth(64, 64));
    let mut receives: Vec<Local> =
        server.pz.buffers(40, 4).unwrap().into_iter().map(Local::from).collect();
    assert_eq!(server.ep.post_recv_all(&mut receives).unwrap(), 40);
    assert!(receives.is_empty());
    let texts: Vec<_> = (0..40u32).map(u32::to_be_bytes).collect();
    let mut works: Vec<_> = texts.iter().map(|text| Work::send(text).unsignalled()).collect();
    works.push(Work::write(b"", server.pz.lmr(1).remote_write().register().unwrap().remote()));
    let ids: Vec<_> = client.ep.post_all(&mut works).unwrap().collect();
    assert!(works.is_empty());
    assert_eq!(ids.len(), 41);
    for text in texts {
        assert_eq!(server.success().into_buffer().unwrap().to_vec(), text);
    }
    let done = client.success();
    assert_eq!((done.operation, done.id), (Operation::Write, ids[40]));
    assert_eq!(done.earlier.len(), 40);
}

#[test]
fn a_full_queue_leaves_the_rest_of_the_list() {
    let ia = open();
    let side = Side::new(&ia, |b| b.depth(4, 10));
    let mut receives: Vec<Local> =
        side.pz.buffers(13, 4).unwrap().into_iter().map(Local::from).collect();
    assert_eq!(side.ep.post_recv_all(&mut receives).unwrap(), 10);
    assert_eq!(receives.len(), 3);
    let full = side.ep.post_recv_all(&mut receives).unwrap_err();
    assert!(full.to_string().contains(&VpStatus::TooManyWrs.to_string()), "{full}");
    assert_eq!(receives.len(), 3);

    let srq = side.pz.srq(2, 1).unwrap();
    assert_eq!(srq.post_recv_all(&mut receives).unwrap(), 2);
    assert_eq!(receives.len(), 1);

    // Unconnected: all stay.
    let mut works = vec![Work::send(b"1"), Work::send(b"2")];
    assert!(side.ep.post_all(&mut works).is_err());
    assert_eq!(works.len(), 2);
}

#[test]
fn a_bad_request_ends_the_batch_before_it() {
    let (client, server) = pair_of(|b| b);
    let board = server.pz.lmr(4).remote_write().register().unwrap();
    let mut works = vec![
        Work::write(b"1234", board.remote()),
        Work::write(b"12345", board.remote()),
        Work::write(b"5678", board.remote()),
    ];
    assert_eq!(client.ep.post_all(&mut works).unwrap().count(), 1);
    assert_eq!(works.len(), 2);
    client.success();
    assert!(client.ep.post_all(&mut works).is_err());
    works.remove(0);
    assert_eq!(client.ep.post_all(&mut works).unwrap().count(), 1);
    client.success();
    arrived(&client, &server);
    let mut octets = [0; 4];
    board.read_at(0, &mut octets).unwrap();
    assert_eq!(&octets, b"5678");
}

// [it_evd_dequeue_n]
#[test]
fn completions_come_in_batches() {
    let (client, server) = pair_of(|b| b.depth(64, 64));
    for buffer in server.pz.buffers(20, 4).unwrap() {
        server.ep.post_recv(buffer).unwrap();
    }
    let mut works: Vec<_> = (0..20).map(|_| Work::send(b"x")).collect();
    while !works.is_empty() {
        client.ep.post_all(&mut works).unwrap();
    }
    let mut received = Vec::new();
    while received.len() < 20 {
        if server.evd.poll_into(&mut received).unwrap() == 0 {
            received.extend(server.evd.wait(HANG).unwrap());
        }
    }
    assert!(received.iter().all(|completion| completion.check().is_ok()));
}
