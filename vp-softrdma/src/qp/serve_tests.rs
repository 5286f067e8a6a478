//! Tests of serving a QP whose socket is ready: it does as much as was reported and no more, however the
//! octets are cut.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use rustix::event::{PollFd, PollFlags, poll};
use vp_api::{Qp, QpChange, QpState, RecvWr, Sge};
use warpline_patience::until;

use crate::engine::{Member, Ready};
use crate::qp::Polled;
use crate::testing::end::{End, pair};

const READABLE: Ready = Ready { writable: false, over: false, life_line: false };

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

/// Waits until the QP's socket holds this many octets.
fn await_octets(end: &End, octets: usize) {
    let stream = end.qp.inner.lock().link.as_ref().expect("connected").stream.sockets();
    until("octets to arrive", || rustix::io::ioctl_fionread(&*stream) == Ok(octets as u64));
}

/// Waits until the QP's socket reports this event.
fn await_event(end: &End, event: PollFlags, mut meanwhile: impl FnMut()) {
    let stream = end.qp.inner.lock().link.as_ref().expect("connected").stream.sockets();
    until("the event of the socket", || {
        meanwhile();
        let mut fds = [PollFd::new(&*stream, event)];
        poll(&mut fds, Some(&kal_os::timespec(std::time::Duration::ZERO))) == Ok(1)
    });
}

/// Sends octets in pieces; the QP reads each before the next is sent.
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
    let (end, mut socket) = End::against_a_socket(64);
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
    let (end, mut socket) = End::against_a_socket(64);
    let before = calls(&end);
    let octets: Vec<u8> = (0..50).flat_map(|_| write_fpdu(&end, &[3; 60])).collect();
    socket.write_all(&octets).unwrap();
    await_octets(&end, octets.len());
    end.qp.on_ready(READABLE);
    assert_eq!((read(&end), calls(&end) - before), (octets.len() as u64, 1));
    assert_eq!(end.buffer.read(0, 60), [3; 60]);
}

/// Sends octets, which the QP reads on one event; returns the number of system calls.
fn calls_for(end: &End, socket: &mut TcpStream, octets: &[u8]) -> u64 {
    let before = (read(end), calls(end));
    socket.write_all(octets).unwrap();
    await_octets(end, octets.len());
    end.qp.on_ready(READABLE);
    assert_eq!(read(end) - before.0, octets.len() as u64);
    calls(end) - before.1
}

/// One call reads the header of a large payload, and another the payload to its place. Other FPDUs are
/// read by one call, as many as have arrived.
#[test]
fn large_payloads_are_read_to_their_places_once_they_are_expected() {
    const LARGE: usize = 40 << 10;
    let (end, mut socket) = End::against_a_socket(LARGE);
    let small: Vec<u8> = (0..300).flat_map(|_| write_fpdu(&end, &[9; 60])).collect();
    let mut msn = 0;
    let mut large = |send: bool| {
        msn += u32::from(send);
        let payload: Vec<u8> = (0..LARGE).map(|at| (at / 7) as u8 ^ msn as u8).collect();
        if send {
            receive(&end, 0, LARGE);
        }
        (if send { fpdu(msn, &payload) } else { write_fpdu(&end, &payload) }, payload)
    };
    for send in [false, true] {
        assert_eq!(calls_for(&end, &mut socket, &large(send).0), 1, "no receive expects it");
        let (fpdu, payload) = large(send);
        assert_eq!(calls_for(&end, &mut socket, &fpdu), 2);
        assert_eq!(end.buffer.read(0, LARGE), payload);
        // In pieces.
        let (fpdu, payload) = large(send);
        dribble(&end, &mut socket, &fpdu, &[4 << 10, 12 << 10, 20 << 10, 30 << 10]);
        assert_eq!(end.buffer.read(0, LARGE), payload);
        assert_eq!(calls_for(&end, &mut socket, &large(send).0), 2, "more may follow");
        // After two calls without a large payload none is expected.
        assert_eq!(calls_for(&end, &mut socket, &small), 3);
        assert_eq!(calls_for(&end, &mut socket, &small), 1);
        assert_eq!(calls_for(&end, &mut socket, &small), 1);
        (0..if send { 4 } else { 0 }).for_each(|_| assert!(end.completed()));
    }
}

/// The end of the stream is reported only after everything was read.
#[test]
fn a_thread_that_learns_of_an_end_reads_until_it_shows() {
    let (end, mut socket) = End::against_a_socket(64);
    receive(&end, 0, 8);
    socket.write_all(&fpdu(1, &[5; 8])).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    await_event(&end, PollFlags::RDHUP, || ());
    end.qp.on_ready(Ready { over: true, ..READABLE });
    assert!(end.completed());
    assert_ne!(end.qp.query().unwrap().state, QpState::Rts);
}

#[test]
fn a_sender_without_room_sends_when_there_is_room_and_not_before() {
    let (reader, source) = pair(16 << 20);
    reader.read(&source);
    until("the source's socket to be full", || source.qp.poll() == Polled::Stalled);
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
fn counters_outlive_the_stream() {
    let (end, mut socket) = End::against_a_socket(64);
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
