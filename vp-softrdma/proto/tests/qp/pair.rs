//! Two QPs talk: data arrives whole, in order, once; completions come in posting order.
//!
//! Owner of the state: each test its own; one thread. The stream between them may split, delay and
//! break anywhere.

use iwarp_proto::{QpEvent, Status};

use crate::sim::memory::Region;
use crate::sim::{STREAM, Sim};

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

// [RDMAP-12, RDMAP-16]
#[test]
fn send_write_read() {
    let mut sim = Sim::pair(STREAM);
    sim.ends[1].memory.regions.push(Region::new(0x100, 0x1000, 4096));
    sim.ends[0].memory.regions.push(Region::new(0x200, 0x8000, 4096));
    sim.ends[1].receive(1000);
    let (hello, data) = (pattern(1000, 1), pattern(3000, 2));
    sim.ends[0].write(0x100, 0x1001, &data);
    sim.ends[0].read((0x200, 0x8000), (0x100, 0x1001), 3000);
    sim.ends[0].send(&hello);
    sim.run();
    assert_eq!(sim.ends[1].memory.region(0x100).octets[1..3001], data);
    assert_eq!(sim.ends[0].memory.region(0x200).octets[..3000], data);
    assert_eq!(sim.ends[1].memory.received[0].octets, hello);
    assert_eq!(sim.ends[0].statuses(), [Status::Success; 3]);
    sim.close(0);
    for end in &sim.ends {
        assert_eq!(end.events, [QpEvent::Established, QpEvent::CloseComplete]);
    }
}
