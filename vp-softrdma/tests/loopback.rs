//! Every operation between two QPs over a real TCP connection, with and without CRC and markers.

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
            assert_eq!(sink.buffer.read(at, *len), source.buffer.read(0, *len));
            at += len;
            near.done(100 + i as u64);
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
        assert_eq!(sink.buffer.read(0, 1 << 20), source.buffer.read(0, 1 << 20));
        near.done(2);
        near.done(3);
    }
}
