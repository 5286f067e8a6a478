//! What a thread does for a QP whose socket is ready: as much as it was told of and no more, whatever pieces
//! the octets come in.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use rustix::event::{PollFd, PollFlags, poll};
use vp_api::{Qp, QpChange, QpState, RecvWr, Sge};
use warpline_patience::until;

use crate::engine::{Member, Ready};
use crate::testing::end::{End, pair};

const READABLE: Ready = Ready { writable: false, over: false };

/// A Send with this payload, without CRC.
fn fpdu(msn: u32, payload: &[u8]) -> Vec<u8> {
    let mut fpdu = (18 + payload.len() as u16).to_be_bytes().to_vec();
    fpdu.extend([0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0]);
    fpdu.extend(msn.to_be_bytes());
    fpdu.extend([0; 4]);
    fpdu.extend(payload);
    fpdu.resize(fpdu.len().next_multiple_of(4) + 4, 0);
    fpdu
}

/// An RDMA Write to the end's buffer, without CRC.
fn write_fpdu(end: &End, payload: &[u8]) -> Vec<u8> {
    let mut fpdu = (14 + payload.len() as u16).to_be_bytes().to_vec();
    fpdu.extend([0xc1, 0x40]);
    fpdu.extend(end.stag.0.to_be_bytes());
    fpdu.extend(end.buffer.addr().to_be_bytes());
    fpdu.extend(payload);
    fpdu.resize(fpdu.len().next_multiple_of(4) + 4, 0);
    fpdu
}

fn receive(end: &End, at: usize, len: usize) {
    let (stag, to) = (end.stag, end.buffer.addr() + at as u64);
    let sgl = [Sge { stag, to, len: len as u32 }];
    end.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &sgl }]).expect("room");
}

/// Octets that the QP has read.
fn read(end: &End) -> u64 {
    end.qp.inner.lock().link.as_ref().map_or(0, |link| link.inbox.octets)
}

fn calls(end: &End) -> u64 {
    end.qp.query().expect("it is there").counters.recv_calls
}

/// Waits until the QP's socket holds so many octets.
fn await_octets(end: &End, octets: usize) {
    let stream = end.qp.inner.lock().link.as_ref().expect("connected").stream.clone();
    until("octets to arrive", || rustix::io::ioctl_fionread(&*stream) == Ok(octets as u64));
}

/// Waits until the QP's socket shows this.
fn await_event(end: &End, event: PollFlags, mut meanwhile: impl FnMut()) {
    let stream = end.qp.inner.lock().link.as_ref().expect("connected").stream.clone();
    until("the event of the socket", || {
        meanwhile();
        let mut fds = [PollFd::new(&*stream, event)];
        poll(&mut fds, Some(&kal_os::timespec(std::time::Duration::ZERO))) == Ok(1)
    });
}

/// Sends octets in pieces, and has each piece read before the next comes.
fn dribble(end: &End, socket: &mut TcpStream, octets: &[u8], cuts: &[usize]) {
    let mut from = 0;
    for &to in cuts.iter().chain(&[octets.len()]) {
        let piece = &octets[from..to];
        socket.write_all(piece).unwrap();
        let expected = read(end) + piece.len() as u64;
        until("the piece to be read", || {
            end.qp.poll();
            read(end) == expected
        });
        from = to;
    }
}

#[test]
fn messages_are_whole_wherever_they_are_cut() {
    let (end, mut socket) = End::against_a_socket();
    let (long, short) = ([7; 41], [9; 5]);
    let mut msn = 0;
    let mut arrive = |cuts: &dyn Fn(usize) -> Vec<usize>| {
        receive(&end, 0, long.len());
        receive(&end, 48, short.len());
        let mut octets = fpdu(msn + 1, &long);
        octets.extend(fpdu(msn + 2, &short));
        msn += 2;
        dribble(&end, &mut socket, &octets, &cuts(octets.len()));
        assert!(end.completed() && end.completed(), "{:?}", cuts(octets.len()));
        assert_eq!(end.buffer.read(0, long.len()), long);
        assert_eq!(end.buffer.read(48, short.len()), short);
        octets.len()
    };
    let len = arrive(&|_| Vec::new());
    for cut in 1..len {
        arrive(&|_| vec![cut]);
    }
    arrive(&|len| (1..len).collect());
    arrive(&|len| (1..len).filter(|at| at % 3 == 0).collect());
}

#[test]
fn one_call_takes_all_small_messages_that_are_there() {
    let (end, mut socket) = End::against_a_socket();
    let before = calls(&end);
    let octets: Vec<u8> = (0..50).flat_map(|_| write_fpdu(&end, &[3; 60])).collect();
    socket.write_all(&octets).unwrap();
    await_octets(&end, octets.len());
    end.qp.on_ready(READABLE);
    assert_eq!((read(&end), calls(&end) - before), (octets.len() as u64, 1));
    assert_eq!(end.buffer.read(0, 60), [3; 60]);
}

/// The end of the stream shows only behind what can be read.
#[test]
fn who_is_told_of_an_end_reads_until_it_shows() {
    let (end, mut socket) = End::against_a_socket();
    receive(&end, 0, 8);
    socket.write_all(&fpdu(1, &[5; 8])).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    await_event(&end, PollFlags::RDHUP, || ());
    end.qp.on_ready(Ready { over: true, ..READABLE });
    assert!(end.completed());
    assert_ne!(end.qp.query().unwrap().state, QpState::Rts);
}

#[test]
fn who_waits_for_room_sends_when_told_of_it_and_not_before() {
    let (reader, source) = pair(16 << 20);
    reader.read(&source);
    until("the source's socket to be full", || source.qp.poll());
    let done = || {
        let counters = source.qp.query().expect("it is there").counters;
        (counters.send_calls, counters.send_stalls)
    };
    let before = done();
    source.qp.on_ready(READABLE);
    assert_eq!(done(), before);
    await_event(&source, PollFlags::OUT, || _ = reader.qp.poll());
    source.qp.on_ready(Ready { writable: true, ..READABLE });
    assert!(done().0 > before.0);
}

#[test]
fn what_was_counted_outlives_the_stream() {
    let (end, mut socket) = End::against_a_socket();
    let octets = write_fpdu(&end, &[3; 60]);
    socket.write_all(&octets).unwrap();
    await_octets(&end, octets.len());
    end.qp.on_ready(READABLE);
    let before = calls(&end);
    assert_ne!(before, 0);
    end.qp.modify(QpChange::Error).unwrap();
    assert_eq!(calls(&end), before);
}

#[test]
fn a_poll_does_what_others_left_to_do() {
    let (end, _peer) = pair(64);
    let inside = end.qp.inner.lock();
    end.qp.inner.serve(|_| unreachable!("a thread is inside"));
    drop(inside);
    end.qp.poll();
    end.qp.inner.serve_wanted(|_| unreachable!("the poll has done it"));
}
