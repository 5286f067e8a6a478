//! Tests of unreliable connections: whole messages arrive, damaged ones leave nothing behind.

use crate::common::{Memory, RKEY, Random};
use roce_proto::psn::Psn;
use roce_proto::rc::{
    Access, AccessError, Completion, Delivered, Host, Mtu, Post, PostError, SendOp, Source, Status,
};
use roce_proto::uc::{Dropped, Qp, UcConfig};
use roce_proto::wire::bth::{Opcode, Operation, Position, Rider, Service};
use roce_proto::wire::extended::Reth;
use roce_proto::wire::packet::Packet;

const SEND: SendOp = SendOp::Send { immediate: None, invalidate: None };
const MTU: usize = 256;

struct End {
    qp: Qp,
    memory: Memory,
}

impl End {
    fn new() -> Self {
        let psn = Psn::new(0xff_fffe);
        let config = UcConfig {
            destination: 0x11,
            mtu: Mtu::Octets256,
            send_psn: psn,
            receive_psn: psn,
            send_depth: 8,
        };
        let mut memory = Memory { remote: vec![0; 4096], ..Memory::default() };
        memory.local =
            (0..8).map(|slot| (0..2000).map(|at| (at + slot * 7) as u8).collect()).collect();
        Self { qp: Qp::new(config).unwrap(), memory }
    }

    fn post(&mut self, slot: u32, op: SendOp, len: u32) {
        self.qp.post(Post { slot, op, len, solicited: false }).unwrap();
    }

    /// The packets of all posted requests.
    fn packets(&mut self) -> Vec<Vec<u8>> {
        let memory = &self.memory;
        std::iter::from_fn(|| self.qp.poll_transmit())
            .map(|transmit| {
                let mut datagram = transmit.headers.emit().as_slice().to_vec();
                if let Source::Request { slot, offset, len } = transmit.source {
                    datagram
                        .extend(&memory.local[slot as usize][offset as usize..][..len as usize]);
                }
                datagram.extend(vec![0; usize::from(transmit.headers.bth.pad) + 4]);
                datagram
            })
            .collect()
    }

    fn done(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.qp.poll_completion()).collect()
    }

    fn receive(&mut self, datagram: &[u8]) -> Result<(), Dropped> {
        self.qp.handle_packet(&Packet::parse(datagram).unwrap(), &mut self.memory)
    }

    fn delivered(&mut self) -> Vec<Vec<u8>> {
        self.memory.delivered.drain(..).map(|(_, octets)| octets).collect()
    }
}

const fn success(slot: u32) -> Completion {
    Completion { slot, status: Status::Success }
}

// [IBUC-01]
#[test]
fn requests_complete_when_they_are_sent_and_no_packet_asks_for_a_reply() {
    let mut end = End::new();
    end.post(0, SEND, 600);
    end.post(1, SendOp::Write { address: 0, rkey: RKEY, immediate: Some(7) }, 100);
    assert!(!end.qp.has_completed());
    let packets = end.packets();
    assert_eq!(end.done(), [success(0), success(1)]);
    let headers: Vec<_> =
        packets.iter().map(|packet| Packet::parse(packet).unwrap().headers).collect();
    let opcodes: Vec<_> = headers.iter().map(|headers| headers.bth.opcode).collect();
    let send = |position| Opcode::Transport(Service::Uc, Operation::Send(position, Rider::None));
    let write = Operation::Write(Position::Only, Rider::Immediate);
    assert_eq!(
        opcodes,
        [
            send(Position::First),
            send(Position::Middle),
            send(Position::Last),
            Opcode::Transport(Service::Uc, write)
        ]
    );
    assert!(headers.iter().all(|headers| !headers.bth.ack_request));
    let psns: Vec<_> = headers.iter().map(|headers| headers.bth.psn.get()).collect();
    assert_eq!(psns, [0xff_fffe, 0xff_ffff, 0, 1]);
    for (op, why) in [
        (SendOp::Read { address: 0, rkey: RKEY }, PostError::NoReads),
        (SendOp::Send { immediate: None, invalidate: Some(1) }, PostError::Riders),
    ] {
        let post = Post { slot: 2, op, len: 8, solicited: false };
        assert_eq!(end.qp.post(post), Err(why));
    }
}

// [IBUC-02] [IBUC-03]
#[test]
fn a_message_with_a_gap_is_dropped_and_its_receive_serves_the_next() {
    for lost in 0..3 {
        let (mut from, mut to) = (End::new(), End::new());
        to.memory.receives.extend([1000, 1000]);
        from.post(0, SEND, 600);
        from.post(1, SEND, 500);
        from.post(2, SEND, 3);
        let packets = from.packets();
        for (at, packet) in packets.iter().enumerate().filter(|(at, _)| *at != lost) {
            let of_lost_message = at < 3 && at > lost;
            assert_eq!(to.receive(packet).is_err(), of_lost_message, "{at} without {lost}");
        }
        let sent = [from.memory.local[1][..500].to_vec(), from.memory.local[2][..3].to_vec()];
        assert_eq!(to.delivered(), sent, "without {lost}");
        assert_eq!((to.memory.receives.len(), to.memory.failed_receives), (0, 0));
    }
}

#[test]
fn a_write_with_a_gap_places_what_came_before_and_nothing_after() {
    let (mut from, mut to) = (End::new(), End::new());
    from.post(0, SendOp::Write { address: 10, rkey: RKEY, immediate: None }, 700);
    from.post(1, SendOp::Write { address: 2000, rkey: RKEY, immediate: None }, 20);
    let packets = from.packets();
    for packet in [&packets[0], &packets[2], &packets[3]] {
        let _ = to.receive(packet);
    }
    assert_eq!(to.memory.remote[10..10 + MTU], from.memory.local[0][..MTU]);
    assert_eq!(to.memory.remote[10 + MTU..2000], vec![0; 2000 - 10 - MTU]);
    assert_eq!(to.memory.remote[2000..2020], from.memory.local[1][..20]);
}

// [IBUC-03] [IBUC-04]
#[test]
fn what_finds_no_room_or_no_right_is_dropped_in_silence() {
    let (mut from, mut to) = (End::new(), End::new());
    from.post(0, SEND, 10);
    let packets = from.packets();
    assert_eq!(to.receive(&packets[0]), Err(Dropped::Unready), "without a receive");
    to.memory.receives.push_back(20);
    for (slot, op, len, why) in [
        (1, SEND, 21, Dropped::Unready),
        (2, SEND, 600, Dropped::Unready),
        (3, SendOp::Write { address: 0, rkey: RKEY + 1, immediate: None }, 8, Dropped::Stray),
        (4, SendOp::Write { address: 4090, rkey: RKEY, immediate: None }, 8, Dropped::Stray),
    ] {
        from.post(slot, op, len);
        for packet in from.packets() {
            let dropped = to.receive(&packet).unwrap_err();
            assert!(dropped == why || dropped == Dropped::Stray, "{op:?}");
        }
    }
    to.memory.disallowed = Some(Access::Write);
    from.post(5, SendOp::Write { address: 0, rkey: RKEY, immediate: None }, 8);
    assert_eq!(to.receive(&from.packets()[0]), Err(Dropped::Stray));
    assert_eq!(to.qp.failed(), None);
    assert_eq!(to.memory.remote, vec![0; 4096]);
    from.post(6, SendOp::Send { immediate: Some(9), invalidate: None }, 20);
    to.receive(&from.packets()[0]).unwrap();
    let (delivered, octets) = to.memory.delivered.remove(0);
    assert_eq!((delivered.immediate, octets.len()), (Some(9), 20));
}

/// Whatever a peer sends in whatever order ends nothing; a whole message at the end still arrives.
#[test]
fn sequences_without_sense_end_nothing() {
    let mut random = Random::new(7);
    for _ in 0..2_000 {
        let (mut from, mut to) = (End::new(), End::new());
        to.memory.receives.extend([300; 8]);
        for slot in 0..6 {
            let (len, immediate) = (random.below(900) as u32, random.chance(30).then_some(1));
            let address = random.below(5000);
            let op = match random.chance(50) {
                true => SendOp::Send { immediate, invalidate: None },
                false => SendOp::Write { address, rkey: RKEY, immediate },
            };
            from.post(slot, op, len);
        }
        let mut packets = from.packets();
        for _ in 0..20 {
            let (a, b) = (random.below(packets.len() as u64), random.below(packets.len() as u64));
            packets.swap(a as usize, b as usize);
            // Any opcode of UC.
            let at = random.below(packets.len() as u64) as usize;
            packets[at][0] = 0x20 | random.below(12) as u8;
        }
        for packet in &packets {
            if let Ok(packet) = Packet::parse(packet) {
                let _ = to.qp.handle_packet(&packet, &mut to.memory);
            }
        }
        assert_eq!((to.qp.failed(), to.memory.failed_receives), (None, 0));
        to.memory.delivered.clear();
        to.memory.receives.push_back(300);
        from.done();
        from.post(7, SEND, 300);
        for packet in from.packets() {
            to.receive(&packet).unwrap();
        }
        let expected = from.memory.local[7][..300].to_vec();
        assert_eq!(to.delivered(), [expected]);
    }
}

#[test]
fn local_memory_that_may_not_be_read_fails_its_request_and_those_after_it() {
    let mut end = End::new();
    end.post(0, SEND, 10);
    end.post(1, SEND, 600);
    end.post(2, SEND, 10);
    end.qp.poll_transmit().unwrap();
    let transmit = end.qp.poll_transmit().unwrap();
    end.qp.handle_source_fault(&transmit);
    let failed = Completion { slot: 1, status: Status::LocalProtection };
    assert_eq!(end.done(), [success(0), failed, Completion { slot: 2, status: Status::Flushed }]);
    assert_eq!(end.qp.failed(), Some(Status::LocalProtection));
    assert!(end.qp.poll_transmit().is_none());
    // Where the packet is the last of its request.
    let mut end = End::new();
    end.post(0, SEND, 10);
    let transmit = end.qp.poll_transmit().unwrap();
    end.qp.handle_source_fault(&transmit);
    assert_eq!(end.done(), [Completion { slot: 0, status: Status::LocalProtection }]);
}

/// Its receives cannot be written.
struct Unwritable(usize);

impl Host for Unwritable {
    fn take_receive(&mut self) -> Option<u64> {
        Some(1000)
    }
    fn place_receive(&mut self, _: u32, _: &[u8]) -> Result<(), AccessError> {
        Err(AccessError)
    }
    fn complete_receive(&mut self, _: Delivered) {}
    fn fail_receive(&mut self) {
        self.0 += 1;
    }
    fn allows(&mut self, _: Access, _: &Reth) -> bool {
        true
    }
    fn check(&mut self, _: u32, _: u64, _: u32, _: Access) -> Result<(), AccessError> {
        Ok(())
    }
    fn place(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), AccessError> {
        Err(AccessError)
    }
    fn atomic(&mut self, _: u32, _: u64, _: roce_proto::rc::AtomicOp) -> Result<u64, AccessError> {
        Err(AccessError)
    }
    fn invalidate(&mut self, _: u32) -> Result<(), AccessError> {
        Err(AccessError)
    }
    fn place_response(&mut self, _: u32, _: u32, _: &[u8]) -> Result<(), AccessError> {
        Err(AccessError)
    }
}

#[test]
fn a_receive_that_cannot_be_written_ends_the_connection_and_memory_of_a_write_does_not() {
    let (mut from, mut to, mut host) = (End::new(), End::new(), Unwritable(0));
    from.post(0, SendOp::Write { address: 0, rkey: RKEY, immediate: None }, 8);
    from.post(1, SEND, 8);
    let packets = from.packets();
    let mut receive =
        |at: usize| to.qp.handle_packet(&Packet::parse(&packets[at]).unwrap(), &mut host);
    assert_eq!(receive(0), Err(Dropped::Stray));
    assert_eq!(receive(1), Err(Dropped::Stray));
    assert_eq!(host.0, 1);
    assert_eq!(to.qp.failed(), Some(Status::LocalProtection));
}

#[test]
fn a_paused_connection_sends_after_its_time() {
    let mut end = End::new();
    end.post(0, SEND, 8);
    end.qp.pause(100);
    assert!(!end.qp.has_more() && end.qp.poll_transmit().is_none());
    end.qp.handle_timeout(99);
    assert_eq!(end.qp.deadline(), Some(100));
    end.qp.handle_timeout(100);
    assert_eq!((end.qp.deadline(), end.qp.has_more()), (None, true));
    assert_eq!(end.packets().len(), 1);
}

#[test]
fn a_send_of_one_packet_has_the_opcode_of_the_standard() {
    let mut end = End::new();
    end.post(0, SEND, 4);
    let packet = end.packets().remove(0);
    let head = [0x24, 0x40, 0xff, 0xff, 0x2d, 0, 0, 0x11, 0, 0xff, 0xff, 0xfe];
    assert_eq!(packet[..12], head);
    assert_eq!(packet[12..16], [0, 1, 2, 3]);
}
