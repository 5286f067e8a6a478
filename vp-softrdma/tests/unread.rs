//! A peer that does not read: messages that its full socket does not accept do not complete.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::io::Read;
use std::net::{TcpListener, TcpStream};

use common::*;
use vp_api::*;

const MESSAGES: usize = 200;
const OCTETS: usize = 64 << 10;
/// Octets of an FPDU before the payload: length and header.
const MULPDU: u16 = 8018;
const HEAD: usize = 2 + 18;
const CRC: usize = 4;

/// A QP with more posted Sends than fit: each octet of message `n` is `n`. The peer has not read.
fn posted(crc: bool) -> (End, Region, TcpStream) {
    let near = End::new(|init| init.send_depth = MESSAGES as u32);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    b.set_read_timeout(Some(HANG)).unwrap();
    let mut params = StreamParams::new(Role::Initiator);
    (params.crc, params.kick_after, params.close_timeout) = (crc, None, HANG);
    params.fpdu = FpduSize::Octets(MULPDU);
    near.rts(a, params);
    assert_eq!(near.event(), AsyncEvent::Established);
    let source = near.region(Buffer::new(MESSAGES * OCTETS));
    for n in 0..MESSAGES {
        source.buffer.write(n * OCTETS, &[n as u8; OCTETS]);
        near.post(n as u64, SEND, &[source.sge(n * OCTETS, OCTETS)]);
    }
    (near, source, b)
}

/// Those that have completed, in order and with success.
fn completed(near: &End, before: usize) -> usize {
    let mut out = [WorkCompletion::BLANK; 16];
    let mut count = before;
    loop {
        let polled = near.cq.poll(&mut out).unwrap();
        for completion in &out[..polled] {
            assert_eq!((completion.wr_id, completion.status), (count as u64, WcStatus::Success));
            count += 1;
        }
        if polled == 0 {
            return count;
        }
    }
}

/// The messages in a stream of FPDUs, as far as they go.
fn messages(mut octets: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = vec![Vec::new()];
    while octets.len() >= HEAD {
        let len = usize::from(u16::from_be_bytes([octets[0], octets[1]]));
        let whole = (2 + len).next_multiple_of(4) + CRC;
        let Some(fpdu) = octets.get(..whole) else { break };
        messages.last_mut().unwrap().extend(&fpdu[HEAD..2 + len]);
        // The L bit
        if fpdu[2] & 0x40 != 0 {
            messages.push(Vec::new());
        }
        octets = &octets[whole..];
    }
    messages.pop();
    messages
}

// RFC 5040 5.5(9) [RDMAP-18]: what completed is with TCP, which delivers it when the rest is given up.
#[test]
fn unsent_requests_do_not_complete() {
    for crc in [false, true] {
        let (near, _source, mut peer) = posted(crc);
        let count = completed(&near, 0);
        assert!(near.qp.query().unwrap().counters.send_stalls > 0);
        assert!(count < MESSAGES, "it all fits");
        near.qp.modify(QpChange::Closing).unwrap();
        assert_eq!(near.event(), AsyncEvent::BadClose);
        let mut octets = Vec::new();
        // It ends in a reset.
        let _ = peer.read_to_end(&mut octets);
        let arrived = messages(&octets).len();
        assert!(arrived >= count, "{count} completed, {arrived} arrived, crc: {crc}");
    }
}

// The buffers of completed messages belong to the application again.
#[test]
fn a_buffer_may_be_used_again_once_its_send_has_completed() {
    for crc in [false, true] {
        let (near, source, mut peer) = posted(crc);
        let mut count = 0;
        let mut octets = Vec::new();
        let mut some = vec![0; 256 << 10];
        let begin = std::time::Instant::now();
        let mut read = 0;
        while read < MESSAGES {
            let now = completed(&near, count);
            for n in count..now {
                source.buffer.write(n * OCTETS, &[0xee; OCTETS]);
            }
            count = now;
            let got = peer.read(&mut some).unwrap();
            octets.extend(&some[..got]);
            read =
                octets.len() / (OCTETS + OCTETS.div_ceil(usize::from(MULPDU) - 18) * (HEAD + CRC));
            assert!(begin.elapsed() < HANG, "{read} of {MESSAGES} messages arrived");
        }
        for (n, message) in messages(&octets).iter().enumerate() {
            assert!(*message == vec![n as u8; OCTETS], "message {n}, crc: {crc}");
        }
    }
}
